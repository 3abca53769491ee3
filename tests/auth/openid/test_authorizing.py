from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from auth.login import sessions
from auth.login.sessions import Lifetimes
from auth.openid import authorizing, granting
from auth.openid.authorizing import Asked, Next, Request
from auth.openid.clients import NewClient, add
from auth.openid.errors import SentBack, Shown
from auth.openid.provider import Provider
from storage.catalog import grants
from tests.auth.builders import NOW
from tests.auth.openid.builders import ADA, CLI_URI, added, asked, session


def read(provider: Provider, **changed: Any) -> Request:
    with provider.catalog.read() as tx:
        return authorizing.read(tx, provider, asked(**changed))


def sent_back(provider: Provider, **changed: Any) -> SentBack:
    with pytest.raises(SentBack) as caught:
        read(provider, **changed)
    return caught.value


def test_a_request_is_read(provider: Provider) -> None:
    found = read(provider, scope="openid offline_access unheard-of", max_age="60", prompt="login")
    assert found.client.id == "store-cli"
    assert (found.state, found.nonce, found.redirect_uri) == ("the state", "the nonce", CLI_URI)
    assert found.scopes == ("openid", "offline_access")
    assert (found.max_age_s, found.prompts) == (60, frozenset({"login"}))
    assert read(provider, scope=None).scopes == ("openid", "email", "groups")


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "nobody"},
        {"client_id": "no\0body"},
        {"client_id": ["store-cli", "other"]},
        {"redirect_uri": None},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": [CLI_URI, "https://evil.example/"]},
        {"redirect_uri": CLI_URI + "/"},
        {"redirect_uri": CLI_URI + "?more=1"},
        {"redirect_uri": "http://127.0.0.1.evil.example:80/callback"},
        {"redirect_uri": "http://127.0.0.1:80@evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1:/callback"},
        {"redirect_uri": "http://127.0.0.1:123456/callback"},
        {"redirect_uri": "http://127.0.0.1:80\\@evil.example/callback"},
        {"redirect_uri": "http://localhost:80/callback"},
        {"redirect_uri": "https://127.0.0.1:80/callback"},
        {"redirect_uri": "HTTP://127.0.0.1:80/callback"},
        {"redirect_uri": "//127.0.0.1/callback"},
        {"redirect_uri": "javascript:alert(1)"},
        {"redirect_uri": "http://127.0.0.1:80/call\nback"},
        {"redirect_uri": "http://127.0.0.1:65536/callback"},
    ],
)
def test_nobody_is_sent_to_an_address_that_is_not_the_clients(
    provider: Provider, changed: dict[str, Any]
) -> None:
    with pytest.raises(Shown):
        read(provider, **changed)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "[::1]:65535", "[::1]"])
@pytest.mark.parametrize("path", ["", "/", "/callback"])
def test_a_native_client_comes_back_on_any_port(provider: Provider, host: str, path: str) -> None:
    uri = f"http://{host}{path}"
    assert read(provider, redirect_uri=uri).redirect_uri == uri


def test_a_confidential_client_comes_back_to_the_very_address(provider: Provider) -> None:
    added(provider, "portal", "http://127.0.0.1:80/back")
    wanted = {"client_id": "portal", "code_challenge": None, "code_challenge_method": None}
    assert read(provider, **wanted, redirect_uri="http://127.0.0.1:80/back").challenge is None
    with pytest.raises(Shown):
        read(provider, **wanted, redirect_uri="http://127.0.0.1:81/back")


def test_the_only_address_need_not_be_named_and_the_default_client_neither(
    provider: Provider,
) -> None:
    found = read(provider, client_id=None, redirect_uri=None)
    assert (found.client.id, found.redirect_uri) == ("store-web", "https://store.example/back")
    assert not found.redirect_named


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": "code id_token"}, "unsupported_response_type"),
        ({"response_type": ["code", "code"]}, "invalid_request"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"scope": 'open"id'}, "invalid_scope"),
        ({"scope": "unheard-of"}, "invalid_scope"),
        ({"scope": "openid  email"}, "invalid_scope"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": ["a" * 43, "b" * 43]}, "invalid_request"),
        ({"prompt": "none login"}, "invalid_request"),
        ({"prompt": "dance"}, "invalid_request"),
        ({"max_age": "-1"}, "invalid_request"),
        ({"max_age": "²"}, "invalid_request"),
        ({"max_age": "9" * 400}, "invalid_request"),
        ({"nonce": "n" * 3000}, "invalid_request"),
        ({"nonce": "n\0"}, "invalid_request"),
        ({"request": "x.y.z"}, "request_not_supported"),
        ({"request_uri": "https://evil.example/"}, "request_uri_not_supported"),
        ({"registration": "{}"}, "registration_not_supported"),
    ],
)
def test_what_cannot_be_granted_is_told_to_the_client(
    provider: Provider, changed: dict[str, Any], error: str
) -> None:
    refusal = sent_back(provider, **changed)
    assert (refusal.error, refusal.redirect_uri, refusal.state) == (error, CLI_URI, "the state")


def test_a_state_that_cannot_be_given_back_is_not(provider: Provider) -> None:
    assert sent_back(provider, state=["a", "b"]).state is None
    for state, said in (("s" * 3000, "2048"), ("s\0", "NUL")):
        refusal = sent_back(provider, state=state)
        assert refusal.state is None
        assert said in refusal.description


