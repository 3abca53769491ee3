"""Introspection and user info of presented tokens."""

from collections.abc import Callable
from typing import Any

import pytest

from auth.oauth import tokens as token_endpoint
from auth.oauth.provider import OAuthError, OAuthProvider
from auth.oauth.tokens import build_own_verifier, read_userinfo
from auth.tokens.issuance import TokenSpec, issue_token
from tests.auth.builders import NOW, Clock
from tests.auth.oauth.builders import ADA, added, client_of, code_for, redeem, refresh
from tests.auth.oauth.conftest import Users

pytestmark = pytest.mark.spec("OID-08")


def told(provider: OAuthProvider, token: str) -> dict[str, Any]:
    return read_userinfo(provider, build_own_verifier(provider), token)


def refused(provider: OAuthProvider, token: str) -> tuple[str, int]:
    with pytest.raises(OAuthError) as caught:
        told(provider, token)
    return caught.value.error, caught.value.status


@pytest.mark.parametrize(
    ("scope", "members"),
    [
        ("openid", {"sub"}),
        ("openid email", {"sub", "email", "email_verified"}),
        ("openid groups profile", {"sub", "groups", "name", "preferred_username"}),
    ],
)
def test_userinfo_follows_scopes(provider: OAuthProvider, scope: str, members: set[str]) -> None:
    found = told(provider, redeem(provider, code_for(provider, scope=scope))["access_token"])
    assert found.keys() == members
    assert found["sub"] == ADA


def test_rejects_token_of_other_audience(provider: OAuthProvider) -> None:
    tokens = redeem(provider, code_for(provider, scope="email"))
    assert refused(provider, tokens["access_token"]) == ("insufficient_scope", 403)


def test_rejects_expired_token_and_other_kinds(provider: OAuthProvider, clock: Clock) -> None:
    tokens = redeem(provider, code_for(provider))
    for token in ("", "x", tokens["id_token"], tokens["refresh_token"]):
        assert refused(provider, token) == ("invalid_token", 401)
    clock.now += 3600 + 31
    assert refused(provider, tokens["access_token"]) == ("invalid_token", 401)


def test_rejects_token_of_disabled_user(provider: OAuthProvider, users: Users) -> None:
    tokens = redeem(provider, code_for(provider))
    users.disable(ADA)
    assert refused(provider, tokens["access_token"]) == ("invalid_token", 401)


def test_operator_token_has_all_claims(provider: OAuthProvider) -> None:
    token = issue_token(
        provider.keys.read(),
        TokenSpec(ADA, ("store_admin",), 60),
        issuer=provider.issuer,
        audience=["store"],
        now=NOW,
        token_id="1",
    )
    assert told(provider, token)["email"] == ADA


def revoke(provider: OAuthProvider, client_id: str = "store-cli", **form: str) -> None:
    token_endpoint.revoke_token(
        provider, build_own_verifier(provider), client_of(provider, client_id), form
    )


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_revoking_any_token_ends_grant(provider: OAuthProvider, kind: str) -> None:
    tokens = redeem(provider, code_for(provider))
    revoke(provider, token=tokens[kind], token_type_hint="whatever")
    assert refused(provider, tokens["access_token"]) == ("invalid_token", 401)
    with pytest.raises(OAuthError):
        refresh(provider, tokens["refresh_token"])
    revoke(provider, token=tokens[kind])


def test_revocation_keeps_other_grants(provider: OAuthProvider) -> None:
    one, two = (redeem(provider, code_for(provider, state=state)) for state in ("1", "2"))
    revoke(provider, token=one["refresh_token"])
    assert told(provider, two["access_token"])


def test_revoking_unknown_token_succeeds(provider: OAuthProvider) -> None:
    revoke(provider, token="never was one")
    with pytest.raises(OAuthError) as caught:
        revoke(provider)
    assert caught.value.error == "invalid_request"


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_rejects_revocation_by_another_client(provider: OAuthProvider, kind: str) -> None:
    added(provider, "other", public=True)
    tokens = redeem(provider, code_for(provider))
    with pytest.raises(OAuthError) as caught:
        revoke(provider, "other", token=tokens[kind])
    assert caught.value.error == "unauthorized_client"
    assert told(provider, tokens["access_token"])


def test_id_token_is_never_an_access_token(
    having: Callable[..., OAuthProvider],
) -> None:
    named = having(audiences=("store", "store-cli"))
    tokens = redeem(named, code_for(named))
    assert read_userinfo(named, build_own_verifier(named), tokens["access_token"])["sub"] == ADA
    with pytest.raises(OAuthError, match="ID token"):
        read_userinfo(named, build_own_verifier(named), tokens["id_token"])
