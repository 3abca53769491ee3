"""Tokens that a store signs for itself, as the service accepts them."""

from pathlib import Path

import pytest

from auth import service_accounts
from auth.accounts import AuditContext
from auth.remote import TOKEN_LIFE_S, StoreTokenSigner
from auth.service_accounts import (
    ServiceAccounts,
    create_credentials,
    parse_credentials,
    parse_credentials_key,
)
from auth.tokens.verification import TokenVerifier
from storage.catalog import Catalog
from storage.errors import Invalid, Unavailable
from tests.auth.builders import Clock
from tests.auth.misbehaving_services import STORE, credentials_file

pytestmark = pytest.mark.spec("APA-04")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return credentials_file(tmp_path)


@pytest.fixture
def service(catalog: Catalog, clock: Clock, file: Path) -> TokenVerifier:
    """Has this store on its list, and allows its tokens no longer life than they have."""
    with catalog.write() as tx:
        registered = parse_credentials_key(file.read_text(), email=STORE)
        service_accounts.add_account_key(tx, STORE, registered, by=AuditContext("operator", "test"))
    accounts = ServiceAccounts(catalog, lifetime_s=TOKEN_LIFE_S)
    return TokenVerifier(
        {}, audiences=["store"], algorithms=["RS256"], clock=clock, accounts=accounts
    )


def test_service_accepts_tokens_at_any_time(
    file: Path, service: TokenVerifier, clock: Clock
) -> None:
    tokens = StoreTokenSigner(file, clock)
    seen = set()
    for _ in range(50):
        clock.now += 17.3
        seen.add(tokens.current())
        found = service.verify(tokens.current())
        assert (found.email, found.groups) == (STORE, frozenset())
    assert 5 < len(seen) < 25


def test_clock_set_back_makes_new_token(file: Path, service: TokenVerifier, clock: Clock) -> None:
    tokens = StoreTokenSigner(file, clock)
    tokens.current()
    clock.now -= 86_400
    assert service.verify(tokens.current()).email == STORE


def test_rejected_token_is_replaced(file: Path, clock: Clock) -> None:
    tokens = StoreTokenSigner(file, clock)
    first = tokens.current()
    assert tokens.current() == first
    clock.now += 1
    tokens.forget()
    assert tokens.current() != first


def test_changed_key_file_is_used_without_restart(file: Path, clock: Clock) -> None:
    tokens = StoreTokenSigner(file, clock)
    tokens.current()
    other, registered = create_credentials(
        "other@machines.example.org", audience="store", token_uri=""
    )
    file.write_text(other)
    clock.now += TOKEN_LIFE_S
    assert parse_credentials(file.read_text()).kid == registered.kid
    assert tokens.current().split(".")[0] != StoreTokenSigner(file, clock).current()
    file.unlink()
    assert tokens.current()
    clock.now += TOKEN_LIFE_S
    with pytest.raises(Unavailable, match="cannot sign"):
        tokens.current()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"client_email": "a@b.example", "audience": "store"}',
        '{"client_email": "a@b.example", "private_key": "-----BEGIN PRIVATE KEY-----"}',
        '{"client_email": "a@b.example", "audience": "store", "private_key": 7}',
        '{"client_email": "a@b.example", "audience": "store", "private_key": "x PRIVATE KEY-----"}',
        "\xff",
    ],
)
def test_a_file_that_signs_nothing_stops_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Invalid, match="STORE_POLICIES_CREDENTIALS"):
        StoreTokenSigner(path)
    with pytest.raises(Invalid, match="STORE_POLICIES_CREDENTIALS"):
        StoreTokenSigner(tmp_path / "absent.json")


def test_neither_an_account_nor_its_tokens_show_the_key(file: Path) -> None:
    account = parse_credentials(file.read_text())
    assert "key=" not in repr(account)
    assert "PRIVATE" not in repr(account)
