"""The commands `rebuild`, `backup`, `restore` and `fingerprint`."""

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.webhooks import Receiver, running_receiver
from ops.local_store import running_store
from ops.procfile import ROOT
from storage import keys
from storage.catalog import areas, login
from storage.catalog.areas import Area
from storage.catalog.login import SessionRow
from tests.builders import make_file, new_uuid
from tests.live.api import ApiClient
from tests.live.deposits import Depositor, SampleBundle, make_metadata_file
from tests.ops.commands import opened, run, typed
from tests.pipelines.lost_catalog import write
from tests.waiting import until


def lose_catalog(home: Path) -> None:
    for path in home.glob("catalog.sqlite*"):
        path.unlink()


@pytest.fixture
def used(home: Path) -> Path:
    stores = opened(home)
    write(stores, make_file(stores, b"x", everywhere=True))
    with stores.catalog.write() as tx:
        assert areas.insert_area(tx, Area(new_uuid(), "me", "UNLOCKED"))
    stores.catalog.close()
    return home


@pytest.mark.spec("OPS-15")
def test_steps_of_manual_recover_lost_catalog(used: Path, tmp_path: Path) -> None:
    before = run("fingerprint", "--replica", "aws").splitlines()
    assert "areas\t1" in run("backup", str(tmp_path / "night.backup"))
    lose_catalog(used)
    assert "read-only" in run("migrate")
    shown = run("rebuild", "catalog", "--from", "aws")
    assert "bundle\t0\t1\t0" in shown
    assert "read-only until" in shown
    assert "areas\t1\t1" in run("restore", str(tmp_path / "night.backup"))
    assert "areas\t1\t0" in run("restore", str(tmp_path / "night.backup"))
    assert "on: " in run("read-only", "show")
    run("reconcile")
    assert run("read-only", "show") == "off\n"
    after = run("fingerprint", "--replica", "aws").splitlines()
    assert [line for line in after if "events" not in line] == [
        line for line in before if "events" not in line
    ]


@pytest.mark.spec("OPS-15")
def test_a_catalog_that_is_not_empty_is_not_rebuilt(used: Path) -> None:
    result = typed("rebuild", "catalog", "--from", "gcp")
    assert result.exit_code == 1
    assert "not empty" in result.output
    assert "run it again" not in result.output


@pytest.mark.spec("OPS-15")
def test_lists_refused_records_with_reason(used: Path) -> None:
    stores = opened(used)
    stores.replicas["aws"].put("files/README.txt", b"hello")
    stores.replicas["aws"].put(keys.tombstone_key("bundle", new_uuid()), b"hello")
    stores.catalog.close()
    lose_catalog(used)
    run("migrate")
    shown = run("rebuild", "catalog", "--from", "aws")
    assert "files/README.txt\tIts name is not one that the store gives." in shown
    assert "is no record" in shown


@pytest.mark.spec("OPS-26")
def test_restore_reports_users_and_rights_that_came_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("memory_kib", "passes", "lanes"):
        monkeypatch.setenv(f"STORE_PASSWORD_{name.upper()}", "64" if "kib" in name else "1")
    typed("users", "add", "ada@example.org", answer="correct horse battery\n")
    run("backup", str(home / "b"))
    again = run("restore", str(home / "b"))
    assert "may have access again" not in again
    assert "All logins have ended" in again
    run("users", "remove", "ada@example.org")
    log_in(home)
    shown = run("restore", str(home / "b"))
    assert "passwords (1)" in shown
    assert "given another password since then may have access again" in shown
    assert "All logins have ended" in shown
    assert not logged_in(home)


@pytest.mark.spec("OPS-26")
def test_refused_backup_ends_no_login(home: Path) -> None:
    run("backup", str(home / "b"))
    log_in(home)
    (home / "b").write_bytes((home / "b").read_bytes()[:-20])
    assert typed("restore", str(home / "b")).exit_code == 1
    assert logged_in(home)


def log_in(home: Path) -> None:
    stores = opened(home)
    with stores.catalog.write() as tx:
        login.insert_session(tx, SessionRow("a", "ada@example.org", "local", 1, 1, 2**60, 2**60))
    stores.catalog.close()


def logged_in(home: Path) -> bool:
    stores = opened(home)
    with stores.catalog.read() as tx:
        found = login.find_session(tx, "a")
    stores.catalog.close()
    return found is not None


