"""Personal tokens: created once, accepted as their user, and ended by revocation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.app import build_verifier
from auth.accounts import AuditContext, set_account_status
from auth.oauth import authorize, clients
from auth.oauth.clients import PERSONAL_TOKENS_CLIENT, NewOAuthClient
from auth.oauth.personal_tokens import (
    MAX_PERSONAL_TOKENS,
    NewPersonalToken,
    create_personal_token,
    list_personal_tokens,
)
from auth.tokens.verification import TOKEN_USE_INTERVAL_US, GrantChecker, TokenVerifier
from config import Settings
from storage.catalog import Catalog, audit
from storage.catalog.audit import AuditFilter
from storage.errors import ConflictError, Forbidden, Invalid, Unauthorized
from tests.auth.builders import Clock

pytestmark = pytest.mark.spec("OID-16")

ADA = "ada@example.org"
BY = AuditContext(ADA, "create_personal_token", "request")
DAY_S = 86_400


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home: Path = tmp_path_factory.mktemp("home")
    return Settings(
        home=home, auth_external_url="https://auth.example", secret_key="a secret for tests only"
    )


@pytest.fixture
def verifier(settings: Settings, catalog: Catalog, clock: Clock) -> TokenVerifier:
    return build_verifier(settings, clock, grants=GrantChecker(catalog, clock))


Create = Callable[..., NewPersonalToken]


@pytest.fixture
def create(settings: Settings, catalog: Catalog, clock: Clock) -> Create:
    def created(
        name: str = "backup", lifetime_s: int = 30 * DAY_S, by: AuditContext = BY, **changed: Any
    ) -> NewPersonalToken:
        given = replace(settings, **changed)
        return create_personal_token(catalog, given, name, lifetime_s, by, clock())

    return created


def test_store_accepts_token_as_its_user(create: Create, verifier: TokenVerifier) -> None:
    made = create()
    principal = verifier.verify(made.text)
    assert (principal.email, principal.grant) == (ADA, made.id)
    assert principal.groups == frozenset()


def test_token_ends_with_revocation(
    create: Create, verifier: TokenVerifier, catalog: Catalog, clock: Clock
) -> None:
    made, other = create(), create("other")
    verifier.verify(made.text)
    with catalog.write() as tx:
        assert not authorize.revoke_grant(tx, "eve@example.org", made.id, int(clock() * 1e6), "r")
    verifier.verify(made.text)
    with catalog.write() as tx:
        assert authorize.revoke_grant(tx, ADA, made.id, int(clock() * 1e6), "r")
    with pytest.raises(Unauthorized, match="revoked"):
        verifier.verify(made.text)
    assert verifier.verify(other.text).email == ADA
    assert [row.name for row in list_personal_tokens(catalog, ADA, clock())] == ["other"]


def test_token_expires(
    create: Create, verifier: TokenVerifier, catalog: Catalog, clock: Clock
) -> None:
    made = create(lifetime_s=DAY_S)
    clock.now += DAY_S - 1
    verifier.verify(made.text)
    clock.now += 32
    with pytest.raises(Unauthorized):
        verifier.verify(made.text)
    assert list_personal_tokens(catalog, ADA, clock()) == []


def test_disabling_the_user_ends_tokens_for_good(
    create: Create, verifier: TokenVerifier, catalog: Catalog
) -> None:
    made = create()
    set_account_status(catalog, ADA, "disabled", BY)
    set_account_status(catalog, ADA, "enabled", BY)
    with pytest.raises(Unauthorized, match="revoked"):
        verifier.verify(made.text)


def test_last_use_is_recorded_now_and_then(
    create: Create, verifier: TokenVerifier, catalog: Catalog, clock: Clock
) -> None:
    made = create()

    def last_use() -> int | None:
        (row,) = list_personal_tokens(catalog, ADA, clock())
        return row.used_us

    assert last_use() is None
    first = int(clock() * 1e6)
    verifier.verify(made.text)
    assert last_use() == first
    clock.now += TOKEN_USE_INTERVAL_US / 1e6 - 1
    verifier.verify(made.text)
    assert last_use() == first
    clock.now += 1
    verifier.verify(made.text)
    assert last_use() == int(clock() * 1e6)


@pytest.mark.parametrize("name", ["", " padded", "x" * 101, "line\nbreak", "\x00"])
def test_rejects_invalid_name(create: Create, name: str) -> None:
    with pytest.raises(Invalid) as raised:
        create(name)
    assert list(raised.value.errors) == ["name"]


@pytest.mark.parametrize("lifetime_s", [0, -1, 366 * DAY_S])
def test_rejects_lifetime_out_of_bounds(create: Create, lifetime_s: int) -> None:
    with pytest.raises(Invalid) as raised:
        create(lifetime_s=lifetime_s)
    assert raised.value.errors == {"lifetime": ["must be 1 to 365 days"]}


def test_settings_can_disable_tokens(create: Create) -> None:
    with pytest.raises(Invalid, match="disabled"):
        create(personal_token_s=0)


def test_rejects_second_token_of_same_name(create: Create) -> None:
    create()
    with pytest.raises(ConflictError) as raised:
        create()
    assert list(raised.value.errors) == ["name"]
    assert create(by=AuditContext("bob@example.org", "create_personal_token")).text


def test_tokens_of_a_user_are_bounded(create: Create) -> None:
    for number in range(MAX_PERSONAL_TOKENS):
        create(f"token {number}")
    with pytest.raises(ConflictError, match="revoke some"):
        create("one more")


def test_disabled_user_gets_no_token(create: Create, catalog: Catalog) -> None:
    create()
    set_account_status(catalog, ADA, "disabled", BY)
    with pytest.raises(Forbidden):
        create("other")


def test_applications_list_shows_tokens_by_name(
    create: Create, catalog: Catalog, clock: Clock
) -> None:
    create()
    with catalog.read() as tx:
        (grant,) = authorize.list_application_grants(tx, {}, ADA, int(clock() * 1e6))
    assert (grant.client, grant.token_name) == ("Personal token: backup", "backup")
    assert grant.used_us is None


def test_creation_and_revocation_are_audited_without_the_token(
    create: Create, catalog: Catalog, clock: Clock
) -> None:
    made = create()
    with catalog.write() as tx:
        authorize.revoke_grant(tx, ADA, made.id, int(clock() * 1e6), "r")
    with catalog.read() as tx:
        target = AuditFilter(target=f"token/{made.id}")
        records = audit.list_records(tx, target, before_id=None, limit=10)
    assert [one.what for one in records] == ["revoke_personal_token", "create_personal_token"]
    assert made.text.rpartition(".")[2] not in repr(records)


def test_no_application_can_take_the_id_of_the_tokens(catalog: Catalog) -> None:
    new = NewOAuthClient(PERSONAL_TOKENS_CLIENT, "x", (), public=True)
    with catalog.write() as tx, pytest.raises(ConflictError):
        clients.add_client(tx, new, 0)
