"""The commands `purge`, `reconcile`, `verify` and `status` on a store's home."""

import shutil
from pathlib import Path

import pytest

from config import Settings
from pipelines import bundles, collections
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.recovery import epochs
from storage import keys
from storage.catalog import Catalog, store_state
from storage.model import FQID, Replica
from tests.builders import make_file, new_uuid, version
from tests.ops.commands import opened, run, typed

AUTHOR = "writer@example.org"


def there(home: Path, fqid: FQID) -> bool:
    stores = opened(home)
    listing = bundles.list_versions(stores, "aws", "", None, 9)
    stores.catalog.close()
    return fqid in listing


# Purge


@pytest.mark.spec("OPS-12")
def test_dry_run_lists_and_changes_nothing(home: Path, bundle: FQID) -> None:
    shown = run("purge", str(bundle), "--reason", "consent withdrawn", "--dry-run")
    assert f"bundle {bundle}" in shown
    assert "1 files that nothing else names; 0 others stay" in shown
    assert there(home, bundle)
    assert "Purges" not in run("status")


@pytest.mark.spec("OPS-12")
def test_rejects_purge_of_undeleted_bundle(home: Path, bundle: FQID) -> None:
    refused = typed("purge", str(bundle), "--reason", "r", "--yes")
    assert refused.exit_code == 1
    assert "not under a tombstone" in refused.output
    assert there(home, bundle)


@pytest.mark.spec("OPS-12")
@pytest.mark.parametrize("option", ["--reason", "--author"])
@pytest.mark.parametrize("text", ["", " ", "x\udcff"])
def test_rejects_purge_without_a_reason(home: Path, bundle: FQID, option: str, text: str) -> None:
    words = ("purge", str(bundle), "--reason", "r", "--force", "--yes", option, text)
    refused = typed(*words)
    assert (refused.exit_code, f"'{option}': must " in refused.output) == (2, True)
    assert there(home, bundle)


@pytest.mark.spec("OPS-12")
def test_purge_asks_for_confirmation(home: Path, bundle: FQID) -> None:
    said_no = typed("purge", str(bundle), "--reason", "r", "--force", answer="n\n")
    assert said_no.exit_code == 1
    assert there(home, bundle)


@pytest.mark.spec("OPS-12")
def test_a_purge_is_ordered_and_status_shows_how_far_it_is(home: Path, bundle: FQID) -> None:
    shown = run("purge", str(bundle), "--reason", "consent withdrawn", "--force", "--yes")
    assert "1 purges go on" in shown
    assert not there(home, bundle)
    lines = [line.split("\t") for line in run("status").splitlines()]
    assert ["what", "since", "aws", "gcp", "reason"] in lines
    (line,) = [line for line in lines if line[0] == f"bundle {bundle}"]
    assert line[2:] == ["waiting", "waiting", "consent withdrawn"]
    again = run("purge", str(bundle), "--reason", "consent withdrawn", "--yes")
    assert "1 purges go on" in again


@pytest.mark.spec("OPS-12")
@pytest.mark.parametrize(
    ("name", "told"),
    [("nonsense", "UUID"), (f"{new_uuid()}.yesterday", "ersion")],
    ids=["uuid", "version"],
)
def test_rejects_invalid_name(home: Path, name: str, told: str) -> None:
    refused = typed("purge", name, "--reason", "r")
    assert refused.exit_code == 1
    assert told in refused.output


@pytest.mark.spec("OPS-12")
def test_rejects_purge_of_absent_bundle(home: Path) -> None:
    refused = typed("purge", new_uuid(), "--reason", "r", "--yes", "--force")
    assert refused.exit_code == 1
    assert "There is no bundle" in refused.output


@pytest.mark.spec("OPS-12")
def test_a_collection_is_purged_by_its_uuid(home: Path) -> None:
    stores, uuid = opened(home), new_uuid()
    new = collections.CollectionDraft(FQID(uuid, version()), "aws", "n", "d", {}, ())
    collections.put(stores, new, AUTHOR)
    stores.catalog.close()
    name = f"collection:{uuid}"
    assert f"collection {uuid}.{version()}" in run("purge", name, "--reason", "r", "--dry-run")
    assert "not under a tombstone" in typed("purge", name, "--reason", "r", "--yes").output
    assert "2 purges go on" in run("purge", name, "--reason", "r", "--yes", "--force")
    assert f"collection {uuid}\t" in run("status")
    wrong = typed("purge", f"{name}.{version()}", "--reason", "r")
    assert wrong.exit_code == 2
    assert "collection:UUID" in wrong.output


