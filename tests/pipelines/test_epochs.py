"""Epochs detect a catalog older than its buckets; reconcile repairs it."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from config import Settings
from pipelines import bundles, collections, files, purges, records
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.recovery import epochs, rebuild, reconcile
from storage import keys
from storage.catalog import Catalog, events, jobs, store_state, versions
from storage.connect import connect
from storage.errors import ConflictError, DamagedObjectError, Invalid, NotFoundError, Unavailable
from storage.model import FQID, REPLICAS, CollectionLink, Replica
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.catalogs import Spares
from tests.pipelines.purge_runs import finish

pytestmark = pytest.mark.spec("OPS-13")

AUTHOR = "writer@example.org"


def write(stores: Stores, *entries: FQID, fqid: FQID | None = None) -> FQID:
    fqid = fqid or FQID(new_uuid(), version())
    named = [NewEntry(f"{place}.txt", file, False) for place, file in enumerate(entries)]
    bundles.put(stores, BundleDraft(fqid, "aws", 1, named), AUTHOR)
    return fqid


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Where another catalog lies."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    return path


def told(stores: Stores) -> str | None:
    with stores.catalog.read() as tx:
        return store_state.find_read_only_reason(tx)


def test_every_start_begins_an_epoch(stores: Stores) -> None:
    assert epochs.begin_epoch(stores) is None
    first = epochs.list_marks(stores, "aws")
    assert len(first) == 1
    assert epochs.begin_epoch(stores) is None
    assert epochs.list_marks(stores, "aws") == epochs.list_marks(stores, "gcp")
    assert epochs.list_marks(stores, "aws")[0] > first[0]


def test_crash_between_marks_is_no_disagreement(stores: Stores) -> None:
    epochs.begin_epoch(stores)
    gcp = stores.replicas["gcp"]

    class Dead:
        def __getattr__(self, verb: str) -> object:
            if verb == "put":
                raise KeyboardInterrupt
            return getattr(gcp, verb)

    with pytest.raises(KeyboardInterrupt):
        epochs.advance_epoch(replace(stores, replicas={**stores.replicas, "gcp": Dead()}))  # type: ignore[dict-item]
    assert epochs.list_marks(stores, "aws") != epochs.list_marks(stores, "gcp")
    assert epochs.begin_epoch(stores) is None
    assert epochs.list_marks(stores, "aws")[-1] == epochs.list_marks(stores, "gcp")[-1]


def test_an_emptied_bucket_and_a_lost_catalog_are_found_out(
    stores: Stores, settings: Settings, elsewhere: Path, spares: Spares
) -> None:
    make_file(stores, b"x")
    with spares.lend("sqlite", elsewhere) as url:
        fresh = replace(stores, catalog=Catalog(url))
        assert "is empty" in (epochs.check_epoch(fresh) or "")
        epochs.begin_epoch(stores)
        assert "another epoch" in (epochs.check_epoch(fresh) or "")
        fresh.catalog.close()
    for name in epochs.list_marks(stores, "gcp"):
        stores.replicas["gcp"].delete(keys.epoch_key(name))
    assert "no mark" in (epochs.check_epoch(stores) or "")


@pytest.fixture
def home(settings: Settings, tmp_path: Path, spares: Spares) -> Settings:
    """Settings of a store whose catalog is one file."""
    with spares.lend("sqlite", tmp_path) as url:
        return replace(settings, catalog_url=url)


def opened(settings: Settings) -> Stores:
    return connect(settings, notices=MemoryPubSub())


def copied(settings: Settings, to: Path) -> None:
    """The catalog as an operator copies it, while nothing runs."""
    catalog = Catalog(settings.catalog_url)
    with catalog._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    # One that is closed by the garbage collector takes the files of a later one along.
    catalog.close()
    shutil.copy(settings.catalog_url.removeprefix("sqlite:///"), to)


def restored(settings: Settings, copy: Path) -> None:
    path = Path(settings.catalog_url.removeprefix("sqlite:///"))
    for name in (f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    shutil.copy(copy, path)


def test_a_catalog_that_was_copied_back_accepts_no_other_content(
    home: Settings, tmp_path: Path
) -> None:
    before = opened(home)
    epochs.begin_epoch(before)
    early = make_file(before, b"early", everywhere=True)
    first = write(before, early)
    before.catalog.close()
    copied(home, tmp_path / "backup")

    lost = opened(home)
    epochs.begin_epoch(lost)  # Every start does.
    late = make_file(lost, b"late", everywhere=True)
    acknowledged, buried = write(lost, late, early), write(lost, early)
    bundles.delete(lost, "aws", *buried, reason="wrong", author=AUTHOR)
    stone = keys.tombstone_key("bundle", *buried)
    with lost.catalog.read() as tx:
        found = versions.find_tombstone(tx, "bundle", *buried)
    assert found is not None
    lost.replicas["aws"].put(stone, records.encode_marker_record(found))
    lost.catalog.close()

    restored(home, tmp_path / "backup")
    again = opened(home)
    assert epochs.begin_epoch(again) is not None
    assert "reconcile" in (told(again) or "")
    done = {(one.kind, one.replica): one for one in reconcile.reconcile_catalog(again)}
    assert done["file", "aws"].imported == 1
    assert done["bundle", "aws"].imported == 2
    assert all(one.refused == 0 for one in done.values())
    assert told(again) is None
    assert bundles.find(again, "aws", *acknowledged).file_count == 2
    assert bundles.find(again, "aws", *first).fqid == first
    assert files.locate(again, "gcp", *late).state == "here"
    with pytest.raises(NotFoundError):
        bundles.find(again, "aws", *buried)
    with pytest.raises(ConflictError):
        write(again, early, fqid=acknowledged)
    with pytest.raises(ConflictError):
        write(again, early, late, fqid=buried)
    assert all(one.imported == 0 for one in reconcile.reconcile_catalog(again))
    again.catalog.close()


def test_reconcile_sends_no_notifications_twice(
    stores: Stores, drain: Callable[[], int], elsewhere: Path, spares: Spares
) -> None:
    fqid = write(stores, make_file(stores, b"x"))
    drain()
    with spares.lend("sqlite", elsewhere) as url:
        fresh = replace(stores, catalog=Catalog(url))
        reconcile.reconcile_catalog(fresh)
        with fresh.catalog.read() as tx:
            backlog = jobs.count_open(tx)
            for replica in REPLICAS:
                assert events.find(tx, events.make_event_id("CREATE", replica, fqid)) is not None
        assert {step for step, _ in backlog} == {"index"}
        fresh.catalog.close()


def test_damaged_record_is_not_added(stores: Stores, elsewhere: Path, spares: Spares) -> None:
    fqid = make_file(stores, b"x")
    key = keys.record_key("file", fqid)
    data = b"".join(stores.replicas["aws"].read(key))
    stores.replicas["aws"].delete(key)
    stores.replicas["aws"].put(key, data.replace(b'"size":1', b'"size":2'))
    with spares.lend("sqlite", elsewhere) as url:
        fresh = replace(stores, catalog=Catalog(url))
        done = {(one.kind, one.replica): one for one in reconcile.reconcile_catalog(fresh)}
        assert (done["file", "aws"].imported, done["file", "aws"].refused) == (0, 1)
        fresh.catalog.close()


@pytest.mark.parametrize(
    "member", [{"of": "bundle"}, {"of": None}, {"reason": 5}, {"author": None}, {"event_id": []}]
)
def test_refuses_invalid_markers_alone(
    member: dict[str, object], stores: Stores, elsewhere: Path, spares: Spares
) -> None:
    good = make_file(stores, b"x")
    marker: dict[str, Any] = {
        "format": records.FORMAT,
        "kind": "purge",
        "uuid": good.uuid,
        "version": good.version,
        "created": good.version,
        "event_id": "e",
        "origin": "aws",
        "author": AUTHOR,
        "of": "file",
        "reason": "r",
        **member,
    }
    marker["digest"] = records.purge_digest(marker["of"], *good, marker["reason"])
    stores.replicas["aws"].put(keys.purge_marker_key("file", *good), orjson.dumps(marker))
    with spares.lend("sqlite", elsewhere) as url:
        fresh = replace(stores, catalog=Catalog(url))
        done = {(one.kind, one.replica): one for one in reconcile.reconcile_catalog(fresh)}
        assert (done["purged", "aws"].imported, done["purged", "aws"].refused) == (0, 1)
        assert done["file", "aws"].imported == 1
        fresh.catalog.close()


@pytest.mark.spec("BUN-60")
def test_purged_versions_stay_purged_in_restored_catalog(
    stores: Stores, drain: Callable[[], int], elsewhere: Path, spares: Spares
) -> None:
    own = make_file(stores, b"own")
    fqid = write(stores, own)
    drain()
    bundles.delete(stores, "aws", *fqid, reason="r", author=AUTHOR)
    purges.order_purge(stores, *fqid, reason="r", author=AUTHOR)
    finish(stores, drain)
    with spares.lend("sqlite", elsewhere) as url:
        fresh = replace(stores, catalog=Catalog(url))
        reconcile.reconcile_catalog(fresh)
        other = make_file(fresh, b"other")
        with pytest.raises(ConflictError):
            write(fresh, other, fqid=fqid)
        with pytest.raises(Invalid):
            write(fresh, own)
        fresh.catalog.close()


class FallsSilent:
    """A bucket that answers no such call any more, of objects whose keys begin so."""

    def __init__(self, bucket: object, verb: str, prefix: str) -> None:
        self._bucket, self._verb, self._prefix = bucket, verb, prefix

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._bucket, verb)

        def ask(key: str, *args: Any, **more: Any) -> Any:
            if verb == self._verb and key.startswith(self._prefix):
                raise Unavailable("no route to host")
            return real(key, *args, **more)

        return ask if verb in ("list", "read", "head", "put") else real


def silent(stores: Stores, replica: Replica, verb: str, prefix: str) -> Stores:
    bucket: Any = FallsSilent(stores.replicas[replica], verb, prefix)
    return replace(stores, replicas={**stores.replicas, replica: bucket})


CALLS = [
    ("list", "epochs/"),
    ("list", "tombstones/"),
    ("list", "files/"),
    ("list", "journals/"),
    ("read", "files/"),
    ("read", "bundles/"),
    ("read", "collections/"),
    ("head", "files/"),
    ("head", "blobs/"),
    ("head", "bundles/"),
    ("head", "collections/"),
    ("put", "epochs/"),
]
# What one bucket's marker told is not read from the other one.
AWAY = [(name, *call) for name in REPLICAS for call in CALLS]
AWAY += [("aws", "read", "purged/"), ("aws", "read", "tombstones/")]


@pytest.mark.parametrize(("replica", "verb", "prefix"), AWAY)
def test_a_bucket_that_does_not_answer_is_named_and_the_store_stays_in_doubt(
    stores: Stores,
    drain: Callable[[], int],
    elsewhere: Path,
    spares: Spares,
    replica: Replica,
    verb: str,
    prefix: str,
) -> None:
    of_everything(stores, drain)
    epochs.begin_epoch(stores)
    with spares.lend("sqlite", elsewhere) as url:
        fresh = replace(stores, catalog=Catalog(url))
        assert epochs.check_epoch(fresh) is not None
        with pytest.raises(Unavailable, match=f"Bucket {replica} does not answer: no route"):
            reconcile.reconcile_catalog(silent(fresh, replica, verb, prefix))
        assert told(fresh) is not None
        assert epochs.check_epoch(fresh) is not None
        assert all(one.refused == 0 for one in reconcile.reconcile_catalog(fresh))
        assert told(fresh) is None
        fresh.catalog.close()


def of_everything(stores: Stores, drain: Callable[[], int]) -> None:
    """A file, a bundle and a collection, a tombstone and a purge."""
    kept, buried, purged = (
        write(stores, make_file(stores, text, everywhere=True)) for text in (b"a", b"b", b"c")
    )
    fresh = collections.CollectionDraft(
        FQID(new_uuid(), version()), "aws", "n", "d", {}, (CollectionLink("bundle", kept),)
    )
    collections.put(stores, fresh, AUTHOR)
    for one in (buried, purged):
        bundles.delete(stores, "aws", *one, reason="r", author=AUTHOR)
    purges.order_purge(stores, *purged, reason="r", author=AUTHOR)
    finish(stores, drain)
    drain()


NINES = "9" * 20


@pytest.mark.parametrize("number", [NINES, "0" * 20, f"{10**15 + 1:020d}", f"{10**18:020d}"])
@pytest.mark.parametrize("replica", REPLICAS)
def test_refuses_impossible_marks_by_name(
    stores: Stores, elsewhere: Path, spares: Spares, replica: Replica, number: str
) -> None:
    epochs.begin_epoch(stores)
    mark = keys.epoch_key(f"{number}-{new_uuid()}")
    stores.replicas[replica].put(mark, b"{}")
    assert mark in (epochs.check_epoch(stores) or "")
    assert mark in (told(stores) or "")
    with pytest.raises(DamagedObjectError, match=mark):
        reconcile.reconcile_catalog(stores)
    with pytest.raises(DamagedObjectError, match=mark):
        epochs.force_new_epoch(stores)
    assert mark in (told(stores) or "")
    with spares.lend("sqlite", elsewhere) as url:
        fresh = replace(stores, catalog=Catalog(url))
        with pytest.raises(DamagedObjectError, match=mark):
            next(rebuild.rebuild_catalog(fresh, replica, token=new_uuid()))
        fresh.catalog.close()
    stores.replicas[replica].delete(mark)
    assert epochs.begin_epoch(stores) is None
    assert told(stores) is None
    assert all(int(name.partition("-")[0]) < 10 for name in epochs.list_marks(stores, replica))


def test_highest_valid_mark_leaves_room_for_later_ones(stores: Stores) -> None:
    stores.replicas["aws"].put(keys.epoch_key(f"{epochs.MAX_EPOCH:020d}-{new_uuid()}"), b"{}")
    epochs.force_new_epoch(stores)
    assert [epochs.begin_epoch(stores) for _ in range(3)] == [None] * 3
    assert told(stores) is None
