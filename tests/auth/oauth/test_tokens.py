"""Token requests: code exchange and refresh token rotation."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from auth.oauth import clients
from auth.oauth.provider import OAuthError, OAuthProvider
from auth.oauth.tokens import exchange_tokens
from auth.secret_values import hash_secret, token_half_hash
from storage.catalog import Catalog, oauth
from storage.catalog.sql import parse
from storage.errors import Forbidden
from tests.auth.accounts.builders import People
from tests.auth.builders import NOW, Clock
from tests.auth.oauth.builders import ADA, VERIFIER, added, client_of, code_for, redeem, refresh
from tests.auth.oauth.conftest import Users

pytestmark = pytest.mark.spec("OID-06")


def refused(act: Any, *given: Any, **more: Any) -> str:
    with pytest.raises(OAuthError) as caught:
        act(*given, **more)
    return caught.value.error


def public_keys(provider: OAuthProvider) -> KeySet:
    return KeySet(list(provider.keys.read().keys))


def claims(provider: OAuthProvider, token: str) -> dict[str, Any]:
    keys = public_keys(provider)
    return jwt.decode(token, keys, algorithms=["RS256"]).claims


def header(provider: OAuthProvider, token: str) -> dict[str, Any]:
    keys = public_keys(provider)
    return jwt.decode(token, keys, algorithms=["RS256"]).header


def test_a_code_becomes_tokens(provider: OAuthProvider, catalog: Catalog) -> None:
    People(catalog).group("curators")
    People(catalog).user(ADA, groups=["curators"])
    tokens = redeem(provider, code_for(provider))
    assert tokens["token_type"] == "Bearer"
    assert (tokens["expires_in"], tokens["scope"]) == (3600, "openid email groups")
    access = claims(provider, tokens["access_token"])
    assert (access["email"], access["aud"], access["client_id"]) == (ADA, ["store"], "store-cli")
    assert access["groups"] == ["curators", "user_default"]
    assert (access["iat"], access["exp"]) == (int(NOW), int(NOW) + 3600)
    assert header(provider, tokens["access_token"])["typ"] == "at+jwt"
    told = claims(provider, tokens["id_token"])
    assert (told["iss"], told["aud"], told["sub"]) == ("https://auth.example", "store-cli", ADA)
    assert (told["nonce"], told["auth_time"]) == ("the nonce", int(NOW))
    assert told["at_hash"] == token_half_hash(tokens["access_token"])


def test_id_token_requires_openid_scope(provider: OAuthProvider) -> None:
    assert "id_token" not in redeem(provider, code_for(provider, scope="groups"))


def test_at_hash_is_that_of_the_specification() -> None:
    # OpenID Connect Core, appendix A.3 and A.4.
    token = "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y"
    assert token_half_hash(token) == "77QmUPtjPfzWtF2AnpK9RQ"


def test_stored_digests_give_no_tokens(provider: OAuthProvider) -> None:
    code = code_for(provider)
    tokens = redeem(provider, code)
    again = refresh(provider, tokens["refresh_token"])
    secrets = {code, tokens["refresh_token"], again["refresh_token"], VERIFIER}
    with provider.catalog.read() as tx:
        for table in ("grants", "refresh_tokens", "device_codes", "clients"):
            for row in tx.execute(parse(f"SELECT * FROM {table}")):
                assert not secrets & {str(value) for value in row}


def test_code_reuse_revokes_grant(provider: OAuthProvider) -> None:
    code = code_for(provider)
    tokens = redeem(provider, code)
    assert refused(redeem, provider, code) == "invalid_grant"
    assert refused(refresh, provider, tokens["refresh_token"]) == "invalid_grant"
    with provider.catalog.read() as tx:
        grant = oauth.find_grant(tx, claims(provider, tokens["access_token"])["grant"])
    assert grant is not None
    assert not grant.is_valid(provider.now_us())


@pytest.mark.parametrize(
    "changed",
    [
        {"code": "another"},
        {"redirect_uri": None},
        {"redirect_uri": "http://127.0.0.1:9/callback"},
        {"code_verifier": None},
        {"code_verifier": VERIFIER[:-1]},
        {"code_verifier": VERIFIER + "é"},
        {"code_verifier": "a" * 129},
    ],
)
def test_code_is_bound_to_its_request(provider: OAuthProvider, changed: dict[str, Any]) -> None:
    code = code_for(provider)
    assert refused(redeem, provider, **{"code": code, **changed}) == "invalid_grant"
    # Who failed has not used it up.
    assert redeem(provider, code)


def test_rejects_code_of_another_client_and_keeps_it_valid(provider: OAuthProvider) -> None:
    added(provider, "other", public=True)
    code = code_for(provider)
    assert refused(redeem, provider, code, "other") == "invalid_grant"
    tokens = redeem(provider, code)
    assert refused(redeem, provider, code, "other") == "invalid_grant"
    assert refused(refresh, provider, tokens["refresh_token"], "other") == "invalid_grant"
    assert refresh(provider, tokens["refresh_token"])


def test_rejects_verifier_without_challenge(
    provider: OAuthProvider,
) -> None:
    added(provider, "portal", "https://portal.example/back")
    wanted = {"client_id": "portal", "redirect_uri": "https://portal.example/back"}
    code = code_for(provider, **wanted, code_challenge=None, code_challenge_method=None)
    there = {"redirect_uri": "https://portal.example/back"}
    assert refused(redeem, provider, code, "portal", **there) == "invalid_grant"
    assert redeem(provider, code, "portal", **there, code_verifier=None)


def test_an_address_that_was_not_named_need_not_be_named_again(provider: OAuthProvider) -> None:
    code = code_for(provider, client_id=None, redirect_uri=None)
    assert redeem(provider, code, "store-web", redirect_uri=None)


def test_a_code_is_over_after_its_life(provider: OAuthProvider, clock: Clock) -> None:
    code = code_for(provider)
    clock.now += 60
    assert refused(redeem, provider, code) == "invalid_grant"


def test_refresh_rotates_token(provider: OAuthProvider, clock: Clock) -> None:
    first = redeem(provider, code_for(provider))
    clock.now += 1000
    second = refresh(provider, first["refresh_token"])
    assert second["refresh_token"] != first["refresh_token"]
    told = claims(provider, second["id_token"])
    assert (told["auth_time"], told["iat"]) == (int(NOW), int(NOW) + 1000)
    assert "nonce" not in told
    assert refresh(provider, second["refresh_token"])


@pytest.mark.spec("OID-07")
def test_refresh_reuse_revokes_grant(provider: OAuthProvider, clock: Clock) -> None:
    first = redeem(provider, code_for(provider))
    second = refresh(provider, first["refresh_token"])
    clock.now += 11
    assert refused(refresh, provider, first["refresh_token"]) == "invalid_grant"
    assert refused(refresh, provider, second["refresh_token"]) == "invalid_grant"


@pytest.mark.spec("OID-07")
def test_repeated_refresh_within_grace_returns_same_successor(
    provider: OAuthProvider, clock: Clock
) -> None:
    first = redeem(provider, code_for(provider))
    second = refresh(provider, first["refresh_token"])
    clock.now += 9
    again = refresh(provider, first["refresh_token"])
    assert again["refresh_token"] == second["refresh_token"]
    third = refresh(provider, second["refresh_token"])
    # Now somebody used the successor, so whoever brings the first one has no business here.
    assert refused(refresh, provider, first["refresh_token"]) == "invalid_grant"
    assert refused(refresh, provider, third["refresh_token"]) == "invalid_grant"


@pytest.mark.spec("OPS-43")
def test_a_new_secret_keeps_refresh_tokens_and_their_grace(provider: OAuthProvider) -> None:
    first = redeem(provider, code_for(provider))
    second = refresh(provider, first["refresh_token"])
    later = replace(provider, secrets=("another secret for tests", *provider.secrets))
    again = refresh(later, first["refresh_token"])
    assert again["refresh_token"] == second["refresh_token"]
    third = refresh(later, second["refresh_token"])
    assert refresh(later, second["refresh_token"])["refresh_token"] == third["refresh_token"]


def test_without_a_moment_of_grace_a_second_use_is_one(having: Any) -> None:
    strict = having(refresh_grace_s=0)
    first = redeem(strict, code_for(strict))
    second = refresh(strict, first["refresh_token"])
    assert refused(refresh, strict, first["refresh_token"]) == "invalid_grant"
    assert refused(refresh, strict, second["refresh_token"]) == "invalid_grant"


def test_unused_refresh_token_expires(provider: OAuthProvider, clock: Clock) -> None:
    tokens = redeem(provider, code_for(provider))
    clock.now += 2_592_000
    assert refused(refresh, provider, tokens["refresh_token"]) == "invalid_grant"


def test_refresh_tokens_do_not_follow_one_another_for_ever(having: Any, clock: Clock) -> None:
    short = having(grant_s=100, refresh_idle_s=60)
    tokens = redeem(short, code_for(short))
    clock.now += 50
    tokens = refresh(short, tokens["refresh_token"])
    clock.now += 49
    tokens = refresh(short, tokens["refresh_token"])
    clock.now += 1
    assert refused(refresh, short, tokens["refresh_token"]) == "invalid_grant"


def test_a_refresh_may_ask_for_less_and_never_for_more(provider: OAuthProvider) -> None:
    tokens = redeem(provider, code_for(provider, scope="openid email"))
    less = refresh(provider, tokens["refresh_token"], scope="email")
    assert less["scope"] == "email"
    assert "id_token" not in less
    whole = refresh(provider, less["refresh_token"])
    assert whole["scope"] == "openid email"
    for more in ("openid groups", " "):
        given = {"scope": more}
        assert refused(refresh, provider, whole["refresh_token"], **given) == "invalid_scope"
    assert refresh(provider, whole["refresh_token"])


@pytest.mark.spec("OID-09")
def test_disabled_user_loses_tokens_for_good(provider: OAuthProvider, users: Users) -> None:
    code, tokens = code_for(provider), redeem(provider, code_for(provider, state="2"))
    users.disable(ADA)
    with pytest.raises(Forbidden):
        code_for(provider, state="3")
    assert refused(redeem, provider, code) == "invalid_grant"
    assert refused(refresh, provider, tokens["refresh_token"]) == "invalid_grant"
    users.enable(ADA)
    assert refused(refresh, provider, tokens["refresh_token"]) == "invalid_grant"


def test_a_client_that_was_removed_has_nothing_any_more(provider: OAuthProvider) -> None:
    added(provider, "portal", "https://portal.example/back")
    wanted = {"redirect_uri": "https://portal.example/back"}
    tokens = redeem(provider, code_for(provider, client_id="portal", **wanted), "portal", **wanted)
    with provider.catalog.write() as tx:
        clients.remove_client(tx, "portal", provider.now_us())
    added(provider, "portal", "https://portal.example/back")
    assert refused(refresh, provider, tokens["refresh_token"], "portal") == "invalid_grant"


@pytest.mark.parametrize("form", [{}, {"grant_type": "password"}, {"grant_type": "implicit"}])
def test_rejects_other_grant_types(provider: OAuthProvider, form: dict[str, str]) -> None:
    error = refused(exchange_tokens, provider, client_of(provider), form)
    assert error == ("unsupported_grant_type" if form else "invalid_request")


@pytest.mark.parametrize(
    "form", [{"grant_type": "authorization_code"}, {"grant_type": "refresh_token"}]
)
def test_names_missing_parameters(provider: OAuthProvider, form: dict[str, str]) -> None:
    assert refused(exchange_tokens, provider, client_of(provider), form) == "invalid_request"


def outcome(act: Any, *given: Any) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = act(*given)
        return found
    except OAuthError:
        return None


def test_concurrent_redemptions_succeed_once(provider: OAuthProvider) -> None:
    code = code_for(provider)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: outcome(redeem, provider, code), range(8)))
    (won,) = [tokens for tokens in found if tokens]
    # The others had the code, too: what the one got is over.
    assert outcome(refresh, provider, won["refresh_token"]) is None


@pytest.mark.spec("OID-07")
def test_concurrent_refreshes_get_one_token(provider: OAuthProvider) -> None:
    tokens = redeem(provider, code_for(provider))
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda _: outcome(refresh, provider, tokens["refresh_token"]), range(8))
        )
    assert len({each["refresh_token"] for each in found if each}) == 1
    assert None not in found
    with provider.catalog.read() as tx:
        count = tx.execute(parse("SELECT count(*) FROM refresh_tokens")).scalar_one()
    assert count == 2


@pytest.mark.spec("OID-07")
def test_concurrent_refreshes_without_grace_revoke_grant(having: Any) -> None:
    strict = having(refresh_grace_s=0)
    tokens = redeem(strict, code_for(strict))
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda _: outcome(refresh, strict, tokens["refresh_token"]), range(8))
        )
    (won,) = [each for each in found if each]
    assert outcome(refresh, strict, won["refresh_token"]) is None


def test_removes_expired_rows_later(provider: OAuthProvider, clock: Clock) -> None:
    redeem(provider, code_for(provider))
    code_for(provider, state="never redeemed")
    clock.now += 2_592_001
    tokens = redeem(provider, code_for(provider, state="later"))
    with provider.catalog.read() as tx:
        kept = tx.execute(parse("SELECT id FROM refresh_tokens")).scalars().all()
        codes = tx.execute(parse("SELECT count(*) FROM grants WHERE redeemed_us IS NULL"))
        assert codes.scalar_one() == 0
    assert kept == [hash_secret(tokens["refresh_token"])]
