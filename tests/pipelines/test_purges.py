"""Purges remove every trace of a bundle and nothing else."""

import hashlib
from collections.abc import Callable
from random import Random

import pytest

from pipelines import (
    bundles,
    checkouts,
    files,
    fixity,
    flow,
    garbage_collection,
    ingest,
    purges,
    replication,
    scrub,
)
from pipelines.bundles import BundleDraft, NewEntry
from storage import keys
from storage.catalog import bundles as catalog_bundles
from storage.catalog import events, jobs
from storage.catalog import files as file_rows
from storage.catalog import purges as catalog_purges
from storage.errors import ConflictError, Invalid, NotFoundError, Unavailable
from storage.model import FQID, REPLICAS, Job, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.pipelines.purge_runs import finish, run_purge

AUTHOR = "operator@example.org"


def write(
    stores: Stores, *entries: FQID, uuid: str = "", number: int = 0, replica: Replica = "aws"
) -> FQID:
    fqid = FQID(uuid or new_uuid(), version(number))
    named = [NewEntry(f"{place}.txt", file, False) for place, file in enumerate(entries)]
    bundles.put(stores, BundleDraft(fqid, replica, 1, named), AUTHOR)
    return fqid


def bury(stores: Stores, fqid: FQID) -> None:
    bundles.delete(stores, "aws", fqid.uuid, fqid.version, reason="r", author=AUTHOR)


def purge(stores: Stores, fqid: FQID) -> None:
    bury(stores, fqid)
    purges.order_purge(stores, fqid.uuid, fqid.version, reason="consent withdrawn", author=AUTHOR)


def listed(stores: Stores, replica: Replica) -> set[str]:
    return {info.key for info in stores.replicas[replica].list("")}


def holds(stores: Stores, key: str) -> set[Replica]:
    return {replica for replica in REPLICAS if key in listed(stores, replica)}


def blob_of(stores: Stores, fqid: FQID) -> str:
    with stores.catalog.read() as tx:
        row = file_rows.find(tx, fqid)
    assert row is not None
    return keys.blob_key(row.checksums.sha256)


@pytest.mark.spec("BUN-58", "BUN-59")
def test_purge_removes_bundle_and_files_it_alone_names(
    stores: Stores, drain: Callable[[], int]
) -> None:
    own, shared = make_file(stores, b"its own"), make_file(stores, b"shared")
    same_bytes = make_file(stores, b"its own")
    fqid, other = write(stores, own, shared), write(stores, shared, same_bytes)
    drain()
    blob, kept = blob_of(stores, own), blob_of(stores, shared)
    purge(stores, fqid)
    finish(stores, drain)
    for replica in REPLICAS:
        there = listed(stores, replica)
        assert keys.record_key("bundle", fqid) not in there
        assert keys.record_key("file", own) not in there
        assert {
            keys.purge_marker_key("bundle", *fqid),
            keys.purge_marker_key("file", *own),
        } <= there
        assert {
            keys.record_key("file", shared),
            keys.record_key("bundle", other),
            kept,
            blob,
        } <= there
        with pytest.raises(NotFoundError):
            bundles.find(stores, replica, *fqid)
        with pytest.raises(NotFoundError):
            files.locate(stores, replica, *own)
        assert bundles.find(stores, replica, *other).fqid == other
    with stores.catalog.read() as tx:
        assert catalog_bundles.find(tx, fqid) is None
        assert file_rows.find(tx, own) is None
        assert catalog_purges.list_unfinished(tx, limit=9) == []


@pytest.mark.spec("BUN-58")
def test_bytes_that_nothing_has_any_more_are_deleted_after_their_grace(
    stores: Stores, drain: Callable[[], int]
) -> None:
    own = make_file(stores, b"its own")
    fqid = write(stores, own)
    drain()
    blob = blob_of(stores, own)
    purge(stores, fqid)
    finish(stores, drain)
    assert garbage_collection.delete_expired(stores, grace_s=3600) == 0
    assert holds(stores, blob) == set(REPLICAS)
    assert garbage_collection.delete_expired(stores, grace_s=-1) == 2
    assert holds(stores, blob) == set()


