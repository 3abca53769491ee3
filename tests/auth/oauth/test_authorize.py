"""Authorization requests and authorization codes."""

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from auth.login import sessions
from auth.login.sessions import SessionLifetimes
from auth.oauth import authorize
from auth.oauth.authorize import AuthorizationRequest, LoginPrompt, NextStep
from auth.oauth.clients import NewOAuthClient, add_client
from auth.oauth.provider import OAuthProvider, RedirectedError, UserFacingError
from storage.catalog import oauth
from tests.auth.builders import NOW
from tests.auth.oauth.builders import ADA, CLI_URI, added, asked, session

pytestmark = pytest.mark.spec("OID-03")


def read(provider: OAuthProvider, **changed: Any) -> AuthorizationRequest:
    with provider.catalog.read() as tx:
        return authorize.read_request(tx, provider, asked(**changed))


def sent_back(provider: OAuthProvider, **changed: Any) -> RedirectedError:
    with pytest.raises(RedirectedError) as caught:
        read(provider, **changed)
    return caught.value


def test_a_request_is_read(provider: OAuthProvider) -> None:
    found = read(provider, scope="openid offline_access unheard-of", max_age="60", prompt="login")
    assert found.client.id == "store-cli"
    assert (found.state, found.nonce, found.redirect_uri) == ("the state", "the nonce", CLI_URI)
    assert found.scopes == ("openid", "offline_access")
    assert (found.max_age_s, found.prompts) == (60, frozenset({"login"}))
    assert read(provider, scope=None).scopes == ("openid", "email", "groups")


@pytest.mark.spec("OID-04")
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
def test_never_redirects_to_unregistered_address(
    provider: OAuthProvider, changed: dict[str, Any]
) -> None:
    with pytest.raises(UserFacingError):
        read(provider, **changed)


@pytest.mark.spec("OID-04")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "[::1]:65535", "[::1]"])
@pytest.mark.parametrize("path", ["", "/", "/callback"])
def test_native_client_may_use_any_port(provider: OAuthProvider, host: str, path: str) -> None:
    uri = f"http://{host}{path}"
    assert read(provider, redirect_uri=uri).redirect_uri == uri


@pytest.mark.spec("OID-04")
def test_confidential_client_must_use_exact_address(provider: OAuthProvider) -> None:
    added(provider, "portal", "http://127.0.0.1:80/back")
    wanted = {"client_id": "portal", "code_challenge": None, "code_challenge_method": None}
    assert read(provider, **wanted, redirect_uri="http://127.0.0.1:80/back").challenge is None
    with pytest.raises(UserFacingError):
        read(provider, **wanted, redirect_uri="http://127.0.0.1:81/back")