@pytest.mark.spec("OPS-16")
def test_a_backup_never_replaces_a_file(home: Path) -> None:
    path = home / "kept.backup"
    path.write_text("mine")
    result = typed("backup", str(path))
    assert result.exit_code == 1
    assert "never replaces" in result.output
    assert path.read_text() == "mine"


@pytest.mark.spec("OPS-16")
def test_a_backup_is_readable_by_its_owner_only_and_leaves_no_draft(home: Path) -> None:
    run("backup", str(home / "b"))
    assert (home / "b").stat().st_mode & 0o777 == 0o600
    assert list(home.glob(".b.*")) == []


@pytest.mark.spec("OPS-16")
@pytest.mark.parametrize("data", [b"hello", gzip.compress(b"{}\n")], ids=["text", "empty"])
def test_rejects_file_that_is_no_backup(data: bytes, home: Path) -> None:
    path = home / "wrong"
    path.write_bytes(data)
    result = typed("restore", str(path))
    assert result.exit_code == 1
    assert "no backup" in result.output


@pytest.mark.spec("OPS-16")
def test_a_backup_of_another_store_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("backup", str(home / "b"))
    monkeypatch.setenv("STORE_SECRET_KEY", "another secret than the home's")
    result = typed("restore", str(home / "b"))
    assert result.exit_code == 1
    assert "STORE_SECRET_KEY" in result.output


@pytest.mark.spec("OPS-15")
def test_catalog_without_tables_says_to_migrate(home: Path) -> None:
    run("backup", str(home / "b"))
    lose_catalog(home)
    result = typed("restore", str(home / "b"))
    assert result.exit_code == 1
    assert "migrate" in result.output


def command(home: Path, *words: str) -> str:
    """As typed into a shell."""
    done = subprocess.run(
        [sys.executable, "-m", "ops", *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "STORE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def subscribe(service: ApiClient, url: str, key: str) -> None:
    everything: dict[str, Any] = {"es_query": {"query": {"match_all": {}}}}
    for replica, path, query in (("aws", "/j", {}), ("gcp", "/e", everything)):
        told = {"callback_url": url + path, "hmac_secret_key": key, **query}
        service.call("PUT", "/subscriptions", params={"replica": replica}, json=told)


@contextmanager
def playing(home: Path) -> Iterator[ApiClient]:
    """A store of processes on this home, and an administrator who talks to it."""
    with running_store(home, {}) as stage:
        service = ApiClient.open(stage.api, stage.token)
        with service.http:
            yield service


def deposit(service: ApiClient, number: int) -> str:
    depositor = Depositor(service, new_uuid())
    depositor.create_area()
    metadata = make_metadata_file("project.json", {"number": number})
    return depositor.deposit(SampleBundle(f"sample-{number}", (metadata,))).fqid


def searchable(service: ApiClient, replica: str) -> set[str]:
    query: dict[str, Any] = {"es_query": {"query": {"match_all": {}}}}
    answer = service.call("POST", "/search", params={"replica": replica}, json=query).json()
    return {hit["bundle_fqid"] for hit in answer["results"]}


def settled(service: ApiClient, inbox: Receiver, fqid: str) -> None:
    until(lambda: fqid in searchable(service, "gcp") and fqid in searchable(service, "aws"))
    until(lambda: {fqid} <= inbox.fqids("/j") & inbox.fqids("/e"))


STEPS = (("migrate",), ("rebuild", "catalog", "--from", "gcp"), ("restore", "FILE"), ("reconcile",))


@pytest.mark.spec("OPS-15")
@pytest.mark.long
def test_a_store_of_processes_loses_its_catalog_and_works_on(tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "night.backup"
    home.mkdir()
    with running_receiver("a key of the subscriber's") as inbox:
        with playing(home) as service:
            subscribe(service, inbox.url, inbox.key)
            first = deposit(service, 0)
            settled(service, inbox, first)
            command(home, "rebuild", "index")
            assert searchable(service, "aws") == {first}
            command(home, "backup", str(kept))
            second = deposit(service, 1)
            settled(service, inbox, second)
        lose_catalog(home)
        for words in STEPS:
            command(home, *(str(kept) if word == "FILE" else word for word in words))
        with playing(home) as service:
            third = deposit(service, 2)
            settled(service, inbox, third)
            until(lambda: searchable(service, "gcp") == {first, second, third})
            command(home, "rebuild", "index")
            assert searchable(service, "gcp") == {first, second, third}
    assert not inbox.invalid()
    told = sorted((notice.path, notice.fqid) for notice in inbox.accepted)
    assert told == sorted((path, fqid) for path in ("/j", "/e") for fqid in (first, second, third))