@pytest.mark.spec("BUN-57", "STA-05")
def test_each_replica_that_saw_it_has_one_delete_event(
    stores: Stores, drain: Callable[[], int]
) -> None:
    fqid = write(stores, make_file(stores, b"x"))
    drain()
    purge(stores, fqid)
    purges.order_purge(stores, *fqid, reason="again", author=AUTHOR)
    finish(stores, drain)
    purges.order_purge(stores, *fqid, reason="again", author=AUTHOR)
    with stores.catalog.read() as tx:
        for replica in REPLICAS:
            for kind in ("CREATE", "TOMBSTONE", "DELETE"):
                event = events.find(tx, events.make_event_id(kind, replica, fqid))  # type: ignore[arg-type]
                assert event is not None
                assert event.bundle_id == 0, "leads to no bundle any more"


@pytest.mark.spec("BUN-57")
def test_a_version_that_was_never_seen_in_a_replica_has_no_event_there(stores: Stores) -> None:
    fqid = write(stores, make_file(stores, b"x"))
    purge(stores, fqid)
    with stores.catalog.read() as tx:
        assert events.find(tx, events.make_event_id("DELETE", "aws", fqid)) is not None
        assert events.find(tx, events.make_event_id("DELETE", "gcp", fqid)) is None


@pytest.mark.spec("OPS-27")
def test_the_fixity_report_lists_purge_markers_with_time_of_verification(
    stores: Stores, drain: Callable[[], int]
) -> None:
    fqid = write(stores, make_file(stores, b"content"))
    drain()
    purge(stores, fqid)
    finish(stores, drain)
    key = keys.purge_marker_key("bundle", *fqid)
    for replica in REPLICAS:
        scrub.verify_replica(stores, replica, rng=Random(0))
        data = b"".join(stores.replicas[replica].read(key))
        (found,) = [
            one
            for one in fixity.list_object_fixity(stores)
            if (one.stored.replica, one.stored.key) == (replica, key)
        ]
        assert found.sha256 == hashlib.sha256(data).hexdigest()
        assert found.stored.verified_us > 0


@pytest.mark.spec("BUN-61", "STA-05", "ERR-29")
def test_purges_only_deleted_bundles(stores: Stores) -> None:
    fqid = write(stores, make_file(stores, b"x"))
    with pytest.raises(ConflictError) as alive:
        purges.order_purge(stores, *fqid, reason="r", author=AUTHOR)
    assert alive.value.code == "protected"
    with pytest.raises(NotFoundError):
        purges.measure_extent(stores, new_uuid(), None)


@pytest.mark.spec("BUN-61", "OPS-12")
def test_plan_lists_what_would_go(stores: Stores) -> None:
    own, shared = make_file(stores, b"own"), make_file(stores, b"shared")
    fqid = write(stores, own, shared)
    write(stores, shared)
    found = purges.measure_extent(stores, *fqid)
    assert (found.versions, found.files, found.kept_files, found.has_tombstone) == (
        [fqid],
        1,
        1,
        False,
    )


@pytest.mark.spec("BUN-62")
def test_no_marker_is_everywhere_before_a_record_goes(stores: Stores) -> None:
    fqid = write(stores, make_file(stores, b"x"))
    purge(stores, fqid)
    row = Job(flow.Step.MARK, "aws", f"bundle:{fqid}")
    with stores.catalog.write() as tx:
        claim = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
    assert claim is not None
    assert purges.write_marker(stores, claim, lambda _n: None) == ()
    assert holds(stores, keys.record_key("bundle", fqid)) == {"aws"}


