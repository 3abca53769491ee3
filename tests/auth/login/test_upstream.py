"""External identity providers: honest, broken and hostile."""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from auth.http_client import MAX_RESPONSE_BYTES, HttpClient
from auth.login.upstream import IdentityProvider, IdentityProviderConfig, UpstreamLogin
from auth.tokens.verification import KeyAges
from pipelines.ssrf_guard import check_address_text
from storage.errors import DomainError, Forbidden, Unauthorized, Unavailable
from tests.auth.builders import Clock, segment
from tests.auth.login.issuer import CLIENT, SECRET, Issuer, running

pytestmark = pytest.mark.spec("LOG-09")

LOGIN = UpstreamLogin(
    callback="https://auth.example/login/callback/idp",
    state="a-state",
    nonce="a-nonce",
    verifier="v" * 43,
)


@pytest.fixture
def issuer(rsa: RSAKey, clock: Clock) -> Iterator[Issuer]:
    with running(Issuer(rsa, clock, nonce=LOGIN.nonce)) as made:
        yield made


Make = Callable[..., IdentityProvider]


@pytest.fixture
def make(issuer: Issuer, clock: Clock) -> Make:
    def made(**changed: Any) -> IdentityProvider:
        told = {"issuer": issuer.url, "client_id": CLIENT, "secret": SECRET, **changed}
        http = HttpClient(told.pop("timeout_s", 5.0))
        upstream = IdentityProviderConfig(name="idp", title="The provider", **told)
        return IdentityProvider(upstream, http, clock, KeyAges(3600, 30))

    return made


@pytest.fixture
def provider(make: Make) -> IdentityProvider:
    return make()


def test_the_browser_is_sent_with_state_nonce_and_a_challenge(
    provider: IdentityProvider, issuer: Issuer
) -> None:
    url = provider.login_url(LOGIN)
    assert url.startswith(f"{issuer.url}/authorize?")
    challenge = base64.urlsafe_b64encode(hashlib.sha256(LOGIN.verifier.encode()).digest())
    assert {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()} == {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": LOGIN.callback,
        "scope": "openid email",
        "state": "a-state",
        "nonce": "a-nonce",
        "code_challenge": challenge.decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    assert "prompt=login" in provider.login_url(LOGIN, again=True)


def test_a_code_becomes_an_identity_in_small_letters(
    provider: IdentityProvider, issuer: Issuer
) -> None:
    assert provider.exchange_email(LOGIN, "the-code") == "ada@example.org"
    assert issuer.form() == {
        "grant_type": "authorization_code",
        "code": "the-code",
        "redirect_uri": LOGIN.callback,
        "code_verifier": LOGIN.verifier,
    }
    sent = next(headers for path, headers, _ in issuer.asked if path == "/token")
    assert sent["Authorization"] == "Basic " + base64.b64encode(b"our-client:our secret").decode()


def test_sends_secret_by_providers_method(make: Make, issuer: Issuer) -> None:
    issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    make().exchange_email(LOGIN, "code")
    assert issuer.form()["client_secret"] == SECRET
    issuer.asked.clear()
    make(secret="").exchange_email(LOGIN, "code")
    assert "client_secret" not in issuer.form()
    assert issuer.form()["client_id"] == CLIENT


def test_metadata_and_keys_are_read_once(
    provider: IdentityProvider, issuer: Issuer, clock: Clock
) -> None:
    for _ in range(3):
        provider.login_url(LOGIN)
        provider.exchange_email(LOGIN, "code")
    known = [path for path in issuer.paths() if path != "/token"]
    assert sorted(known) == ["/.well-known/openid-configuration", "/jwks"]
    clock.now += 3601
    provider.login_url(LOGIN)
    assert issuer.paths().count("/.well-known/openid-configuration") == 2


def test_uses_cached_metadata_during_outage(
    provider: IdentityProvider, issuer: Issuer, clock: Clock
) -> None:
    provider.login_url(LOGIN)
    issuer.answers["/.well-known/openid-configuration"] = (500, {}, b"")
    clock.now += 3601
    assert provider.login_url(LOGIN)
    assert provider.login_url(LOGIN)
    assert issuer.paths().count("/.well-known/openid-configuration") == 2
    clock.now += 86_401
    with pytest.raises(Unavailable):
        provider.login_url(LOGIN)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"aud": [CLIENT, "another"]},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": ["a-nonce"]},
        {"nonce": ""},
        {"exp": None},
        {"exp": "never"},
        {"exp": True},
        {"iat": None},
        {"iat": 0},
        {"iat": 10**300},
    ],
)
def test_claims_of_another_login_issuer_or_time_are_not_believed(
    provider: IdentityProvider, issuer: Issuer, claims: dict[str, Any]
) -> None:
    issuer.claims = claims
    with pytest.raises(Unauthorized):
        provider.exchange_email(LOGIN, "code")


