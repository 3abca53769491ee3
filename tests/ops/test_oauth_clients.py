"""The operator's commands for OAuth clients."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from auth.oauth.clients import find_client
from auth.secret_values import is_matching_secret
from config import Settings
from ops.__main__ import cli
from storage.catalog import Catalog, audit
from storage.catalog.audit import OPERATOR, AuditFilter

pytestmark = pytest.mark.spec("OPS-23")


@pytest.fixture
def settings(home: Path) -> Settings:
    return Settings(home=home)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False, terminal_width=200)
    assert result.exit_code == code, result.output
    return result.output


def test_a_client_is_added_listed_and_removed(settings: Settings) -> None:
    shown = run("clients", "add", "portal", "--redirect-uri", "https://portal.example/back")
    secret = shown.split()[-1]
    with Catalog(settings.catalog).read() as tx:
        found = find_client(tx, {}, "portal")
    assert found is not None
    assert is_matching_secret(secret, found.secret or "")
    listed = run("clients", "list")
    assert "portal" in listed
    assert "store-cli" in listed
    assert secret not in listed
    run("clients", "remove", "portal")
    assert "portal" not in run("clients", "list")
    assert "no operator added" in run("clients", "remove", "portal", code=1).lower()


def test_a_public_client_is_shown_no_secret(settings: Settings) -> None:
    shown = run("clients", "add", "app", "--public", "--redirect-uri", "com.example.app:/back")
    assert "secret" not in shown


@pytest.mark.parametrize(
    "words",
    [
        ("store-cli",),
        ("store",),
        ("a b",),
        ("portal", "--redirect-uri", "http://portal.example/"),
        ("portal", "--redirect-uri", "com.example.app:/back"),
    ],
)
def test_rejects_invalid_client_in_one_sentence(settings: Settings, words: tuple[str, ...]) -> None:
    assert "Error: " in run("clients", "add", *words, code=1)


def test_audits_changes_of_clients(settings: Settings) -> None:
    secret = run("clients", "add", "portal").split()[-1]
    run("clients", "remove", "portal")
    with Catalog(settings.catalog).read() as tx:
        told = audit.list_records(tx, AuditFilter(), before_id=None, limit=10)
    assert [(one.who, one.what, one.target) for one in told] == [
        (OPERATOR, "remove_client", "client/portal"),
        (OPERATOR, "add_client", "client/portal"),
    ]
    assert secret not in str(told)