def test_answers_name_the_issuer_and_give_the_state_back(provider: Provider) -> None:
    strange = "a&b=c#d é%26"
    request = read(provider, state=strange)
    told = parse_qs(urlsplit(authorizing.answer_with_code(provider, request, "the code")).query)
    assert told == {"code": ["the code"], "iss": ["https://auth.example"], "state": [strange]}
    refusal = authorizing.denied(request, "No.")
    url = authorizing.answer_with_error(provider, refusal)
    assert url.startswith(CLI_URI + "?")
    told = parse_qs(urlsplit(url).query)
    assert told["error"] == ["access_denied"]
    assert (told["iss"], told["state"]) == (["https://auth.example"], [strange])


def test_an_address_keeps_its_own_query(provider: Provider) -> None:
    added(provider, "portal", "https://portal.example/back?tenant=1")
    request = read(
        provider, client_id="portal", redirect_uri="https://portal.example/back?tenant=1"
    )
    url = authorizing.answer_with_code(provider, request, "c")
    assert url.startswith("https://portal.example/back?tenant=1&code=c&")


def next_of(
    provider: Provider, request: Request, at_s: float | None, sent: Asked | None = None
) -> Next:
    with provider.catalog.read() as tx:
        at_browser = None if at_s is None else session(at_s)
        return authorizing.what_next(tx, request, at_browser, now=NOW, asked=sent)


OF_WEB = {"client_id": "store-web", "redirect_uri": "https://store.example/back"}


def test_who_is_not_logged_in_has_to_and_who_is_goes_on(provider: Provider) -> None:
    request = read(provider, **OF_WEB)
    assert next_of(provider, request, None) is Next.LOGIN
    assert next_of(provider, request, NOW - 10_000) is Next.GRANT


@pytest.mark.parametrize("changed", [{"prompt": "login"}, {"max_age": "60"}, {"max_age": "0"}])
def test_a_login_that_is_too_old_is_made_anew(provider: Provider, changed: dict[str, str]) -> None:
    request = read(provider, **OF_WEB, **changed)
    assert next_of(provider, request, NOW - 61) is Next.LOGIN
    # The person was sent to log in, came back, and had not.
    assert next_of(provider, request, NOW - 61, Asked(NOW - 30, "another")) is Next.LOGIN
    assert next_of(provider, request, NOW - 20, Asked(NOW - 30, "another")) is Next.GRANT


def test_a_login_is_made_anew_whatever_clocks_two_machines_have(provider: Provider) -> None:
    request = read(provider, **OF_WEB, prompt="login")
    sent = NOW - 10
    for behind_s, following in ((30, Next.GRANT), (31, Next.LOGIN)):
        assert next_of(provider, request, sent - behind_s, Asked(sent, "another")) is following
    # The session that the person had is none that was made anew, however young it is.
    assert next_of(provider, request, sent - 1, Asked(sent, session(sent).id)) is Next.LOGIN


@pytest.mark.parametrize(
    ("uri", "asks"),
    [
        ("http://127.0.0.1:1/back", True),
        ("http://[::1]/back", True),
        ("com.example.app:/back", True),
        ("https://app.example/back", False),
    ],
)
def test_a_public_native_client_needs_consent_in_each_session(
    provider: Provider, uri: str, asks: bool
) -> None:
    new = NewClient("app", "App", (uri,), public=True, first_party=True)
    with provider.catalog.write() as tx:
        add(tx, new, provider.now_us())
        # Neither an earlier consent nor the operator's word tells which program this is.
        grants.agree(tx, ADA, "app", frozenset({"openid"}), provider.now_us())
    request = read(provider, client_id="app", redirect_uri=uri, scope="openid")
    following = next_of(provider, request, NOW)
    assert following is (Next.CONSENT if asks else Next.GRANT)
    with provider.catalog.write() as tx:
        _, begun = sessions.begin(tx, ADA, "local", now=NOW, lifetimes=Lifetimes(60, 60))
        granting.agree(tx, provider, request, begun, "request")
        assert authorizing.what_next(tx, request, begun, now=NOW, asked=None) is Next.GRANT
        more = replace(request, scopes=("openid", "email"))
        following = authorizing.what_next(tx, more, begun, now=NOW, asked=None)
        assert following is (Next.CONSENT if asks else Next.GRANT)
        other = replace(begun, id="another session")
        following = authorizing.what_next(tx, request, other, now=NOW, asked=None)
        assert following is (Next.CONSENT if asks else Next.GRANT)


def test_clients_that_are_not_the_stores_own_ask_once(provider: Provider) -> None:
    added(provider, "portal", "https://portal.example/back")
    wanted = {"client_id": "portal", "redirect_uri": "https://portal.example/back"}
    request = read(provider, **wanted, scope="openid")
    assert next_of(provider, request, NOW) is Next.CONSENT
    with provider.catalog.write() as tx:
        grants.agree(tx, ADA, "portal", frozenset({"openid"}), 1)
    assert next_of(provider, request, NOW) is Next.GRANT
    assert next_of(provider, read(provider, **wanted, scope="openid groups"), NOW) is Next.CONSENT
    assert next_of(provider, read(provider, **wanted, prompt="consent"), NOW) is Next.CONSENT


def test_nobody_is_asked_when_the_client_wants_nobody_asked(provider: Provider) -> None:
    request = read(provider, prompt="none")
    for following in (Next.LOGIN, Next.CONSENT):
        with pytest.raises(SentBack) as caught:
            authorizing.refuse_prompt(request, following)
        assert caught.value.error == following.value
    authorizing.refuse_prompt(request, Next.GRANT)
    authorizing.refuse_prompt(read(provider), Next.LOGIN)