def test_the_only_address_need_not_be_named_and_the_default_client_neither(
    provider: OAuthProvider,
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
def test_redirects_unsupported_requests_with_error(
    provider: OAuthProvider, changed: dict[str, Any], error: str
) -> None:
    refusal = sent_back(provider, **changed)
    assert (refusal.error, refusal.redirect_uri, refusal.state) == (error, CLI_URI, "the state")


def test_rejects_unreturnable_state(provider: OAuthProvider) -> None:
    assert sent_back(provider, state=["a", "b"]).state is None
    for state, said in (("s" * 3000, "2048"), ("s\0", "NUL")):
        refusal = sent_back(provider, state=state)
        assert refusal.state is None
        assert said in refusal.description


def test_response_has_issuer_and_state(provider: OAuthProvider) -> None:
    strange = "a&b=c#d é%26"
    request = read(provider, state=strange)
    url = authorize.client_redirect_url(
        provider, request.redirect_uri, request.state, {"code": "the code"}
    )
    told = parse_qs(urlsplit(url).query)
    assert told == {"code": ["the code"], "iss": ["https://auth.example"], "state": [strange]}
    refusal = authorize.denied_error(request, "No.")
    url = authorize.client_redirect_url(
        provider, refusal.redirect_uri, refusal.state, {"error": refusal.error}
    )
    assert url.startswith(CLI_URI + "?")
    told = parse_qs(urlsplit(url).query)
    assert told["error"] == ["access_denied"]
    assert (told["iss"], told["state"]) == (["https://auth.example"], [strange])


def test_an_address_keeps_its_own_query(provider: OAuthProvider) -> None:
    added(provider, "portal", "https://portal.example/back?tenant=1")
    request = read(
        provider, client_id="portal", redirect_uri="https://portal.example/back?tenant=1"
    )
    url = authorize.client_redirect_url(
        provider, request.redirect_uri, request.state, {"code": "c"}
    )
    assert url.startswith("https://portal.example/back?tenant=1&code=c&")


def next_of(
    provider: OAuthProvider,
    request: AuthorizationRequest,
    at_s: float | None,
    sent: LoginPrompt | None = None,
) -> NextStep:
    with provider.catalog.read() as tx:
        at_browser = None if at_s is None else session(at_s)
        return authorize.find_next_step(tx, request, at_browser, now=NOW, prompt=sent)


OF_WEB = {"client_id": "store-web", "redirect_uri": "https://store.example/back"}


def test_anonymous_user_must_log_in(provider: OAuthProvider) -> None:
    request = read(provider, **OF_WEB)
    assert next_of(provider, request, None) is NextStep.LOGIN
    assert next_of(provider, request, NOW - 10_000) is NextStep.GRANT


@pytest.mark.parametrize("changed", [{"prompt": "login"}, {"max_age": "60"}, {"max_age": "0"}])
def test_max_age_requires_new_login(provider: OAuthProvider, changed: dict[str, str]) -> None:
    request = read(provider, **OF_WEB, **changed)
    assert next_of(provider, request, NOW - 61) is NextStep.LOGIN
    # The person was sent to log in, came back, and had not.
    assert next_of(provider, request, NOW - 61, LoginPrompt(NOW - 30, "another")) is NextStep.LOGIN
    assert next_of(provider, request, NOW - 20, LoginPrompt(NOW - 30, "another")) is NextStep.GRANT


def test_clock_skew_never_prevents_new_login(provider: OAuthProvider) -> None:
    request = read(provider, **OF_WEB, prompt="login")
    sent = NOW - 10
    for behind_s, following in ((30, NextStep.GRANT), (31, NextStep.LOGIN)):
        assert (
            next_of(provider, request, sent - behind_s, LoginPrompt(sent, "another")) is following
        )
    # The session that the person had is none that was made anew, however young it is.
    assert (
        next_of(provider, request, sent - 1, LoginPrompt(sent, session(sent).id)) is NextStep.LOGIN
    )


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
    provider: OAuthProvider, uri: str, asks: bool
) -> None:
    new = NewOAuthClient("app", "App", (uri,), public=True, first_party=True)
    with provider.catalog.write() as tx:
        add_client(tx, new, provider.now_us())
        # Neither an earlier consent nor the operator's word tells which program this is.
        oauth.record_consent(tx, ADA, "app", frozenset({"openid"}), provider.now_us())
    request = read(provider, client_id="app", redirect_uri=uri, scope="openid")
    following = next_of(provider, request, NOW)
    assert following is (NextStep.CONSENT if asks else NextStep.GRANT)
    with provider.catalog.write() as tx:
        _, begun = sessions.create_session(
            tx, ADA, "local", now=NOW, lifetimes=SessionLifetimes(60, 60)
        )
        authorize.record_consent(tx, provider, request, begun, "request")
        assert authorize.find_next_step(tx, request, begun, now=NOW, prompt=None) is NextStep.GRANT
        more = replace(request, scopes=("openid", "email"))
        following = authorize.find_next_step(tx, more, begun, now=NOW, prompt=None)
        assert following is (NextStep.CONSENT if asks else NextStep.GRANT)
        other = replace(begun, id="another session")
        following = authorize.find_next_step(tx, request, other, now=NOW, prompt=None)
        assert following is (NextStep.CONSENT if asks else NextStep.GRANT)


def test_clients_that_are_not_the_stores_own_ask_once(provider: OAuthProvider) -> None:
    added(provider, "portal", "https://portal.example/back")
    wanted = {"client_id": "portal", "redirect_uri": "https://portal.example/back"}
    request = read(provider, **wanted, scope="openid")
    assert next_of(provider, request, NOW) is NextStep.CONSENT
    with provider.catalog.write() as tx:
        oauth.record_consent(tx, ADA, "portal", frozenset({"openid"}), 1)
    assert next_of(provider, request, NOW) is NextStep.GRANT
    assert (
        next_of(provider, read(provider, **wanted, scope="openid groups"), NOW) is NextStep.CONSENT
    )
    assert next_of(provider, read(provider, **wanted, prompt="consent"), NOW) is NextStep.CONSENT


def test_prompt_none_shows_no_page(provider: OAuthProvider) -> None:
    request = read(provider, prompt="none")
    for following in (NextStep.LOGIN, NextStep.CONSENT):
        with pytest.raises(RedirectedError) as caught:
            authorize.check_prompt_none(request, following)
        assert caught.value.error == following.value
    authorize.check_prompt_none(request, NextStep.GRANT)
    authorize.check_prompt_none(read(provider), NextStep.LOGIN)