def test_rejects_expired_tokens(provider: IdentityProvider, issuer: Issuer, clock: Clock) -> None:
    issuer.claims = {"exp": clock.now - 61, "iat": clock.now - 300}
    with pytest.raises(Unauthorized):
        provider.exchange_email(LOGIN, "code")
    issuer.claims = {"iat": clock.now + 61, "exp": clock.now + 300}
    with pytest.raises(Unauthorized):
        provider.exchange_email(LOGIN, "code")
    issuer.claims = {"exp": clock.now - 30, "iat": clock.now - 300}
    assert provider.exchange_email(LOGIN, "code")


def test_several_audiences_are_fine_when_the_token_was_made_for_us(
    provider: IdentityProvider, issuer: Issuer
) -> None:
    issuer.claims = {"aud": [CLIENT, "another"], "azp": CLIENT}
    assert provider.exchange_email(LOGIN, "code")


@pytest.mark.parametrize(
    "claims",
    [
        {"email_verified": False},
        {"email_verified": None},
        {"email_verified": "false"},
        {"email_verified": 1},
        {"email": "nobody"},
        {"email": "@example.org"},
        {"email": "ada@"},
        {"email": "a b@example.org"},
        {"email": "ada@example.org\nx"},
        {"email": "ad\u00e0@example.org"},
        {"email": "\u212aate@example.org"},
        {"email": ["ada@example.org"]},
        {"email": "x" * 200 + "@example.org"},
        {"email": {"$ne": ""}},
    ],
)
def test_rejects_unverified_or_missing_address(
    provider: IdentityProvider, issuer: Issuer, claims: dict[str, Any]
) -> None:
    issuer.claims = claims
    with pytest.raises(Forbidden) as caught:
        provider.exchange_email(LOGIN, "code")
    assert "example" not in caught.value.detail


def test_a_provider_speaks_for_its_domains_only(make: Make, issuer: Issuer) -> None:
    assert make(domains=("example.org", "other.org")).exchange_email(LOGIN, "code")
    with pytest.raises(Forbidden):
        make(domains=("other.org",)).exchange_email(LOGIN, "code")
    issuer.claims = {"email": "ada@evil.example.org"}
    with pytest.raises(Forbidden):
        make(domains=("example.org",)).exchange_email(LOGIN, "code")
    issuer.claims = {"email": "ada@evil.org@example.com"}
    with pytest.raises(Forbidden):
        make(domains=("evil.org", "example.org")).exchange_email(LOGIN, "code")


def test_userinfo_completes_claims_of_same_subject(
    provider: IdentityProvider, issuer: Issuer
) -> None:
    issuer.claims = {"email": None, "email_verified": None}
    issuer.userinfo = {"sub": "subject", "email": "bob@example.org", "email_verified": True}
    assert provider.exchange_email(LOGIN, "code") == "bob@example.org"
    assert ("/userinfo", "Bearer an-access-token") in [
        (path, headers.get("Authorization")) for path, headers, _ in issuer.asked
    ]
    issuer.userinfo["sub"] = "somebody else"
    with pytest.raises(Unauthorized):
        provider.exchange_email(LOGIN, "code")
    del issuer.userinfo["sub"]
    with pytest.raises(Unauthorized):
        provider.exchange_email(LOGIN, "code")


def test_rejects_unsigned_token(provider: IdentityProvider, issuer: Issuer) -> None:
    claims = json.loads(base64.urlsafe_b64decode(issuer.id_token().split(".")[1] + "=="))
    kid = issuer.key.kid
    for header, signature in (
        ({"alg": "none", "kid": kid}, ""),
        ({"alg": "none", "kid": kid}, "AAAA"),
        ({"alg": "None", "kid": kid}, "AAAA"),
        ({"alg": "RS256", "kid": kid}, "AAAA"),
    ):
        issuer.token = f"{segment(header)}.{segment(claims)}.{signature}"
        with pytest.raises(Unauthorized):
            provider.exchange_email(LOGIN, "code")


