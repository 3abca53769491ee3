"""The consent flow, with the real service and a person at a browser."""

import html
import re
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from store_client.auth import credentials as files
from store_client.auth.browser import authorize_in_browser, open_browser, open_callback_server
from store_client.auth.login import LoginPrompts, login_with_consent
from store_client.auth.oauth import AuthService
from store_client.configuration import Configuration
from store_client.errors import NotAllowed, Refused, TimedOut
from store_client.http.session import HttpSession
from tests.client.auth.auth_service import ADA, Browser, World


def heard() -> tuple[list[str], Callable[[str], None]]:
    told: list[str] = []
    return told, told.append


def asked(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@pytest.mark.spec("CLI-70")
def test_browser_login_stores_credentials(
    session: HttpSession, config: Configuration, browser: Browser
) -> None:
    told, say = heard()
    found = login_with_consent(session, config, around=LoginPrompts(say, browser.visit, wait_s=20))
    assert found.email == ADA
    kept = files.read_login(config)
    assert kept is not None
    assert kept.email == ADA
    assert kept.refresh_token
    assert config.credentials.stat().st_mode & 0o777 == 0o600
    assert "/oauth/authorize?" in told[0]
    assert not any(kept.access_token in line or kept.refresh_token in line for line in told)
    assert kept.access_token not in repr(kept)
    while not browser.pages:
        threading.Event().wait(0.01)
    assert browser.pages == ["You are logged in"]


@pytest.mark.spec("CLI-70")
def test_the_request_binds_the_answer_to_this_login(
    session: HttpSession, service: AuthService
) -> None:
    seen: list[str] = []
    with pytest.raises(TimedOut):
        authorize_in_browser(session, service, say=lambda _: None, show=seen.append, wait_s=0.2)
    with pytest.raises(TimedOut):
        authorize_in_browser(session, service, say=lambda _: None, show=seen.append, wait_s=0.2)
    one, other = map(asked, seen)
    assert one["client_id"] == "store-cli"
    assert one["code_challenge_method"] == "S256"
    assert urlsplit(one["redirect_uri"]).hostname == "127.0.0.1"
    assert urlsplit(one["redirect_uri"]).path == "/callback"
    for name in ("state", "nonce", "code_challenge"):
        assert len(one[name]) >= 32
        assert one[name] != other[name]


@pytest.mark.spec("CLI-70")
def test_the_address_is_printed_where_no_browser_opens(
    session: HttpSession, service: AuthService, browser: Browser
) -> None:
    def no_browser(url: str) -> bool:
        raise OSError("none")

    def say(text: str) -> None:
        url = text.split()[-1]
        threading.Thread(target=browser.visit, args=(url,)).start()

    found = authorize_in_browser(session, service, say=say, show=no_browser, wait_s=20)
    assert found.email == ADA


@pytest.mark.spec("CLI-70")
def test_times_out_without_browser_login(session: HttpSession, service: AuthService) -> None:
    with pytest.raises(TimedOut) as caught:
        authorize_in_browser(session, service, say=lambda _: None, show=lambda _: None, wait_s=0.1)
    assert "--remote" in caught.value.hint


def callback(**changed: str) -> Callable[[str], None]:
    """A browser that comes back with what somebody else made up."""

    def show(url: str) -> None:
        query = asked(url)
        ordinary = {"state": query["state"], "code": "a code", "iss": "?"}
        httpx.get(query["redirect_uri"], params={**ordinary, **changed})

    return show


@pytest.mark.spec("CLI-71")
def test_reports_denied_login(session: HttpSession, service: AuthService) -> None:
    show = callback(iss=service.issuer, error="access_denied", error_description="No.\x1b[2J")
    with pytest.raises(NotAllowed) as caught:
        authorize_in_browser(session, service, say=lambda _: None, show=show, wait_s=20)
    assert "refused" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.spec("CLI-71")
def test_reports_other_errors(session: HttpSession, service: AuthService) -> None:
    show = callback(iss=service.issuer, error="invalid_scope")
    with pytest.raises(Refused, match="invalid_scope"):
        authorize_in_browser(session, service, say=lambda _: None, show=show, wait_s=20)


@pytest.mark.spec("CLI-71")
@pytest.mark.parametrize("issuer", ["https://evil.example", ""])
def test_an_answer_of_another_service_is_not_believed(
    session: HttpSession, service: AuthService, issuer: str
) -> None:
    with pytest.raises(Refused, match="another authorization service"):
        authorize_in_browser(
            session, service, say=lambda _: None, show=callback(iss=issuer), wait_s=20
        )


@pytest.mark.spec("CLI-71")
def test_an_answer_that_names_no_service_is_not_believed_of_one_that_does(
    session: HttpSession, service: AuthService
) -> None:
    def show(url: str) -> None:
        query = asked(url)
        httpx.get(query["redirect_uri"], params={"state": query["state"], "code": "a code"})

    with pytest.raises(Refused, match="another authorization service"):
        authorize_in_browser(session, service, say=lambda _: None, show=show, wait_s=20)


@pytest.mark.spec("CLI-71")
def test_rejects_foreign_code(session: HttpSession, service: AuthService) -> None:
    with pytest.raises(NotAllowed, match="refused the request"):
        authorize_in_browser(
            session, service, say=lambda _: None, show=callback(iss=service.issuer), wait_s=20
        )


def action_of(page: httpx.Response) -> str:
    found = re.search(r'action="([^"]+)"', page.text)
    assert found, page.text
    return html.unescape(found[1])


@pytest.mark.spec("CLI-71")
def test_a_code_of_another_login_is_refused_by_its_challenge(
    session: HttpSession, service: AuthService, browser: Browser
) -> None:
    """Somebody sends their own code to the port of a person who logs in."""
    theirs: dict[str, str] = {}

    def keep(url: str) -> None:
        query = asked(url)
        answer = browser.http.get(url)
        while not answer.headers.get("Location", "").startswith(query["redirect_uri"]):
            if answer.is_redirect:
                answer = browser.http.get(httpx.URL(url).join(answer.headers["Location"]))
            else:
                answer = browser.sent(answer, action_of(answer))
        theirs.update(asked(answer.headers["Location"]))

    with pytest.raises(TimedOut):
        authorize_in_browser(session, service, say=lambda _: None, show=keep, wait_s=2)
    show = callback(iss=service.issuer, code=theirs["code"])
    with pytest.raises(NotAllowed):
        authorize_in_browser(session, service, say=lambda _: None, show=show, wait_s=20)


@pytest.mark.spec("CLI-71")
def test_port_accepts_one_response_with_right_state() -> None:
    with open_callback_server() as door:
        door.state = "the state"
        base = door.redirect_uri.removesuffix("/callback")
        answers: dict[str, Any] = {}
        with httpx.Client() as http:
            for path in ("/", "/favicon.ico", "/callback/", "/callbacks?state=the+state"):
                assert http.get(base + path).status_code == 404, path
            for method in ("POST", "PUT", "HEAD", "OPTIONS"):
                refused = http.request(method, f"{base}/callback?state=the+state&code=c")
                assert refused.status_code == 404, method
            for query in ("", "?code=c", "?code=c&state=", "?code=c&state=other&state=the+state"):
                assert http.get(f"{base}/callback{query}").status_code == 400, query
            wrong = http.get(f"{base}/callback?code=c&state=other")
            assert (wrong.status_code, "Not this login" in wrong.text) == (400, True)
            named = http.get(
                f"{base}/callback?code=c&state=the+state", headers={"Host": "evil.example"}
            )
            assert named.status_code == 404
            many = "&".join(f"p{n}=1" for n in range(99))
            assert http.get(f"{base}/callback?state=the+state&{many}").status_code == 400
            with pytest.raises(TimedOut):
                door.wait_for_answer(0.05)

            def come() -> None:
                answers["page"] = httpx.get(f"{base}/callback?code=c&state=the+state")

            thread = threading.Thread(target=come)
            thread.start()
            assert door.wait_for_answer(10) == {"code": "c", "state": "the state"}
            again = http.get(f"{base}/callback?code=d&state=the+state")
            assert again.status_code == 400
            door.show_result("You are <in>", "Close & go.")
            thread.join()
    page = answers["page"]
    assert (page.status_code, "You are &lt;in&gt;" in page.text) == (200, True)
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert "script" not in page.text
    with pytest.raises(httpx.TransportError):
        httpx.get(base)


@pytest.mark.spec("CLI-71")
def test_port_rejects_responses_before_login() -> None:
    with open_callback_server() as door:
        assert httpx.get(door.redirect_uri, params={"state": "", "code": "c"}).status_code == 400


@pytest.mark.spec("CLI-70")
@pytest.mark.parametrize("screen", [{}, {"SSH_CONNECTION": "1"}])
def test_text_browser_never_takes_terminal(screen: dict[str, str]) -> None:
    assert open_browser("http://127.0.0.1:1/", environ=screen, platform="linux") is False


@pytest.mark.spec("CLI-80")
def test_new_login_revokes_former_one(
    session: HttpSession, config: Configuration, browser: Browser, world: World
) -> None:
    around = LoginPrompts(lambda _: None, browser.visit, wait_s=20)
    login_with_consent(session, config, around=around)
    before = files.read_login(config)
    assert before is not None
    login_with_consent(session, config, around=around)
    header = {"Authorization": f"Bearer {before.access_token}"}
    answer = httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header)
    assert answer.status_code == 401
