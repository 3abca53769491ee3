"""A lost catalog is rebuilt identically from either bucket."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from pipelines import bundles, collections, files, purges, records, subscriptions, sweeps
from pipelines.bundles import BundleDraft, BundlePatch, NewEntry
from pipelines.flow import Step
from pipelines.recovery import epochs, reconcile
from pipelines.recovery import rebuild as recovery_rebuild
from pipelines.recovery.bucket_reader import RebuildTally
from pipelines.subscriptions import NewSubscription
from storage import keys
from storage.catalog import events, journals, store_state
from storage.errors import ConflictError, NotFoundError, Unavailable
from storage.keys import JournalKey
from storage.model import CHECKSUM_NAMES, FQID, REPLICAS, Checksums, Job, Replica
from storage.search.grammar.parser import parse_query
from storage.stores import Stores
from tests.builders import local, make_file, new_uuid, version
from tests.catalogs import Spares
from tests.pipelines.bundle_events import Silent, number, tend, walk
from tests.pipelines.lost_catalog import AUTHOR, OWNER, Filled, do_all, fill, lost, parts, write
from tests.pipelines.purge_runs import Died, Fuse, finish, fragile
from workers.actors import STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

pytestmark = pytest.mark.spec("OPS-15")

Drain = Callable[[], int]


def rebuild(stores: Stores, replica: Replica) -> dict[str, RebuildTally]:
    return {
        one.kind: one for one in recovery_rebuild.rebuild_catalog(stores, replica, token=new_uuid())
    }


@pytest.fixture
def filled(stores: Stores, drain: Drain) -> Filled:
    return fill(stores, drain)


@pytest.fixture
def fresh(filled: Filled, stores: Stores, spares: Spares, tmp_path: Path) -> Iterator[Stores]:
    """The filled store, whose catalog was lost."""
    with lost(stores, spares, tmp_path / "lost") as found:
        yield found


@pytest.mark.parametrize("replica", REPLICAS)
def test_rebuilds_catalog_from_either_bucket(
    replica: Replica, stores: Stores, fresh: Stores
) -> None:
    before = parts(stores, replica)
    assert all(part.rows for part in before.values())
    other = next(name for name in REPLICAS if name != replica)
    alone = replace(fresh, replicas={replica: fresh.replicas[replica], other: Away()})  # type: ignore[dict-item]
    done = rebuild(alone, replica)
    assert all(one.refused == 0 for one in done.values()), done
    assert parts(fresh, replica) == before


class Away:
    """A bucket that nobody may ask anything."""

    def __getattr__(self, verb: str) -> object:
        raise Unavailable(f"It is away: {verb}.")


def test_repeated_rebuild_changes_nothing(stores: Stores, fresh: Stores) -> None:
    rebuild(fresh, "aws")
    before = parts(fresh, "aws")
    again = rebuild(fresh, "aws")
    assert {one.imported for name, one in again.items() if name in keys.KINDS} == {0}
    rebuild(fresh, "gcp")
    assert parts(fresh, "aws") == before == parts(stores, "aws")
    assert parts(fresh, "gcp") == parts(stores, "gcp")
    merged = reconcile.reconcile_catalog(fresh)
    assert [one for one in merged if one.imported or one.refused] == []


def test_the_store_works_on(filled: Filled, stores: Stores, fresh: Stores) -> None:
    rebuild(fresh, "aws")
    with fresh.catalog.read() as tx:
        assert store_state.find_read_only_reason(tx) is not None
    reconcile.reconcile_catalog(fresh)
    with fresh.catalog.read() as tx:
        assert store_state.find_read_only_reason(tx) is None
    do_all(fresh)
    _unchanged(filled, stores, fresh)
    _searched(filled, fresh)
    tended = write(fresh, make_file(fresh, b"later", everywhere=True))
    do_all(fresh)
    assert bundles.find(fresh, "gcp", *tended).fqid == tended
    made = bundles.patch_bundle(
        fresh, BundlePatch(filled.seen, "gcp", (), (_first(fresh, filled),)), AUTHOR
    )
    assert bundles.find(fresh, "gcp", *made.fqid).file_count == 1
    tend(fresh)
    assert [one.fqid for one in walk(fresh, "aws")][-1] == tended


def _first(stores: Stores, filled: Filled) -> Any:
    bundle = bundles.find(stores, "aws", *filled.seen)
    return bundles.read_entries(stores, bundle, 0, 1)[0]


def _unchanged(filled: Filled, stores: Stores, fresh: Stores) -> None:
    for replica in REPLICAS:
        for name in (filled.seen, filled.patched):
            bundle = bundles.find(fresh, replica, *name)
            whole = bundles.read_entries(fresh, bundle, 0, 9)
            known = bundles.find(stores, replica, *name)
            assert whole == bundles.read_entries(stores, known, 0, 9)
        for gone in (filled.buried, filled.purged):
            with pytest.raises(NotFoundError):
                bundles.find(fresh, replica, *gone)
            with pytest.raises(ConflictError):
                bundles.put(fresh, _other(fresh, gone), AUTHOR)
        row = collections.find(fresh, replica, *filled.collection, OWNER)
        assert len(collections.read_links(fresh, row)) == 3
    assert [one for one in sweeps.sweep_replicas(fresh) if one.missing] == []


def _other(stores: Stores, fqid: FQID) -> BundleDraft:
    entry = NewEntry("x", make_file(stores, b"other", everywhere=True), False)
    return BundleDraft(fqid, "aws", 1, [entry])


def _searched(filled: Filled, fresh: Stores) -> None:
    page = fresh.search["gcp"].search(parse_query({}), size=10)
    assert {FQID(hit.uuid, hit.version) for hit in page.hits} == {filled.seen, filled.patched}
    bundles.delete(fresh, "aws", *filled.patched, reason="now", author=AUTHOR)
    do_all(fresh)
    # Counts of changes go on beyond those that the index was told by the lost catalog.
    page = fresh.search["gcp"].search(parse_query({}), size=10)
    assert [hit.uuid for hit in page.hits] == [filled.seen.uuid]


def subscribe(stores: Stores, **query: Any) -> None:
    for replica in REPLICAS:
        subscriptions.create_subscription(
            stores,
            NewSubscription("http://127.0.0.1:1/x", replica, **query),
            "me@example.org",
            uuid=new_uuid(),
            seal=lambda plain, _context: plain,
            limit=9,
            allow_private=True,
        )


def told(stores: Stores) -> int:
    with stores.catalog.read() as tx:
        return int(tx.exec_driver_sql("SELECT count(*) FROM deliveries").scalar_one())


@pytest.mark.parametrize("replaced", [False, True])
def test_notifies_of_new_events_only(replaced: bool, fresh: Stores, tmp_path: Path) -> None:
    """Whether the other bucket is there, or was lost too and is filled anew."""
    if replaced:
        empty = local(tmp_path, "empty")
        fresh = replace(fresh, replicas={**fresh.replicas, "gcp": empty})
    subscribe(fresh, es_query={"query": {"match_all": {}}})
    subscribe(fresh, jmespath_query=None)
    # As if they had been there before all that happened, as restored ones are.
    with fresh.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE subscriptions SET created_us = 0")
    rebuild(fresh, "aws")
    reconcile.reconcile_catalog(fresh)
    do_all(fresh)
    with fresh.catalog.write() as tx:
        # Sweeps leave to its own rows what is younger than two minutes.
        for table in ("files", "bundles", "collections"):
            tx.exec_driver_sql(f"UPDATE {table} SET published_us = 1")
    sweeps.sweep_replicas(fresh)
    do_all(fresh)
    assert told(fresh) == 0
    assert parts(fresh, "gcp")["visible"] == parts(fresh, "aws")["visible"]
    write(fresh, make_file(fresh, b"news", everywhere=True))
    do_all(fresh)
    assert told(fresh) == 4


def test_reports_and_leaves_damaged_and_foreign_objects(
    filled: Filled, stores: Stores, fresh: Stores
) -> None:
    bucket = stores.replicas["aws"]
    broken = make_file(stores, b"broken", everywhere=True)
    key = keys.record_key("file", broken)
    data = b"".join(bucket.read(key))
    bucket.delete(key)
    bucket.put(key, data.replace(b'"size":6', b'"size":7'))
    other = FQID(new_uuid(), version())
    foreign = [
        "files/README.txt",
        keys.record_key("file", FQID(new_uuid(), version())),
        keys.record_key("bundle", other),
        keys.record_key("collection", other),
        keys.tombstone_key("bundle", new_uuid()),
        keys.purge_marker_key("bundle", *other),
        "journals/aws/what",
        str(JournalKey("aws", 900, 901)) + ".json",
        "blobs/xx/yy",
    ]
    for place, name in enumerate(foreign):
        bucket.put(name, [b"[]", b"{", b"", b"\xff" * 9, b'{"format": 1}'][place % 5])
    bucket.put(str(JournalKey("aws", 900, 901)), b"x")
    done = rebuild(fresh, "aws")
    refused = {name for tally in done.values() for name, _ in tally.named}
    assert {*foreign[:-2], "blobs/xx/yy", key} <= refused
    assert str(JournalKey("aws", 900, 901)) in refused
    assert all(bucket.head(name) for name in foreign)
    assert bundles.find(fresh, "aws", *filled.seen).fqid == filled.seen
    with pytest.raises(NotFoundError):
        files.locate(fresh, "aws", *broken)


def test_no_name_in_a_bucket_uses_up_the_numbers_that_are_left(
    filled: Filled, stores: Stores, fresh: Stores
) -> None:
    bucket = stores.replicas["aws"]
    some = [f"{1:020}-{'9' * 20}", f"{10**17:020}-{10**17:020}", f"{0:020}-{1:020}"]
    names = [
        f"{keys.journal_prefix('aws')}{one}{end}"
        for one in some
        for end in ("", keys.MANIFEST_SUFFIX)
    ]
    names.append(keys.record_key("file", FQID(new_uuid(), "2026-02-30T000000.000000Z")))
    for name in names:
        told = {"uuid": name[9:45], "version": name[46:], "format": "store-record/1"}
        bucket.put(name, orjson.dumps(told | {"kind": "file"}))
    done = rebuild(fresh, "aws")
    assert {name for tally in done.values() for name, _ in tally.named} == set(names)
    reconcile.reconcile_catalog(fresh)
    write(fresh, make_file(fresh, b"news", everywhere=True))
    do_all(fresh)
    tend(fresh)
    with fresh.catalog.read() as tx:
        assert events.find_latest_sequence(tx, "aws") < 1_000


@pytest.mark.parametrize(
    "member", [{"content_type": "x\0y"}, {"size": 2**63}, {"size": True}, {"author": None}]
)
def test_refuses_records_with_impossible_values_alone(
    member: dict[str, Any], stores: Stores, drain: Drain, spares: Spares, tmp_path: Path
) -> None:
    good = make_file(stores, b"b")
    bucket, bad = stores.replicas["aws"], FQID(new_uuid(), version())
    told = orjson.loads(b"".join(bucket.read(keys.record_key("file", good))))
    told |= {"uuid": bad.uuid, **member}
    sums = Checksums(*(told[name] for name in CHECKSUM_NAMES))
    told["digest"] = records.file_digest(1, told["content_type"], told["size"], sums)
    bucket.put(keys.record_key("file", bad), orjson.dumps(told))
    with lost(stores, spares, tmp_path / "lost") as fresh:
        done = rebuild(fresh, "aws")
        kept = "content_type" in member and stores.catalog.sqlite
        assert (done["file"].imported, done["file"].refused) == (1 + kept, 1 - kept)
        assert files.locate(fresh, "aws", *good).state == "here"


@pytest.mark.parametrize("seed", range(3))
def test_resumes_rebuild_after_crash(seed: int, stores: Stores, fresh: Stores) -> None:
    rng = Random(seed)
    for _ in range(6):
        try:
            rebuild(fragile(fresh, Fuse(rng.randrange(1, 24))), "gcp")
        except Died:
            with fresh.catalog.write() as tx:
                tx.exec_driver_sql("DELETE FROM leases")
    rebuild(fresh, "gcp")
    assert parts(fresh, "gcp") == parts(stores, "gcp")


def test_refuses_concurrent_rebuild_and_used_catalog(fresh: Stores) -> None:
    going = recovery_rebuild.rebuild_catalog(fresh, "aws", token=new_uuid())
    next(going)
    with pytest.raises(ConflictError, match="Another rebuild"):
        rebuild(fresh, "aws")
    list(going)
    reconcile.reconcile_catalog(fresh)
    with pytest.raises(ConflictError, match="not empty"):
        rebuild(fresh, "aws")


def test_journal_numbers_are_not_reused(stores: Stores, fresh: Stores) -> None:
    with stores.catalog.read() as tx:
        last = journals.list_range(tx, "aws", 1, 10**6, limit=99)[-1]
        newest = events.find_latest_sequence(tx, "aws")
    manifest = keys.journal_manifest_key(last.key)
    for blobs in stores.replicas.values():
        blobs.delete(manifest)
        blobs.put(manifest, b'{"format": "store-journal/1", "events": []}')
    done = rebuild(fresh, "aws")
    assert done["journal"].refused == 1
    assert done["event"].imported == last.count
    reconcile.reconcile_catalog(fresh)
    number(fresh)
    with fresh.catalog.read() as tx:
        found = events.list_range(tx, "aws", 1, limit=99)
    assert [each.seq for each in found if each.seq > last.first - 1] == list(
        range(newest + 1, newest + 1 + last.count)
    )
    tend(fresh)
    assert {one.event_id for one in walk(fresh, "aws")} == {each.event.id for each in found}


def test_restored_catalog_learns_later_numbers(
    stores: Stores, drain: Drain, spares: Spares, tmp_path: Path
) -> None:
    """Rebuilding from what there is now stands for a copy of that moment."""
    early = write(stores, make_file(stores, b"early", everywhere=True))
    drain()
    tend(stores)
    with lost(stores, spares, tmp_path / "lost") as copy:
        rebuild(copy, "aws")
        reconcile.reconcile_catalog(copy)
        late = [write(stores, make_file(stores, b"%d" % n, everywhere=True)) for n in range(3)]
        drain()
        tend(stores)
        reconcile.reconcile_catalog(copy)
        for replica in REPLICAS:
            with stores.catalog.read() as tx, copy.catalog.read() as other:
                assert events.list_range(tx, replica, 1, limit=9) == [
                    replace(each, event=replace(each.event, bundle_id=mine.event.bundle_id))
                    for each, mine in zip(
                        events.list_range(other, replica, 1, limit=9),
                        events.list_range(tx, replica, 1, limit=9),
                        strict=True,
                    )
                ]
        assert {one.fqid for one in walk(copy, "gcp")} == {early, *late}


def test_versions_share_their_segments_again(
    stores: Stores, drain: Drain, spares: Spares, tmp_path: Path
) -> None:
    names = [make_file(stores, b"%d" % n, everywhere=True) for n in range(3)]
    entries = [NewEntry(f"{n}", names[n % 3], False) for n in range(3_000)]
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, entries), AUTHOR)
    for turn in range(4):
        patch = BundlePatch(fqid, "aws", (NewEntry(f"new {turn}", names[0], True),), ())
        fqid = bundles.patch_bundle(stores, patch, AUTHOR).fqid
    with lost(stores, spares, tmp_path / "lost") as fresh:
        rebuild(fresh, "aws")
        assert parts(fresh, "aws")["entries"] == parts(stores, "aws")["entries"]
        assert rows_of(fresh, "entries") == rows_of(stores, "entries") < 10_000


def rows_of(stores: Stores, table: str) -> int:
    with stores.catalog.read() as tx:
        return int(tx.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def test_completes_running_purge(
    stores: Stores, drain: Drain, spares: Spares, tmp_path: Path
) -> None:
    own = make_file(stores, b"own", everywhere=True)
    fqid = write(stores, own)
    drain()
    tend(stores)
    bundles.delete(stores, "aws", *fqid, reason="r", author=AUTHOR)
    drain()
    purges.order_purge(stores, *fqid, reason="r", author=AUTHOR)
    # Only one bucket was told of it.
    job_queue: Any = Silent()
    working = WorkerContext(stores, job_queue, STEP_FUNCTIONS, 5, Random(0))
    assert run_job(working, Job(Step.MARK, "aws", f"bundle:{fqid}"))
    with lost(stores, spares, tmp_path / "lost") as fresh:
        rebuild(fresh, "aws")
        reconcile.reconcile_catalog(fresh)
        finish(fresh, lambda: do_all(fresh))
        assert rows_of(fresh, "bundles") == rows_of(fresh, "files") == 0
        for bucket in fresh.replicas.values():
            assert not list(bucket.list("bundles/")) + list(bucket.list("files/"))
        with fresh.catalog.read() as tx:
            gone = events.make_event_id("DELETE", "aws", fqid)
            assert events.find(tx, gone) is not None


def test_fetches_missing_bytes_from_other_bucket(
    filled: Filled, stores: Stores, fresh: Stores
) -> None:
    bundle = bundles.find(stores, "aws", *filled.seen)
    entry = bundles.read_entries(stores, bundle, 0, 1)[0]
    stores.replicas["aws"].delete(keys.blob_key(entry.checksums.sha256))
    done = rebuild(fresh, "aws")
    assert done["blob"].refused == 1
    with pytest.raises(NotFoundError):
        bundles.find(fresh, "aws", *filled.seen)
    reconcile.reconcile_catalog(fresh)
    do_all(fresh)
    assert bundles.find(fresh, "aws", *filled.seen).fqid == filled.seen
    assert stores.replicas["aws"].head(keys.blob_key(entry.checksums.sha256)).size == entry.size


def test_fills_empty_replacement_bucket_without_notifications(
    filled: Filled, stores: Stores, drain: Drain, tmp_path: Path
) -> None:
    epochs.begin_epoch(stores)
    subscribe(stores)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE subscriptions SET created_us = 0")
        for table in ("files", "bundles", "collections"):
            tx.exec_driver_sql(f"UPDATE {table} SET published_us = 1")
    now = replace(stores, replicas={**stores.replicas, "gcp": local(tmp_path, "empty")})
    assert "was it replaced" in (epochs.begin_epoch(now) or "")
    reconcile.reconcile_catalog(now)
    before = parts(now, "gcp")["visible"]
    assert any(one.missing for one in sweeps.sweep_replicas(now) if one.replica == "gcp")
    do_all(now)
    assert parts(now, "gcp")["visible"] == before
    assert now.replicas["gcp"].head(keys.record_key("bundle", filled.patched))
    assert {one.missing for one in sweeps.sweep_replicas(now)} == {0}
    assert told(now) == 0