@pytest.mark.spec("BUN-60", "STA-05")
def test_a_purged_version_can_never_be_put_again(stores: Stores, drain: Callable[[], int]) -> None:
    own, other = make_file(stores, b"own"), make_file(stores, b"other", everywhere=True)
    fqid = write(stores, own)
    drain()
    purge(stores, fqid)
    finish(stores, drain)
    with pytest.raises(ConflictError):
        write(stores, other, uuid=fqid.uuid)
    area = stores.areas
    sums = {"store-sha1": "0" * 40, "store-sha256": "0" * 64, "store-crc32c": "0" * 8}
    area.put("areas/x/y", b"", metadata={**sums, "store-s3_etag": "0" * 32})
    deposit = ingest.IngestRequest(own, "aws", area.direct_url("areas/x/y"), 1)
    with pytest.raises(ConflictError) as taken:
        ingest.start_task(stores, deposit, AUTHOR)
    assert taken.value.code == "file_already_exists"


@pytest.mark.spec("BUN-59")
def test_versions_share_segments_and_lose_only_their_own(
    stores: Stores, drain: Callable[[], int]
) -> None:
    few = [make_file(stores, f"{number}".encode()) for number in range(3)]
    # More entries than a segment has: one is shared, the last one is not.
    first = [few[place % 3] for place in range(1100)]
    parent = write(stores, *first)
    added = make_file(stores, b"added")
    change = bundles.BundlePatch(parent, "aws", [NewEntry("added", added, False)], [])
    child = bundles.patch_bundle(stores, change, AUTHOR).fqid
    drain()
    purge(stores, parent)
    finish(stores, drain)
    bundle = bundles.find(stores, "gcp", *child)
    entries = bundles.read_entries(stores, bundle, 0, 2000)
    assert [entry.file for entry in entries] == [*first, added]
    purge(stores, child)
    finish(stores, drain)
    assert not any(key.startswith(("files/", "bundles/")) for key in listed(stores, "gcp"))


@pytest.mark.spec("BUN-59")
def test_last_of_bundles_takes_shared_file(stores: Stores, drain: Callable[[], int]) -> None:
    shared = make_file(stores, b"shared")
    both = [write(stores, shared), write(stores, shared)]
    drain()
    for fqid in both:
        purge(stores, fqid)
    finish(stores, drain)
    assert holds(stores, keys.record_key("file", shared)) == set()


@pytest.mark.spec("BUN-58")
def test_a_whole_uuid_goes_with_every_version(stores: Stores, drain: Callable[[], int]) -> None:
    file = make_file(stores, b"x")
    first = write(stores, file)
    second = write(stores, file, uuid=first.uuid, number=1)
    drain()
    bundles.delete(stores, "aws", first.uuid, None, reason="r", author=AUTHOR)
    purges.order_purge(stores, first.uuid, None, reason="r", author=AUTHOR)
    finish(stores, drain)
    marks = {keys.purge_marker_key("bundle", *fqid) for fqid in (first, second)}
    for replica in REPLICAS:
        assert {*marks, keys.purge_marker_key("bundle", first.uuid)} <= listed(stores, replica)
        assert keys.record_key("bundle", second) not in listed(stores, replica)


@pytest.mark.spec("BUN-58")
def test_copies_in_the_checkout_area_go_too(stores: Stores, drain: Callable[[], int]) -> None:
    fqid = write(stores, make_file(stores, b"x"))
    wanted = checkouts.CheckoutRequest("aws", *fqid)
    done = checkouts.create(stores, wanted, None).job_id
    drain()
    running = checkouts.create(stores, wanted, None).job_id
    purge(stores, fqid)
    with stores.catalog.write() as tx:
        claim = jobs.claim(
            tx, Job(flow.Step.CHECKOUT, "aws", running), token="w", lease_s=60, max_claims=5
        )
    assert claim is not None
    finish(stores, drain)
    assert not list(stores.checkouts["aws"].list(keys.checkout_prefix(done)))
    assert checkouts.get_status(stores, "aws", running).state == "EXPIRED"