# Epochs


def doubtful(home: Path) -> None:
    """As if an empty bucket had taken one's place."""
    stores = opened(home)
    for name in epochs.list_marks(stores, "gcp"):
        stores.replicas["gcp"].delete(keys.epoch_key(name))
    stores.catalog.close()


def in_doubt(home: Path) -> str | None:
    catalog = Catalog(Settings(home=home).catalog)
    with catalog.read() as tx:
        found = store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY)
    catalog.close()
    return found


@pytest.mark.spec("OPS-13")
def test_start_in_doubt_is_read_only_until_reconcile(home: Path, bundle: FQID) -> None:
    doubtful(home)
    started = typed("migrate")
    assert started.exit_code == 0
    assert "read-only" in started.output
    assert "ops reconcile" in run("read-only", "show")
    assert "no mark" in run("reconcile", "--dry-run")
    assert in_doubt(home) is not None
    shown = run("reconcile")
    assert "bundle\taws\t1\t0\t0" in shown
    assert in_doubt(home) is None
    assert "of one epoch" in run("reconcile", "--dry-run")
    assert run("read-only", "show") == "off\n"


@pytest.mark.spec("OPS-12")
def test_purges_nothing_in_doubt(home: Path, bundle: FQID) -> None:
    doubtful(home)
    refused = typed("purge", str(bundle), "--reason", "r", "--force", "--yes")
    assert refused.exit_code == 1
    assert "ops reconcile" in refused.output
    assert there(home, bundle)


@pytest.mark.spec("OPS-13", "OPS-26")
def test_reconcile_adds_what_copied_catalog_lacks(home: Path) -> None:
    path = Path(Settings(home=home).catalog.removeprefix("sqlite:///"))
    names = (path.name, f"{path.name}-wal", f"{path.name}-shm")
    (home / "backup").mkdir()
    for name in names:
        if (path.parent / name).exists():
            shutil.copy(path.parent / name, home / "backup" / name)
    run("migrate")
    stores = opened(home)
    file = make_file(stores, b"late", everywhere=True)
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry("a.txt", file, False)]), AUTHOR)
    stores.catalog.close()
    for name in names:
        (path.parent / name).unlink(missing_ok=True)
        if (home / "backup" / name).exists():
            shutil.copy(home / "backup" / name, path.parent / name)
    assert "read-only" in typed("migrate").output
    shown = run("reconcile")
    assert "file\taws\t0\t1\t0" in shown
    assert "bundle\taws\t0\t1\t0" in shown
    assert "All logins have ended" in shown
    assert "Users and rights are as they were" in shown
    assert there(home, fqid)
    assert "All logins" not in run("reconcile")


# Scrub


def damage(home: Path, replica: Replica) -> None:
    """Other bytes in every blob."""
    for path in Path(opened(home).replicas[replica].direct_url("")[7:]).rglob("*"):
        if path.is_file() and path.read_bytes().endswith(b"content"):
            path.write_bytes(path.read_bytes()[:-1] + b"T")


@pytest.mark.spec("OPS-14")
def test_verifies_intact_objects(home: Path, bundle: FQID) -> None:
    shown = run("verify")
    assert "aws\t3\t" in shown
    assert "Damaged" not in shown


@pytest.mark.spec("OPS-14")
def test_reports_damage_and_repairs_from_other_replica(home: Path, bundle: FQID) -> None:
    damage(home, "aws")
    found = typed("verify", "--replica", "aws")
    assert found.exit_code == 1
    assert "its bytes differ from its key\tno" in found.output
    assert run("verify", "--replica", "gcp")
    mended = run("verify", "--repair")
    assert "its bytes differ from its key\tyes" in mended
    assert "others" not in run("verify")


@pytest.mark.spec("OPS-14")
def test_a_sample_of_nothing_reads_nothing(home: Path, bundle: FQID) -> None:
    damage(home, "aws")
    assert "aws\t0\t0\t0" in run("verify", "--sample", "0")
