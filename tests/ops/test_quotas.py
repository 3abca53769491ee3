"""The commands `quotas` and the quotas of `usage`."""

from contextlib import closing
from pathlib import Path

import pytest

from auth.accounts import AuditContext, NewAccount, create_account, list_changes
from pipelines.quotas import LAST_COUNT_KEY
from storage.catalog import store_state
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
    assert run("quotas", "count") == "corrected the counters of 1 owners\n"
    assert run_json("quotas", "list") == []
    made = run_json("quotas", "set", DEPOSITOR.upper(), "--bytes", "2kB", "--files", "none")
    assert made == {"kind": "user", "name": DEPOSITOR, "bytes": 2000, "files": "none"}
    row = {
        "kind": "user",
        "name": DEPOSITOR,
        "bytes_quota": 2000,
        "bytes_used": 7,
        "bytes_left": 1993,
        "files_quota": "none",
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
        f'{{"quota": {{"bytes": {2**40}, "files": 9}}}}',
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


def test_lists_a_quota_without_a_limit(enforced: Path) -> None:
    run("quotas", "set", DEPOSITOR, "--bytes", "none", "--files", "default")
    (row,) = run_json("quotas", "list")
    assert (row["name"], row["bytes_quota"], row["files_quota"]) == (DEPOSITOR, "none", "default")


def test_keeps_what_is_not_given(enforced: Path) -> None:
    run("quotas", "set", DEPOSITOR, "--bytes", "5")
    made = run_json("quotas", "set", DEPOSITOR, "--files", "9")
    assert (made["bytes"], made["files"]) == (5, 9)
    made = run_json("quotas", "set", DEPOSITOR, "--bytes", "default")
    assert (made["bytes"], made["files"]) == ("default", 9)
    assert typed("quotas", "set", DEPOSITOR).exit_code == 2


@pytest.mark.parametrize("kind", ["user", "group"])
@pytest.mark.parametrize("name", ["", " ", "a/b@example.org", "a\nb@example.org"])
@pytest.mark.parametrize("command", [("set", "--bytes", "5"), ("remove",)])
def test_refuses_what_is_no_name(
    enforced: Path, kind: str, name: str, command: tuple[str, ...]
) -> None:
    refused = typed("quotas", *command, *(["--group"] if kind == "group" else []), "--", name)
    assert refused.exit_code == 2
    assert "NAME" in refused.output
    assert run_json("quotas", "list") == []


def test_strips_a_name(enforced: Path) -> None:
    made = run_json("quotas", "set", f" {DEPOSITOR}\n", "--bytes", "5")
    assert made["name"] == DEPOSITOR


def test_refuses_a_group_that_does_not_exist(enforced: Path) -> None:
    assert typed("quotas", "set", "--group", "none", "--bytes", "5").exit_code == 1
    assert run_json("quotas", "list") == []


def test_says_that_quotas_are_not_enforced(home: Path) -> None:
    said = run("quotas", "set", DEPOSITOR, "--bytes", "5")
    assert "set STORE_QUOTAS=true" in said
    assert "set STORE_QUOTAS=true" in run("quotas", "list")
    refused = typed("quotas", "count")
    assert refused.exit_code == 1
    assert "set STORE_QUOTAS=true" in refused.output
    with closing(opened(home).catalog) as catalog, catalog.read() as tx:
        assert store_state.read_value(tx, LAST_COUNT_KEY) is None
    assert run_json("usage")["quotas"] == []