@pytest.mark.spec("BUN-62")
def test_a_late_sync_leaves_no_record_behind(stores: Stores, drain: Callable[[], int]) -> None:
    file = make_file(stores, b"x")
    fqid = write(stores, file)
    bury(stores, fqid)
    rows = [
        Job(flow.Step.SYNC, "gcp", f"bundle:{fqid}"),
        Job(flow.Step.SYNC, "gcp", f"file:{file}"),
    ]
    drain()
    purge(stores, fqid)
    finish(stores, drain)
    for row in rows:
        kind, _, name = row.ref.partition(":")
        # As a worker that was paused between its two looks would have left it.
        stores.replicas["gcp"].put(keys.record_key(kind, FQID.parse(name)), b"late")  # type: ignore[arg-type]
        with stores.catalog.write() as tx:
            jobs.insert(tx, [row])
            claim = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
        assert claim is not None
        assert replication.sync_version(stores, claim, lambda _n: None) == ()
        with stores.catalog.read() as tx:
            assert not jobs.exists(tx, row)
    assert not any(key.startswith(("files/", "bundles/")) for key in listed(stores, "gcp"))


@pytest.mark.spec("BUN-62")
def test_an_ingest_of_the_same_bytes_revives_them(stores: Stores, drain: Callable[[], int]) -> None:
    own = make_file(stores, b"its own")
    fqid = write(stores, own)
    drain()
    blob = blob_of(stores, own)
    purge(stores, fqid)
    finish(stores, drain)
    again = make_file(stores, b"its own")
    write(stores, again)
    drain()
    assert garbage_collection.delete_expired(stores, grace_s=-1) == 0
    assert holds(stores, blob) == set(REPLICAS)
    assert files.locate(stores, "gcp", *again).state == "here"


@pytest.mark.spec("BUN-62")
def test_refuses_bundle_of_file_purged_after_lookup(
    stores: Stores, drain: Callable[[], int]
) -> None:
    own = make_file(stores, b"own", everywhere=True)
    doomed = write(stores, own)
    drain()
    entries = [NewEntry("a", own, False)]
    with stores.catalog.read() as tx:
        bundles.check_files(tx, "aws", [own])
    purge(stores, doomed)
    finish(stores, drain)
    with stores.catalog.read() as tx, pytest.raises(Invalid):
        bundles.recheck_files(tx, "aws", entries)
    new = BundleDraft(FQID(new_uuid(), version()), "aws", 1, entries)
    with pytest.raises(Invalid) as missing:
        bundles.put(stores, new, AUTHOR)
    assert missing.value.code == "file_missing"
    with stores.catalog.read() as tx:
        assert catalog_bundles.find(tx, new.fqid) is None


@pytest.mark.spec("BUN-62")
def test_a_step_that_dies_anywhere_is_done_again(stores: Stores, drain: Callable[[], int]) -> None:
    """Every write to a bucket and to the catalog is a place to die."""
    place, died = 0, True
    while died:
        own = make_file(stores, f"own {place}".encode())
        fqid = write(stores, own)
        drain()
        purge(stores, fqid)
        died = run_purge(stores, place)
        run_purge(stores, None)
        for replica in REPLICAS:
            assert keys.record_key("bundle", fqid) not in listed(stores, replica)
            assert keys.record_key("file", own) not in listed(stores, replica)
        with stores.catalog.read() as tx:
            assert catalog_purges.list_unfinished(tx, limit=9) == []
        place += 1
    assert place > 20


@pytest.mark.spec("NOT-10")
def test_record_stays_while_jobs_need_the_document(stores: Stores) -> None:
    fqid = write(stores, make_file(stores, b"its own"))
    purge(stores, fqid)
    row = Job(flow.Step.ERASE, "aws", f"bundle:{fqid}")
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        claim = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
    assert claim is not None

    with pytest.raises(Unavailable):
        purges.erase_record(stores, claim, lambda _n: None)

    assert keys.record_key("bundle", fqid) in listed(stores, "aws")
