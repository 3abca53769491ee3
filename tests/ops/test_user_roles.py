"""Roles of new users."""

from pathlib import Path

import pytest
from click.testing import Result

from auth.login.users import MAX_LISTED_ROLES
from storage.catalog import accounts
from storage.catalog.accounts import AccountKey, Membership
from tests.ops.commands import opened, run_json, typed


def add_user(*words: str) -> Result:
    return typed("users", "add", "ada@example.org", *words, answer="correct horse battery\n")


def list_roles(home: Path) -> list[str]:
    with opened(home).catalog.read() as tx:
        user = AccountKey("user", "ada@example.org")
        return accounts.list_memberships(tx, user, "role", after="", limit=10)


@pytest.fixture
def cheap(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (("MEMORY_KIB", "64"), ("PASSES", "1"), ("LANES", "1")):
        monkeypatch.setenv(f"STORE_PASSWORD_{name}", value)
    return home


@pytest.mark.spec("OPS-24")
def test_new_user_gets_roles(cheap: Path) -> None:
    made = add_user("--role", "store_ingest", "--role", "store_admin", "--role", "store_ingest")
    assert made.output == "ada@example.org may log in.\n"
    assert list_roles(cheap) == ["store_admin", "store_ingest"]
    (listed,) = run_json("users", "list")
    assert listed["roles"] == "store_admin store_ingest"


@pytest.mark.spec("OPS-24")
def test_unknown_role_names_the_nearest_and_adds_nobody(cheap: Path) -> None:
    refused = add_user("--role", "store_admin", "--role", "store_injest")
    assert refused.exit_code == 1
    assert "There is no role store_injest. Did you mean store_ingest?" in refused.output
    assert "Roles are: store_admin, store_ingest, user_default." in refused.output
    assert run_json("users", "list") == []


@pytest.mark.spec("OPS-24")
def test_roles_of_a_user_who_has_a_password_stay(cheap: Path) -> None:
    add_user()
    assert add_user("--role", "store_admin").exit_code == 1
    assert list_roles(cheap) == []


@pytest.mark.spec("OPS-24")
def test_long_lists_of_roles_end_with_an_ellipsis(cheap: Path) -> None:
    add_user()
    roles = [AccountKey("role", f"role_{number:04}") for number in range(MAX_LISTED_ROLES + 1)]
    user = AccountKey("user", "ada@example.org")
    with opened(cheap).catalog.write() as tx:
        for role in roles:
            accounts.insert(tx, role, None)
        accounts.insert_memberships(tx, [Membership(user, role) for role in roles[:-1]])
    refused = typed("users", "add", "eve@example.org", "--role", "role_x")
    assert refused.output.endswith(", role_0099, ….\n")
    assert run_json("users", "list")[0]["roles"].endswith(" role_0099")
    with opened(cheap).catalog.write() as tx:
        accounts.insert_memberships(tx, [Membership(user, roles[-1])])
    assert run_json("users", "list")[0]["roles"].endswith(" role_0099 …")
