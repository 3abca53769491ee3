"""The commands `quotas` and the quotas of `usage`."""

from contextlib import closing
from pathlib import Path

import pytest

from auth.accounts import AuditContext, NewAccount, create_account, list_changes
from storage.catalog.accounts import AccountKey
from storage.catalog.audit import AuditFilter
from storage.model import FQID
from tests.ops.commands import opened, run, run_json, typed

pytestmark = pytest.mark.spec("OPS-46")

DEPOSITOR = "depositor@example.org"


@pytest.fixture
def enforced(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STORE_QUOTAS", "true")
    return home


def test_sets_lists_and_removes_a_quota(enforced: Path, bundle: FQID) -> None:
    assert run("quotas", "count") == "1 owners had another use\n"
    assert run_json("quotas", "list") == []
    made = run_json("quotas", "set", DEPOSITOR.upper(), "--bytes", "2kB", "--files", "none")
    assert made == {"kind": "user", "name": DEPOSITOR, "bytes": 2000, "files": "none"}
    row = {
        "kind": "user",
        "name": DEPOSITOR,
        "bytes_quota": 2000,
        "bytes_used": 7,
        "bytes_left": 1993,
        "files_quota": None,
        "files_used": 1,
        "files_left": None,
    }
    assert run_json("quotas", "list") == [row]
    assert run_json("usage")["quotas"] == [row]
    assert run("quotas", "remove", DEPOSITOR) == f"The quota of user {DEPOSITOR} is removed.\n"
    assert run_json("quotas", "list") == []
    assert run_json("quotas", "remove", DEPOSITOR) == {"removed": False}


def test_each_change_is_in_the_audit_log(enforced: Path) -> None:
    run("quotas", "set", DEPOSITOR, "--files", "9")
    run("quotas", "set", DEPOSITOR, "--bytes", "1TiB")
    run("quotas", "remove", DEPOSITOR)
    with closing(opened(enforced).catalog) as catalog:
        changes = list_changes(
            catalog, AuditFilter(target=f"user/{DEPOSITOR}"), before_id=None, limit=9
        )
    first, second = (
        '{"quota": {"bytes": "default", "files": 9}}',
        f'{{"quota": {{"bytes": {2**40}, "files": "default"}}}}',
    )
    assert [(one.what, one.before, one.after) for one in changes] == [
        ("remove_quota", second, None),
        ("set_quota", first, second),
        ("set_quota", None, first),
    ]


def test_usage_shows_the_quota_of_a_group_and_its_users(
    enforced: Path, bundle: FQID, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(enforced).catalog) as catalog:
        by = AuditContext("test", "test")
        create_account(catalog, NewAccount(AccountKey("group", "lab")), by)
        user = NewAccount(AccountKey("user", DEPOSITOR), groups=("lab",))
        create_account(catalog, user, by)
    run("quotas", "count")
    run("quotas", "set", "--group", "lab", "--bytes", "5")
    monkeypatch.setenv("STORE_QUOTA_FILES", "3")
    found = run_json("usage", "--group", "lab")["quotas"]
    assert [(one["kind"], one["bytes_left"], one["files_left"]) for one in found] == [
        ("group", 0, None),
        ("user", None, 2),
    ]
    assert run("usage").count("Quotas") == 0
    assert "lab\t5\t7\t0" in run("usage")


@pytest.mark.parametrize("amount", ["", "5 cows", "-1", "0", "1.5GB", "9999999PB"])
def test_refuses_what_is_no_amount(enforced: Path, amount: str) -> None:
    refused = typed("quotas", "set", DEPOSITOR, "--bytes", amount)
    assert refused.exit_code == 2
    assert "such as 500GB or 2TiB" in refused.output
    assert run_json("quotas", "list") == []


def test_refuses_a_group_that_does_not_exist(enforced: Path) -> None:
    assert typed("quotas", "set", "--group", "none", "--bytes", "5").exit_code == 1
    assert run_json("quotas", "list") == []


def test_says_that_quotas_are_not_enforced(home: Path) -> None:
    said = run("quotas", "set", DEPOSITOR, "--bytes", "5")
    assert "set STORE_QUOTAS=true" in said
    assert "set STORE_QUOTAS=true" in run("quotas", "list")
    assert run_json("usage")["quotas"] == []