def test_rejects_public_key_as_hmac_secret(provider: IdentityProvider, issuer: Issuer) -> None:
    claims = json.loads(base64.urlsafe_b64decode(issuer.id_token().split(".")[1] + "=="))
    for secret in (issuer.key.as_pem(private=False), SECRET.encode()):
        header = {"alg": "HS256", "kid": issuer.key.kid}
        shared = OctKey.import_key(secret.hex().encode())
        made = jws.serialize_compact(header, json.dumps(claims).encode(), shared)
        issuer.token = made
        with pytest.raises(Unauthorized):
            provider.exchange_email(LOGIN, "code")


def test_a_token_signed_by_another_key_is_not_believed(
    provider: IdentityProvider, issuer: Issuer, curve: ECKey
) -> None:
    published = issuer.key
    other = RSAKey.generate_key(2048, {"kid": str(published.kid)})
    for key in (other, curve):
        issuer.jwks = {"keys": [published.as_dict(private=False)]}
        issuer.key = key
        with pytest.raises(Unauthorized):
            provider.exchange_email(LOGIN, "code")
    # Nor when the token itself says where its key is, or brings it along.
    issuer.key, issuer.asked = other, []
    for header in ({"jku": f"{issuer.url}/evil"}, {"jwk": other.as_dict(private=False)}):
        issuer.header = header
        with pytest.raises(Unauthorized):
            provider.exchange_email(LOGIN, "code")
    assert "/evil" not in issuer.paths()


def test_a_token_need_not_name_the_only_key(
    provider: IdentityProvider, make: Make, issuer: Issuer, curve: ECKey
) -> None:
    issuer.header = {"kid": None}
    assert provider.exchange_email(LOGIN, "code")
    published = {**issuer.key.as_dict(private=False)}
    issuer.jwks = {"keys": [{name: published[name] for name in ("kty", "n", "e")}]}
    assert make().exchange_email(LOGIN, "code")
    issuer.jwks = {"keys": [published, curve.as_dict(private=False)]}
    with pytest.raises(Unauthorized):
        make().exchange_email(LOGIN, "code")


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a.b", "." * 5, "é.é.é", "x" * 100_000])
def test_rejects_malformed_token(provider: IdentityProvider, issuer: Issuer, token: str) -> None:
    issuer.token = token
    body = {"access_token": "x", "token_type": "Bearer", "id_token": token}
    issuer.answers["/token"] = (200, {}, json.dumps(body).encode())
    with pytest.raises(Unauthorized):
        provider.exchange_email(LOGIN, "code")


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"{}"),
        (200, {}, b"[]"),
        (200, {}, b'"text"'),
        (200, {}, b"null"),
        (200, {}, b"<html>"),
        (200, {}, b""),
        (200, {}, b'{"id_token": 7}'),
        (200, {}, b"[" * 100_000),
        (200, {}, b'{"error": "invalid_grant"}'),
        (400, {}, b'{"error": "invalid_grant", "error_description": "used"}'),
        (401, {}, b'{"error": ["invalid_grant"]}'),
        (400, {}, b"{}"),
        (500, {}, b"oh"),
        (302, {"Location": "/elsewhere"}, b""),
        (307, {"Location": "/elsewhere"}, b""),
        (200, {}, b"x" * (MAX_RESPONSE_BYTES + 1)),
    ],
)
def test_no_answer_of_a_token_end_point_surprises(
    provider: IdentityProvider, issuer: Issuer, answer: tuple[int, dict[str, str], bytes]
) -> None:
    issuer.answers["/token"] = answer
    with pytest.raises((Unauthorized, Unavailable)):
        provider.exchange_email(LOGIN, "code")
    assert "/elsewhere" not in issuer.paths()


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
        {"token_endpoint": "file:///etc/passwd"},
        {"token_endpoint": ["http://127.0.0.1"]},
        {"jwks_uri": 7},
        {"jwks_uri": "/jwks"},
    ],
)
def test_metadata_that_cannot_be_used_are_not(
    provider: IdentityProvider, issuer: Issuer, changed: dict[str, Any]
) -> None:
    issuer.metadata = changed
    with pytest.raises(Unavailable):
        provider.login_url(LOGIN)


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"x" * (MAX_RESPONSE_BYTES + 1)),
        (200, {}, b"[]"),
        (404, {}, b"{}"),
        (301, {"Location": "/elsewhere"}, b""),
        (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b"),
        (200, {"Content-Length": "10"}, b"{}"),
    ],
)
def test_no_answer_of_discovery_surprises(
    provider: IdentityProvider, issuer: Issuer, answer: tuple[int, dict[str, str], bytes]
) -> None:
    issuer.answers["/.well-known/openid-configuration"] = answer
    with pytest.raises(Unavailable):
        provider.login_url(LOGIN)
    assert "/elsewhere" not in issuer.paths()


