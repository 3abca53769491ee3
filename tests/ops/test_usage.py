"""The command `usage`."""

from pathlib import Path

import pytest

from auth.accounts import AuditContext, NewAccount, create_account
from storage.catalog.accounts import AccountKey
from storage.model import FQID
from tests.ops.commands import opened, run, run_json, typed

pytestmark = pytest.mark.spec("OPS-41")


def test_prints_owners_and_total(home: Path, bundle: FQID) -> None:
    lines = run("usage").splitlines()
    assert lines[0] == "owner\tfiles\tbytes\tbundles\tareas\tarea files\tarea bytes"
    assert lines[1:3] == [
        "depositor@example.org\t1\t7\t0\t0\t0\t0",
        "writer@example.org\t0\t0\t1\t0\t0\t0",
    ]
    assert lines[-1] == "total: 1 files, 7 bytes, 1 bundles; 0 files, 0 bytes in 0 areas"


def test_tells_what_a_replica_lacks_as_json(home: Path, bundle: FQID) -> None:
    found = run_json("usage")
    assert found["total"]["bytes"] == 7
    (lacking,) = found["lacking"]
    assert lacking == {
        "owner": "writer@example.org",
        "replica": "gcp",
        "files": 0,
        "bytes": 0,
        "bundles": 1,
    }


def test_shows_only_the_users_of_a_group(home: Path, bundle: FQID) -> None:
    by = AuditContext("test", "test")
    catalog = opened(home).catalog
    create_account(catalog, NewAccount(AccountKey("group", "lab")), by)
    assert run_json("usage", "--group", "lab")["usage"] == []
    create_account(
        catalog, NewAccount(AccountKey("user", "writer@example.org"), groups=("lab",)), by
    )
    (row,) = run_json("usage", "--group", "lab")["usage"]
    assert row["owner"] == "writer@example.org"
    assert typed("usage", "--group", "none").exit_code == 1
