"""Backups in folders and buckets: names, verification, retention, and trial restores."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from pipelines.recovery.backups import make_backup_name, remove_old_backups
from storage.backup_targets import BucketTarget, FolderTarget
from storage.catalog import areas, store_state
from storage.catalog.areas import Area
from storage.errors import AlreadyExists, NotFoundError
from storage.protocols import BlobStore
from tests.builders import new_uuid
from tests.ops.commands import opened, run, run_json, typed
from tests.storage.blobs import backend_gcs, backend_s3

pytestmark = pytest.mark.spec("OPS-42")


@pytest.fixture
def used(home: Path) -> Path:
    stores = opened(home)
    with stores.catalog.write() as tx:
        areas.insert_area(tx, Area(new_uuid(), "me", "UNLOCKED"))
    stores.catalog.close()
    return home


def read_last_backup(home: Path) -> str | None:
    stores = opened(home)
    with stores.catalog.read() as tx:
        found = store_state.read_value(tx, store_state.LAST_BACKUP_KEY)
    stores.catalog.close()
    return found


def test_keeps_the_latest_backups_of_a_folder(used: Path, tmp_path: Path) -> None:
    folder = tmp_path / "nightly"
    folder.mkdir()
    (folder / "store-notes.backup").write_text("mine")
    url = f"file://{folder}"
    names = [run_json("backup", url)["name"] for _ in range(3)]
    assert names == sorted(names)
    last = run_json("backup", url, "--keep", "2")
    assert last["removed"] == names[:2]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["store-notes.backup", names[2], last["name"]]
    )
    assert (folder / last["name"]).stat().st_mode & 0o777 == 0o600
    assert read_last_backup(used) is not None


def test_warns_of_a_backup_beside_the_catalog(
    used: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    inside, outside = used / "backups", tmp_path_factory.mktemp("elsewhere")
    inside.mkdir()
    for target in (f"file://{inside}", str(inside / "one.backup")):
        assert "beside the catalog: keep a copy elsewhere" in run_json("backup", target)["warning"]
    assert "keep a copy elsewhere" in run("backup", str(inside / "two.backup"))
    assert "warning" not in run_json("backup", f"file://{outside}")


def find_bucket_name(bucket: BlobStore) -> str:
    return urlsplit(bucket.direct_url("x")).netloc


def test_backs_up_to_a_bucket_and_restores_the_latest(used: Path, tmp_path: Path) -> None:
    with backend_s3.simulated(tmp_path) as backend:
        url = f"s3://{find_bucket_name(backend.store)}?endpoint={backend_s3.lasting_s3()}"
        first = run_json("backup", url)["name"]
        second = run_json("backup", url, "--keep", "1")
        assert second["removed"] == [first]
        verified = run_json("restore", url, "--verify")
        assert verified["name"] == second["name"]
        counts = {one["table"]: one for one in verified["restored"]}
        assert counts["areas"] == {"table": "areas", "rows_in_the_file": 1, "added": 1}
        assert "areas\t1\t0" in run("restore", url)


@pytest.mark.parametrize("words", [("s3://bucket",), ("gs://bucket",), ("ftp://host/x",)])
def test_names_a_target_that_cannot_be_used(
    used: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STORE_REPLICA_AWS", "s3://bucket")
    monkeypatch.setenv("STORE_REPLICA_GCP", "gs://bucket?endpoint=http://127.0.0.1:9")
    result = typed("backup", *words)
    assert result.exit_code == 1
    assert words[0] in result.output
    assert read_last_backup(used) is None


@pytest.mark.parametrize("below", ["", "/backups", "/../aws"])
def test_rejects_a_folder_of_the_store(used: Path, below: str) -> None:
    result = typed("backup", f"file://{used}/replicas/aws{below}")
    assert result.exit_code == 1
    assert "is a bucket of the store" in result.output
    assert read_last_backup(used) is None


def test_rejects_retention_of_a_single_file(used: Path, tmp_path: Path) -> None:
    assert typed("backup", str(tmp_path / "one.backup"), "--keep", "3").exit_code == 2
    assert typed("backup", f"file://{tmp_path}", "--keep", "0").exit_code == 2
    assert not list(tmp_path.glob("*.backup"))


def test_trial_restore_changes_nothing_of_the_store(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "night.backup"
    run("backup", str(file))
    stores = opened(used)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("DELETE FROM areas")
    before = run("fingerprint")
    assert "areas\t1\t1" in run("restore", "--verify", str(file))
    assert run("fingerprint") == before
    with stores.catalog.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM areas").scalar_one() == 0
    stores.catalog.close()


def test_trial_restore_needs_no_catalog(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "night.backup"
    run("backup", str(file))
    for path in used.glob("catalog.sqlite*"):
        path.unlink()
    assert "is complete and can be restored" in run("restore", "--verify", str(file))
    assert not list(used.glob("catalog.sqlite*"))


@pytest.mark.parametrize("place", [40, -40])
def test_trial_restore_finds_damage(used: Path, tmp_path: Path, place: int) -> None:
    file = tmp_path / "night.backup"
    run("backup", str(file))
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    result = typed("restore", "--verify", str(file))
    assert result.exit_code == 1
    assert "damaged" in result.output


def test_names_missing_backup(used: Path, tmp_path: Path) -> None:
    for source in (str(tmp_path / "none"), f"file://{tmp_path}", f"file://{tmp_path}/nowhere"):
        result = typed("restore", source)
        assert result.exit_code == 1
        assert "There is no backup" in result.output


# Targets


@contextmanager
def open_bucket_target(kind: str, folder: Path) -> Iterator[BucketTarget]:
    simulated = {"s3": backend_s3.simulated, "gcs": backend_gcs.simulated}[kind]
    with simulated(folder) as backend:
        yield BucketTarget(backend.store, part_bytes=backend_s3.MIN_PART)


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_buckets_store_backups_of_many_parts(tmp_path: Path, kind: str) -> None:
    draft, data = tmp_path / "draft", Random(1).randbytes(backend_s3.MIN_PART + 7)
    draft.write_bytes(data)
    names = [make_backup_name(day * 86_400_000_000) for day in range(3)]
    with open_bucket_target(kind, tmp_path) as target:
        target.store(draft, names[0])
        draft.write_bytes(b"small")
        for name in names[1:]:
            target.store(draft, name)
        with pytest.raises(AlreadyExists):
            target.store(draft, names[0])
        with target.open(names[0]) as stored:
            assert stored.read() == data
        assert target.list_names() == names
        assert remove_old_backups(target, keep=2) == names[:1]
        with pytest.raises(NotFoundError), target.open(names[0]):
            pass


def test_folder_never_replaces_a_backup(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.write_bytes(b"one")
    target = FolderTarget(tmp_path)
    target.store(draft, "night.backup")
    with pytest.raises(AlreadyExists):
        target.store(draft, "night.backup")
    assert json.dumps(target.list_names()) == "[]"