def test_a_drip_of_bytes_is_not_waited_for(make: Make, issuer: Issuer) -> None:
    issuer.drip_s = 0.05
    began = time.monotonic()
    with pytest.raises(Unavailable):
        make(timeout_s=0.3).login_url(LOGIN)
    assert time.monotonic() - began < 5


def test_addresses_inside_are_refused_where_that_is_set(issuer: Issuer, clock: Clock) -> None:
    inside = issuer.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"):
        upstream = IdentityProviderConfig("idp", "", f"http://{host}:{inside}", CLIENT, SECRET)
        provider = IdentityProvider(
            upstream, HttpClient(2.0, check_address=check_address_text), clock, KeyAges(3600, 30)
        )
        with pytest.raises(Unavailable):
            provider.login_url(LOGIN)
    assert issuer.asked == []


def test_rejects_plain_http_endpoint_of_https_provider(clock: Clock) -> None:
    upstream = IdentityProviderConfig("idp", "", "https://idp.example", CLIENT, SECRET)
    provider = IdentityProvider(upstream, _Canned(), clock, KeyAges(3600, 30))
    with pytest.raises(Unavailable, match="https"):
        provider.login_url(LOGIN)


class _Canned(HttpClient):
    def __init__(self) -> None:
        super().__init__(10.0)

    def request(self, *_: Any, **__: Any) -> Any:
        class Answer:
            def object(self) -> dict[str, str]:
                base = "https://idp.example"
                return {
                    "issuer": base,
                    "authorization_endpoint": f"{base}/a",
                    "token_endpoint": "http://idp.example/t",
                    "jwks_uri": f"{base}/k",
                }

        return Answer()


def test_an_answer_of_another_issuer_is_found_out(
    provider: IdentityProvider, issuer: Issuer
) -> None:
    provider.check_issuer(None)
    provider.check_issuer(issuer.url)
    for other in ("https://evil.example", "", issuer.url + "/"):
        with pytest.raises(Unauthorized):
            provider.check_issuer(other)


def test_requires_promised_issuer_in_response(make: Make, issuer: Issuer) -> None:
    issuer.metadata["authorization_response_iss_parameter_supported"] = True
    provider = make()
    provider.check_issuer(issuer.url)
    with pytest.raises(Unauthorized):
        provider.check_issuer(None)


@pytest.mark.spec("LOG-03")
def test_logout_continues_at_provider_if_supported(make: Make, issuer: Issuer) -> None:
    assert make().logout_url("https://auth.example/logout/done", "s") is None
    issuer.metadata["end_session_endpoint"] = f"{issuer.url}/end"
    url = make().logout_url("https://auth.example/logout/done", "s") or ""
    assert url.startswith(f"{issuer.url}/end?client_id={CLIENT}&post_logout_redirect_uri=https%3A")
    issuer.metadata["end_session_endpoint"] = "javascript:alert(1)"
    assert make().logout_url("https://auth.example/logout/done", "s") is None
    issuer.answers["/.well-known/openid-configuration"] = (500, {}, b"")
    assert make().logout_url("https://auth.example/logout/done", "s") is None


@pytest.mark.spec("LOG-10")
def test_no_error_repeats_a_secret(make: Make, issuer: Issuer) -> None:
    issuer.claims = {"nonce": "leaked-nonce", "email": "leaked@example.org"}
    issuer.answers["/jwks"] = (500, {}, b"leaked")
    for provider in (make(), make(domains=("x.org",))):
        with pytest.raises(DomainError) as caught:
            provider.exchange_email(LOGIN, "secret-code")
        told = f"{caught.value!r} {caught.value.detail} {provider.upstream!r} {LOGIN!r}"
        for secret in ("leaked", "secret-code", SECRET, LOGIN.verifier, LOGIN.nonce):
            assert secret not in told


def test_invalid_name_fails_cleanly(clock: Clock) -> None:
    upstream = IdentityProviderConfig("idp", "", "http://no-such-host.invalid", CLIENT, SECRET)
    provider = IdentityProvider(upstream, HttpClient(2.0), clock, KeyAges(3600, 30))
    with pytest.raises(Unavailable):
        provider.login_url(LOGIN)
