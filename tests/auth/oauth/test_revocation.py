"""Access tokens of an ended login are rejected."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from joserfc.jwk import ECKey

from auth.accounts import AuditContext
from auth.decisions import LocalDecisionPoint
from auth.login.sessions import SessionLifetimes, create_session, list_browser_sessions
from auth.oauth import authorize, clients
from auth.oauth import tokens as token_endpoint
from auth.oauth.clients import CLI_CLIENT, PAGES_CLIENT
from auth.oauth.provider import OAuthError, OAuthProvider
from auth.oauth.tokens import build_own_verifier
from auth.tokens.issuance import TokenSpec, issue_token, sign_claims
from auth.tokens.signing_keys import SigningKeyFile
from auth.tokens.verification import GrantChecker, KeyRing, TokenVerifier
from storage.catalog import Catalog, login, oauth
from storage.catalog.oauth import GrantRow
from storage.catalog.sql import parse
from storage.errors import Unauthorized, Unavailable
from tests.auth.accounts.builders import Given
from tests.auth.builders import AGES, NOW, Clock, claims, signed
from tests.auth.oauth.builders import ADA, added, client_of, code_for, redeem, refresh
from tests.auth.oauth.conftest import ISSUER, Users

pytestmark = pytest.mark.spec("OID-13", "APA-08")

BACK = "https://portal.example/back"


class Counted:
    """Grants as they are, and how often one was asked about."""

    def __init__(self, grants: GrantChecker) -> None:
        self.grants = grants
        self.asked = 0

    def is_active(self, grant_id: str) -> bool:
        self.asked += 1
        return self.grants.is_active(grant_id)


@pytest.fixture
def counted(provider: OAuthProvider, clock: Clock) -> Counted:
    return Counted(GrantChecker(provider.catalog, clock))


@pytest.fixture
def store(keys: SigningKeyFile, clock: Clock, counted: Counted) -> TokenVerifier:
    """Verifies as a store does that shares the catalog."""
    return TokenVerifier(
        {ISSUER: KeyRing(lambda: keys.read().jwks(), clock, AGES)},
        audiences=["store"],
        algorithms=["RS256", "ES256"],
        clock=clock,
        grants=counted,
        own=ISSUER,
    )


def refused(store: TokenVerifier, token: str) -> None:
    with pytest.raises(Unauthorized, match="revoked") as caught:
        store.verify(token)
    assert token not in caught.value.detail


def test_token_is_valid_until_revoked(provider: OAuthProvider, store: TokenVerifier) -> None:
    for which in ("refresh_token", "access_token"):
        tokens, other = (
            redeem(provider, code_for(provider, state=which)),
            redeem(provider, code_for(provider, state=which + " of another login")),
        )
        assert store.verify(tokens["access_token"]).email == ADA
        form = {"token": tokens[which], "client_id": "store-cli"}
        token_endpoint.revoke_token(
            provider, build_own_verifier(provider), client_of(provider), form
        )
        refused(store, tokens["access_token"])
        assert store.verify(other["access_token"]).email == ADA


def test_reuse_of_code_or_refresh_token_revokes_access_tokens(
    provider: OAuthProvider, store: TokenVerifier, clock: Clock
) -> None:
    code = code_for(provider)
    tokens = redeem(provider, code)
    with pytest.raises(OAuthError):
        redeem(provider, code)
    refused(store, tokens["access_token"])
    stolen = redeem(provider, code_for(provider, state="another"))
    newer = refresh(provider, stolen["refresh_token"])
    clock.now += 60
    assert store.verify(newer["access_token"]).email == ADA
    with pytest.raises(OAuthError):
        refresh(provider, stolen["refresh_token"])
    refused(store, stolen["access_token"])
    refused(store, newer["access_token"])


def test_removed_client_loses_its_tokens(provider: OAuthProvider, store: TokenVerifier) -> None:
    added(provider, "portal", BACK)
    granted = {"client_id": "portal", "redirect_uri": BACK}
    tokens = redeem(provider, code_for(provider, **granted), "portal", redirect_uri=BACK)
    assert store.verify(tokens["access_token"]).email == ADA
    with provider.catalog.write() as tx:
        clients.remove_client(tx, "portal", provider.now_us())
    refused(store, tokens["access_token"])


def test_reenabled_user_stays_logged_out(
    provider: OAuthProvider, store: TokenVerifier, users: Users
) -> None:
    tokens = redeem(provider, code_for(provider))
    users.disable(ADA)
    with pytest.raises(OAuthError):
        refresh(provider, tokens["refresh_token"])
    users.enable(ADA)
    refused(store, tokens["access_token"])


def test_rejects_token_of_unknown_grant(
    provider: OAuthProvider, store: TokenVerifier, keys: SigningKeyFile
) -> None:
    # As after a catalog was restored to a time before the login.
    for grant in ("lost", "", 7, ["lost"], {"a": "b"}, False):
        refused(store, sign_claims(keys.read(), {**claims(iss=ISSUER), "grant": grant}))


def test_tokens_of_other_issuers_need_no_lookup(
    store: TokenVerifier, counted: Counted, keys: SigningKeyFile, curve: ECKey, clock: Clock
) -> None:
    operators = issue_token(
        keys.read(),
        TokenSpec(ADA, ("store_ingest",), 60),
        issuer=ISSUER,
        audience=["store"],
        now=NOW,
        token_id="t",
    )
    assert store.verify(operators).groups == {"store_ingest"}
    forged = signed(curve, claims(iss=ISSUER, grant="g"))
    header, _, signature = operators.split(".")
    for bad in (forged, f"{header}.{forged.split('.')[1]}.{signature}"):
        with pytest.raises(Unauthorized):
            store.verify(bad)
    assert counted.asked == 0


def test_ignores_grant_claim_of_foreign_issuer(
    counted: Counted, keys: SigningKeyFile, clock: Clock
) -> None:
    theirs = TokenVerifier(
        {"https://theirs.example": KeyRing(lambda: keys.read().jwks(), clock, AGES)},
        audiences=["store"],
        algorithms=["RS256", "ES256"],
        clock=clock,
        grants=counted,
        own=ISSUER,
    )
    token = sign_claims(keys.read(), {**claims(iss="https://theirs.example"), "grant": "g"})
    assert theirs.verify(token).email == ADA
    assert counted.asked == 0


def test_failed_lookup_is_unavailable(keys: SigningKeyFile, clock: Clock) -> None:
    class Away:
        def is_active(self, grant_id: str) -> bool:
            raise Unavailable("The catalog cannot be reached.")

    store = TokenVerifier(
        {ISSUER: KeyRing(lambda: keys.read().jwks(), clock, AGES)},
        audiences=["store"],
        algorithms=["RS256", "ES256"],
        clock=clock,
        grants=Away(),
        own=ISSUER,
    )
    with pytest.raises(Unavailable):
        store.verify(sign_claims(keys.read(), {**claims(iss=ISSUER), "grant": "g"}))


def test_grant_ends_by_injected_clock(
    provider: OAuthProvider, having: Callable[..., OAuthProvider], clock: Clock
) -> None:
    short = having(grant_s=100)
    grants = GrantChecker(provider.catalog, clock)
    redeem(short, code_for(short, state="short"))
    grant_id = f"grant of short {provider.now_us()} {ADA}"
    assert grants.is_active(grant_id)
    clock.now += 101
    assert not grants.is_active(grant_id)


def by_id(provider: OAuthProvider, grant_id: str) -> None:
    with provider.catalog.write() as tx:
        oauth.revoke_grant(tx, grant_id, provider.now_us())


def by_person(provider: OAuthProvider, _grant_id: str) -> None:
    with provider.catalog.write() as tx:
        login.end_logins(tx, ADA)


def by_client(provider: OAuthProvider, _grant_id: str) -> None:
    with provider.catalog.write() as tx:
        oauth.revoke_grants(tx, provider.now_us(), client="store-cli")


def of_everybody(provider: OAuthProvider, _grant_id: str) -> None:
    with provider.catalog.write() as tx:
        oauth.revoke_all_grants(tx, provider.now_us())


@pytest.mark.parametrize("end", [by_id, by_person, by_client, of_everybody])
def test_early_end_of_login_changes_policy_version_once(
    provider: OAuthProvider, users: Users, end: Callable[[OAuthProvider, str], None]
) -> None:
    # The first login creates the user, which changes the version, too.
    users.enable(ADA)
    decisions = LocalDecisionPoint(provider.catalog, Given())
    before = decisions.version()
    redeem(provider, code_for(provider))
    with provider.catalog.read() as tx:
        grant_id = str(tx.execute(parse("SELECT id FROM grants")).scalar_one())
    assert decisions.version() == before
    end(provider, grant_id)
    ended = decisions.version()
    assert ended != before
    end(provider, grant_id)
    assert decisions.version() == ended


def test_ending_a_browser_session_ends_the_web_pages_of_that_browser(catalog: Catalog) -> None:
    lifetimes, by = SessionLifetimes(43_200, 3_600), AuditContext(ADA, "end_session", "r")
    ended, other = NOW + 0.123457, NOW + 0.223457
    with catalog.write() as tx:
        _, here = create_session(tx, ADA, "local", now=ended, lifetimes=lifetimes)
        create_session(tx, ADA, "local", now=other, lifetimes=lifetimes)
        for name, client, at in (
            ("web here", PAGES_CLIENT, ended),
            ("web there", PAGES_CLIENT, other),
            ("cli here", CLI_CLIENT, ended),
        ):
            now_us = int(NOW * 1e6)
            row = GrantRow(name, client, ADA, "openid", int(at * 1e6), now_us, now_us + 10**9)
            oauth.insert_grant(tx, row)
    stranger = replace(by, who="eve@example.org")
    assert not authorize.end_browser_session(catalog, here.id, stranger, NOW + 1)
    assert authorize.end_browser_session(catalog, here.id, by, NOW + 1)
    assert not authorize.end_browser_session(catalog, here.id, by, NOW + 1)
    assert len(list_browser_sessions(catalog, ADA, NOW + 1)) == 1
    with catalog.read() as tx:
        now_us = int((NOW + 1) * 1e6)
        names = ("web here", "web there", "cli here")
        valid = [name for name in names if oauth.is_grant_valid(tx, name, now_us)]
    assert valid == ["web there", "cli here"]
