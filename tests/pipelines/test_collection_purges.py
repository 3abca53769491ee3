"""Purged collections are gone everywhere, and linked objects stay."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import text

from pipelines import collections, files, flow, integrity, manifests, purges, sweeps
from pipelines.collections import CollectionDraft, CollectionPatch
from pipelines.idempotency import IdempotentRequest
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.recovery import reconcile
from storage import keys
from storage.catalog import Catalog, jobs
from storage.catalog import collections as rows
from storage.catalog import purges as catalog_purges
from storage.errors import ConflictError, NotFoundError
from storage.model import FQID, REPLICAS, CollectionLink, Job, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.catalogs import Spares
from tests.pipelines.interleavings import play
from tests.pipelines.purge_runs import PURGING, finish, run_purge
from workers.actors import STEP_FUNCTIONS

pytestmark = pytest.mark.spec("COL-26")

OWNER = "curator@example.org"
AUTHOR = "operator@example.org"


def write(stores: Stores, *links: CollectionLink, uuid: str = "", number: int = 0) -> FQID:
    fqid = FQID(uuid or new_uuid(), version(number))
    new = CollectionDraft(fqid, "aws", "n", "d", {"a": 1}, links)
    return collections.put(stores, new, OWNER).fqid


def purge(stores: Stores, uuid: str) -> None:
    collections.delete_as_owner(stores, uuid)
    purges.order_purge(
        stores, uuid, None, reason="names a patient", author=AUTHOR, kind="collection"
    )


def listed(stores: Stores, replica: Replica) -> set[str]:
    return {info.key for info in stores.replicas[replica].list("")}


def counted(stores: Stores) -> dict[str, int]:
    names = ("collections", "collection_segments", "link_segments", "owned")
    with stores.catalog.read() as tx:
        return {
            name: tx.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in names
        }


def test_purges_every_version_and_no_target(stores: Stores, drain: Callable[[], int]) -> None:
    link = CollectionLink("file", make_file(stores, b"x", everywhere=True))
    first = write(stores, link)
    second = write(stores, uuid=first.uuid, number=1)
    other = write(stores, CollectionLink("collection", first), link)
    drain()
    purge(stores, first.uuid)
    finish(stores, drain)
    marks = {keys.purge_marker_key("collection", *fqid) for fqid in (first, second)}
    for replica in REPLICAS:
        there = listed(stores, replica)
        assert {*marks, keys.purge_marker_key("collection", first.uuid)} <= there
        assert not {keys.record_key("collection", fqid) for fqid in (first, second)} & there
        with pytest.raises(NotFoundError):
            collections.find(stores, replica, *first, OWNER)
        found = collections.find(stores, replica, *other, OWNER)
        assert collections.read_links(stores, found) == [CollectionLink("collection", first), link]
        assert files.locate(stores, replica, *link.target).state == "here"
    assert collections.list_owned(stores, OWNER, None, 9) == [other]
    assert counted(stores)["collections"] == 1


def test_versions_share_segments_and_nothing_is_left_of_them(
    stores: Stores, drain: Callable[[], int]
) -> None:
    files_ = [make_file(stores, b"%d" % n, everywhere=True) for n in range(20)]
    names = [f"/{n}" for n in range(SEGMENT_ENTRIES // 10)]
    links = [CollectionLink("file", file, name) for file in files_ for name in names]
    fqid = write(stores, *links[:900])
    for start in range(900, len(links), 900):
        added = links[start : start + 900]
        patch = CollectionPatch(fqid, "aws", added, (), None, None, None)
        fqid = collections.patch_collection(stores, patch, OWNER).fqid
    drain()
    assert counted(stores)["collection_segments"] > counted(stores)["link_segments"]
    purge(stores, fqid.uuid)
    finish(stores, drain)
    assert set(counted(stores).values()) == {0}


def test_rejects_purge_of_undeleted_collection(stores: Stores) -> None:
    fqid = write(stores)
    with pytest.raises(ConflictError) as refused:
        purges.order_purge(stores, fqid.uuid, None, reason="r", author=AUTHOR, kind="collection")
    assert refused.value.code == "protected"
    found = purges.measure_extent(stores, fqid.uuid, None, kind="collection")
    assert (found.versions, found.files, found.kept_files, found.has_tombstone) == (
        [fqid],
        0,
        0,
        False,
    )
    for call in (
        partial(purges.measure_extent, stores, new_uuid(), None, kind="collection"),
        partial(collections.delete_as_owner, stores, new_uuid()),
        partial(
            purges.order_purge,
            stores,
            new_uuid(),
            None,
            reason="r",
            author=AUTHOR,
            kind="collection",
        ),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_purged_collection_can_never_be_put_again(stores: Stores, drain: Callable[[], int]) -> None:
    fqid = write(stores)
    drain()
    purge(stores, fqid.uuid)
    finish(stores, drain)
    purges.order_purge(stores, fqid.uuid, None, reason="again", author=AUTHOR, kind="collection")
    finish(stores, drain)
    for owner in (OWNER, "somebody@example.org"):
        for number in (0, 1):
            new = CollectionDraft(FQID(fqid.uuid, version(number)), "aws", "n", "d", {}, ())
            with pytest.raises(ConflictError) as taken:
                collections.put(stores, new, owner)
            assert taken.value.code == "collection_tombstone_already_exists"
    with pytest.raises(NotFoundError):
        collections.delete(stores, "aws", fqid.uuid, OWNER)


def test_a_step_that_dies_anywhere_is_done_again(stores: Stores, drain: Callable[[], int]) -> None:
    place, died = 0, True
    while died:
        fqid = write(stores)
        drain()
        purge(stores, fqid.uuid)
        died = run_purge(stores, place)
        run_purge(stores, None)
        for replica in REPLICAS:
            assert keys.record_key("collection", fqid) not in listed(stores, replica)
        with stores.catalog.read() as tx:
            assert catalog_purges.list_unfinished(tx, limit=9) == []
        place += 1
    assert place > 15


def test_a_patch_that_was_answered_is_answered_again_when_its_collection_is_purged(
    stores: Stores, drain: Callable[[], int]
) -> None:
    first = write(stores)
    patch = CollectionPatch(first, "aws", [], [], "another name", None, None)
    again = IdempotentRequest(OWNER, "key", collections.patch_digest(patch))
    written = collections.patch_collection(stores, patch, OWNER, repeatable=again)
    purge(stores, first.uuid)
    finish(stores, drain)
    repeated = collections.patch_collection(stores, patch, OWNER, repeatable=again)
    assert (repeated.fqid, repeated.created, repeated.jobs) == (written.fqid, False, ())


def step(stores: Stores, row: Job) -> None:
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        claim = jobs.claim(tx, row, token=new_uuid(), lease_s=60, max_claims=99)
    assert claim is not None
    STEP_FUNCTIONS[flow.Step(row.step)](stores, claim, lambda _n: None)


def test_a_late_sync_leaves_no_record_behind(stores: Stores, drain: Callable[[], int]) -> None:
    fqid = write(stores)
    drain()
    purge(stores, fqid.uuid)
    finish(stores, drain)
    # As a worker that was paused between its two looks would have left it.
    stores.replicas["gcp"].put(keys.record_key("collection", fqid), b"late")
    row = Job(flow.Step.SYNC, "gcp", f"collection:{fqid}")
    step(stores, row)
    assert keys.record_key("collection", fqid) not in listed(stores, "gcp")
    stores.replicas["gcp"].put(keys.record_key("collection", fqid), b"later")
    sweeps.sweep_replicas(stores)
    assert keys.record_key("collection", fqid) not in listed(stores, "gcp")
    with stores.catalog.read() as tx:
        assert not jobs.exists(tx, row)


def purge_all(fqid: FQID, stores: Stores) -> str:
    """From the order to the end, as far as it gets."""
    purges.order_purge(stores, fqid.uuid, None, reason="r", author=AUTHOR, kind="collection")
    refs = (f"collection:{fqid}", f"collection:{fqid.uuid}")
    for row in [Job(each, r, ref) for each in PURGING for ref in refs for r in REPLICAS]:
        with stores.catalog.read() as tx:
            open_ = jobs.exists(tx, row)
        if open_:
            step(stores, row)
    return "purged"


def brings(fqid: FQID, stores: Stores) -> str:
    """A sync that is late."""
    step(stores, Job(flow.Step.SYNC, "gcp", f"collection:{fqid}"))
    return "brought"


def completes(row: rows.Collection, stores: Stores) -> str:
    """A writer who is late: under its tombstone nobody is told that it was written."""
    record = collections.build_record(stores, row)
    with pytest.raises(ConflictError):
        manifests.complete_reservation(stores, collections.COLLECTION, row, record)
    return "refused"


@pytest.mark.parametrize("late", ["sync", "writer"])
def test_racing_copy_leaves_no_record(race_stores: Stores, late: str) -> None:
    rng, ended = random.Random(22), 0
    for _ in range(40):
        fqid = write(race_stores)
        with race_stores.catalog.read() as tx:
            row = rows.find(tx, fqid)
        assert row is not None
        collections.delete_as_owner(race_stores, fqid.uuid)
        if late == "writer":  # The record is still on its way.
            race_stores.replicas["aws"].delete(keys.record_key("collection", fqid))
        actor = partial(brings, fqid) if late == "sync" else partial(completes, row)
        place = rng.randrange(4)
        order = ["s"] * place + ["p"] * rng.randrange(3, 26) + ["s"] * 9
        ends = play(race_stores, order, {"p": partial(purge_all, fqid), "s": actor})
        assert not [end for end in ends.values() if isinstance(end, AssertionError)]
        ended += ends["s"] is not None
        if ends["s"] is None:  # It died: its row, or the sweep, does what it left.
            brings(fqid, race_stores)
            sweeps.sweep_replicas(race_stores)
        purge_all(fqid, race_stores)
        for replica in REPLICAS:
            assert keys.record_key("collection", fqid) not in listed(race_stores, replica)
        with race_stores.catalog.read() as tx:
            assert catalog_purges.list_unfinished(tx, limit=9) == []
            left = "SELECT count(*) FROM presence WHERE kind = 'collection'"
            assert tx.execute(text(left)).scalar_one() == 0
    assert ended


def test_a_catalog_that_lost_the_purge_learns_it_from_a_bucket(
    stores: Stores,
    drain: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
    spares: Spares,
) -> None:
    fqid, kept = write(stores), write(stores)
    drain()
    record = b"".join(stores.replicas["aws"].read(keys.record_key("collection", fqid)))
    purge(stores, fqid.uuid)
    finish(stores, drain)
    stores.replicas["aws"].put(keys.record_key("collection", fqid), record)
    with spares.lend("sqlite", tmp_path_factory.mktemp("lost")) as url:
        fresh = replace(stores, catalog=Catalog(url))
        reconcile.reconcile_catalog(fresh)
        assert collections.find(fresh, "aws", *kept, OWNER).fqid == kept
        with pytest.raises(NotFoundError):
            collections.find(fresh, "aws", *fqid, OWNER)
        with fresh.catalog.read() as tx:
            assert catalog_purges.filter_purged(tx, "collection", [fqid])
        fresh.catalog.close()


def test_withdrawing_waits_for_the_marker(stores: Stores) -> None:
    fqid = write(stores)
    purge(stores, fqid.uuid)
    integrity.delete_late_records(stores, "aws", "collection", {fqid: False})
    assert keys.record_key("collection", fqid) in listed(stores, "aws")
