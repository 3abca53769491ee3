"""Collections under races, crashes, sync, sweeps, restores and patches."""

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import bundles, collections, flow, manifests, replication, scrub, sweeps
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.collections import MAX_FRAGMENT_BYTES, CollectionDraft, CollectionPatch
from pipelines.documents import MAX_FILE_BYTES
from pipelines.idempotency import IdempotentRequest
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.manifests import WriteResult
from pipelines.recovery import reconcile
from storage import keys
from storage.catalog import Catalog, jobs, versions
from storage.catalog import collections as catalog_collections
from storage.errors import ConflictError, Forbidden, NotFoundError, NotReady, Unprocessable
from storage.model import FQID, REPLICAS, CollectionLink, Job, Replica
from storage.stores import Stores
from tests.builders import build_stores, make_file, new_uuid, version
from tests.catalogs import Spares
from tests.damage import other_record
from tests.pipelines.interleavings import play
from tests.property_depth import examples

OWNER = "curator@example.org"


@pytest.fixture
def own(tmp_path: Path, catalog: Catalog) -> Stores:
    return build_stores(tmp_path, catalog)


@pytest.fixture(scope="module")
def targets(race_stores: Stores) -> list[CollectionLink]:
    """Two files that are whole in both replicas, as links."""
    texts = (b"one", b"two")
    return [CollectionLink("file", make_file(race_stores, text, everywhere=True)) for text in texts]


def write(
    stores: Stores,
    *links: CollectionLink,
    fqid: FQID | None = None,
    replica: Replica = "aws",
    owner: str = OWNER,
    name: str = "n",
) -> WriteResult:
    fqid = fqid or FQID(new_uuid(), version())
    new = CollectionDraft(fqid, replica, name, "d", {"a": 1}, links)
    return collections.put(stores, new, owner)


def patched(
    stores: Stores, fqid: FQID, *, add: Any = (), remove: Any = (), key: str | None = None
) -> WriteResult:
    patch = CollectionPatch(fqid, "aws", add, remove, None, None, None)
    asked = IdempotentRequest(OWNER, key, collections.patch_digest(patch)) if key else None
    return collections.patch_collection(stores, patch, OWNER, repeatable=asked)


def contents(stores: Stores, fqid: FQID, replica: Replica = "aws") -> list[CollectionLink]:
    found = collections.find(stores, replica, *fqid, OWNER)
    return collections.read_links(stores, found)


def done(stores: Stores, row: Job) -> None:
    """One to-do row, as a worker would."""
    work = {
        flow.Step.PUBLISH: sweeps.complete_reservation,
        flow.Step.SYNC: replication.sync_version,
        flow.Step.BURY: manifests.write_tombstone,
    }[flow.Step(row.step)]
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        claim = jobs.claim(tx, row, token="end", lease_s=60, max_claims=99)
    assert claim is not None
    work(stores, claim, lambda _n: None)


def copy(fqid: FQID, stores: Stores) -> str:
    """Whatever sync would do at this moment."""
    for replica in REPLICAS:
        row = Job(flow.Step.SYNC, replica, f"collection:{fqid}")
        with stores.catalog.write() as tx:
            claim = jobs.claim(tx, row, token="sync", lease_s=60, max_claims=99)
        if claim is not None:
            replication.sync_version(stores, claim, lambda _n: None)
    return "copied"


def settle(stores: Stores, uuid: str, fqids: list[FQID]) -> None:
    """What the clock and the workers would do afterwards, until nothing is left to do."""
    refs = [f"collection:{name}" for name in (uuid, *fqids)]
    for _ in range(3):
        sweeps.enqueue_reservations(stores, grace_s=-1)
        for step in (flow.Step.PUBLISH, flow.Step.SYNC, flow.Step.BURY):
            rows = [Job(step, replica, ref) for replica in REPLICAS for ref in refs]
            with stores.catalog.read() as tx:
                rows = [row for row in rows if jobs.exists(tx, row)]
            for row in rows:
                done(stores, row)


def record(stores: Stores, replica: Replica, key: str) -> bytes | None:
    try:
        return b"".join(stores.replicas[replica].read(key))
    except NotFoundError:
        return None


def seen(stores: Stores, fqid: FQID) -> set[Replica]:
    with stores.catalog.read() as tx:
        return {
            replica
            for replica in REPLICAS
            if versions.find_published(tx, "collection", replica, fqid) is not None
        }


def delete(uuid: str, stores: Stores) -> str:
    collections.delete(stores, "gcp", uuid, OWNER)
    return "deleted"


def judge(stores: Stores, fqid: FQID, ends: dict[str, Any], *, same: bool) -> None:
    """The guarantees, after everything came to rest."""
    for end in ends.values():
        assert not isinstance(end, Exception) or isinstance(end, ConflictError | NotFoundError), end
    won = [name for name in ("a", "b") if isinstance(ends.get(name), WriteResult)]
    assert sum(ends[name].created for name in won) <= 1, "two were told that they made it"
    assert same or len(won) <= 1
    settle(stores, fqid.uuid, [fqid])
    found = {record(stores, replica, keys.record_key("collection", fqid)) for replica in REPLICAS}
    assert len(found) == 1, "the replicas differ"
    assert not won or None not in found, "what was acknowledged is gone"
    if ends.get("t") == "deleted":
        assert seen(stores, fqid) == set()
        assert fqid not in collections.list_owned(stores, OWNER, None, 10_000)
        stones = {
            record(stores, replica, keys.tombstone_key("collection", fqid.uuid))
            for replica in REPLICAS
        }
        assert len(stones) == 1
        assert None not in stones
    elif won:
        assert seen(stores, fqid) == set(REPLICAS)
        assert collections.list_owned(stores, OWNER, None, 10_000).count(fqid) == 1


def orders(counts: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Every order of so many moves each."""
    yield from sorted(set(itertools.permutations("".join(n * c for n, c in counts.items()))))


def run(
    stores: Stores, order: tuple[str, ...], targets: list[CollectionLink], *, same: bool
) -> None:
    fqid = FQID(new_uuid(), version())
    second = targets[::-1] if same else targets[1:]
    actors: dict[str, Callable[[Stores], Any]] = {
        "a": lambda own: write(own, *targets, fqid=fqid),
        "b": lambda own: write(own, *second, fqid=fqid, replica="gcp"),
        "t": partial(delete, fqid.uuid),
        "s": partial(copy, fqid),
    }
    taking_part = {name: actors[name] for name in sorted(set(order))}
    judge(stores, fqid, play(stores, order, taking_part), same=same)


@pytest.mark.parametrize("same", [False, True])
def test_two_writers_in_every_order_with_crashes(
    race_stores: Stores, targets: list[CollectionLink], same: bool
) -> None:
    for mine, others in itertools.product(range(4), repeat=2):
        for order in orders({"a": mine, "b": others}):
            if order:
                run(race_stores, order, targets, same=same)


@pytest.mark.parametrize("same", [False, True])
def test_two_writers_and_deletion_in_every_order(
    race_stores: Stores, targets: list[CollectionLink], same: bool
) -> None:
    for order in orders({"a": 3, "b": 3, "t": 1}):
        run(race_stores, order, targets, same=same)


@pytest.mark.parametrize("same", [False, True])
def test_two_writers_sync_and_deletion_in_many_orders(
    race_stores: Stores, targets: list[CollectionLink], same: bool
) -> None:
    rng = random.Random(7)
    moves = list("aaabbbtssss")
    for _ in range(100):
        rng.shuffle(moves)
        run(race_stores, tuple(moves), targets, same=same)


@pytest.mark.spec("COL-13")
def test_two_owners_of_a_new_uuid_in_every_order(
    race_stores: Stores, targets: list[CollectionLink]
) -> None:
    for order in orders({"a": 3, "b": 3}):
        uuid = new_uuid()
        ends = play(
            race_stores,
            order,
            {
                "a": lambda own, uuid=uuid: write(own, fqid=FQID(uuid, version(1))),
                "b": lambda own, uuid=uuid: write(own, fqid=FQID(uuid, version(2)), owner="b@x"),
            },
        )
        assert sorted(type(end).__name__ for end in ends.values()) == ["Forbidden", "WriteResult"]


def test_patches_and_a_deletion_in_many_orders(
    race_stores: Stores, targets: list[CollectionLink]
) -> None:
    for order in random.Random(7).sample(list(orders({"a": 3, "b": 3, "t": 1})), 40):
        fqid = write(race_stores, targets[0]).fqid
        ends = play(
            race_stores,
            order,
            {
                "a": lambda own, fqid=fqid: patched(own, fqid, add=targets[1:]),
                "b": lambda own, fqid=fqid: patched(own, fqid, remove=targets),
                "t": partial(delete, fqid.uuid),
            },
        )
        won = [end.fqid for end in ends.values() if isinstance(end, WriteResult)]
        lost = [end for end in ends.values() if isinstance(end, Exception)]
        assert len(set(won)) == len(won), "two have one version"
        assert all(isinstance(end, ConflictError | NotFoundError) for end in lost)
        settle(race_stores, fqid.uuid, [fqid, *won])
        assert not any(seen(race_stores, each) for each in (fqid, *won))


@pytest.mark.spec("COL-24")
def test_concurrent_equal_requests_make_one_version(
    race_stores: Stores, targets: list[CollectionLink]
) -> None:
    for order in orders({"a": 3, "b": 3}):
        fqid, key = write(race_stores, targets[0]).fqid, new_uuid()

        def ask(own: Stores, fqid: FQID = fqid, key: str = key) -> WriteResult:
            return patched(own, fqid, add=targets, key=key)

        ends = play(race_stores, order, {"a": ask, "b": ask})
        assert len({end.fqid for end in ends.values()}) == 1, ends


@pytest.mark.parametrize("moves", [1, 2])
def test_completes_reservation_of_dead_writer(
    race_stores: Stores, targets: list[CollectionLink], moves: int
) -> None:
    fqid = FQID(new_uuid(), version())
    ends = play(race_stores, ["a"] * moves, {"a": lambda own: write(own, *targets, fqid=fqid)})
    assert ends == {"a": None}
    assert seen(race_stores, fqid) == set()
    settle(race_stores, fqid.uuid, [fqid])
    assert seen(race_stores, fqid) == set(REPLICAS)
    assert contents(race_stores, fqid, "gcp") == targets


@pytest.mark.spec("COL-24")
@pytest.mark.parametrize("moves", [1, 2])
def test_a_repeated_patch_completes_what_its_dead_twin_reserved(
    race_stores: Stores, targets: list[CollectionLink], moves: int
) -> None:
    fqid, key = write(race_stores, targets[0]).fqid, new_uuid()
    play(race_stores, ["a"] * moves, {"a": lambda own: patched(own, fqid, add=targets, key=key)})
    again = patched(race_stores, fqid, add=targets, key=key)
    assert not again.created
    assert contents(race_stores, again.fqid) == targets


@pytest.mark.spec("COL-05")
def test_a_target_that_goes_while_it_is_checked_is_not_linked_to(own: Stores) -> None:
    file = make_file(own, b"x")
    bundle = FQID(new_uuid(), version())
    entries = [NewEntry("a", file, False)]
    bundles.put(own, BundleDraft(bundle, "aws", 1, entries), OWNER)
    fqid = FQID(new_uuid(), version())

    def bury(stores: Stores) -> None:
        bundles.delete(stores, "aws", *bundle, reason="wrong", author=OWNER)

    ends = play(
        own,
        "taaa",
        {"t": bury, "a": lambda stores: write(stores, CollectionLink("bundle", bundle), fqid=fqid)},
    )
    assert isinstance(ends["a"], Unprocessable)
    assert seen(own, fqid) == set()


@pytest.mark.spec("COL-04")
def test_large_files_have_no_fragments(own: Stores) -> None:
    large = CollectionLink("sample", make_file(own, b" " * (MAX_FILE_BYTES + 1)), "")
    small = CollectionLink("sample", make_file(own, b"{}"), "")
    with pytest.raises(Unprocessable) as refused:
        write(own, small, large)
    assert refused.value.errors.keys() == {"/contents/1"}
    assert str(MAX_FILE_BYTES) in refused.value.errors["/contents/1"][0]
    third = MAX_FRAGMENT_BYTES // 3
    many = [
        CollectionLink("sample", make_file(own, b"%d" % n + b" " * third), "") for n in range(3)
    ]
    with pytest.raises(Unprocessable) as refused:
        write(own, *many)
    assert refused.value.errors.keys() == {f"/contents/{place}" for place in range(3)}
    assert write(own, small, *many[:2]).created


@pytest.mark.spec("COL-14")
def test_waits_for_link_targets_unless_they_are_gone(own: Stores) -> None:
    file = make_file(own, b"x")
    bundle = FQID(new_uuid(), version())
    entries = [NewEntry("a", file, False)]
    bundles.put(own, BundleDraft(bundle, "aws", 1, entries), OWNER)
    fqid = write(own, CollectionLink("file", file), CollectionLink("bundle", bundle)).fqid
    row = Job(flow.Step.SYNC, "gcp", f"collection:{fqid}")
    with pytest.raises(NotReady, match="2 of its links"):
        done(own, row)
    done(own, Job(flow.Step.SYNC, "gcp", f"file:{file}"))
    with pytest.raises(NotReady, match="1 of its links"):
        done(own, row)
    assert seen(own, fqid) == {"aws"}
    bundles.delete(own, "aws", *bundle, reason="wrong", author=OWNER)
    done(own, row)
    assert seen(own, fqid) == {"aws", "gcp"}
    done(own, row)
    assert contents(own, fqid, "gcp") == contents(own, fqid)


def test_names_dead_target_it_waits_for(
    own: Stores,
) -> None:
    some, stuck = make_file(own, b"some"), make_file(own, b"stuck")
    fqid = write(own, CollectionLink("file", some), CollectionLink("file", stuck)).fqid
    row = Job(flow.Step.SYNC, "gcp", f"collection:{fqid}")
    theirs = Job(flow.Step.SYNC, "gcp", f"file:{stuck}")
    with own.catalog.write() as tx:
        jobs.insert(tx, [theirs])
        claim = jobs.claim(tx, theirs, token="t", lease_s=1, max_claims=5)
        assert claim is not None
        jobs.mark_dead(tx, claim, reason="it broke")
    with pytest.raises(NotReady, match=f"file {stuck} was put aside \\(it broke") as fresh:
        done(own, row)
    assert fresh.value.retry_after_s == 1
    for waited_s, again_s in ((600, 60), (1e6, 600)):
        with own.catalog.write() as tx:
            tx.exec_driver_sql(f"UPDATE todo SET born_us = born_us - {int(waited_s * 1e6)}")
            tx.exec_driver_sql("UPDATE todo SET token = NULL, due_us = 0")
        with pytest.raises(NotReady, match="2 of its links") as waits:
            done(own, row)
        assert waits.value.retry_after_s == again_s
    with own.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE todo SET token = NULL, due_us = 0")
        assert jobs.revive(tx, theirs)
    for each in (theirs, Job(flow.Step.SYNC, "gcp", f"file:{some}"), row):
        done(own, each)
    assert seen(own, fqid) == {"aws", "gcp"}


@pytest.mark.spec("REP-05")
def test_a_record_that_differs_is_alarmed_and_left(own: Stores) -> None:
    fqid = write(own).fqid
    key = keys.record_key("collection", fqid)
    other = other_record(record(own, "aws", key))
    own.replicas["gcp"].put(key, other)
    done(own, Job(flow.Step.SYNC, "gcp", f"collection:{fqid}"))
    assert seen(own, fqid) == {"aws"}
    assert record(own, "gcp", key) == other
    with own.catalog.read() as tx:
        assert versions.count_diverged(tx) == 1


def test_sweep_restores_lost_records(own: Stores) -> None:
    fqid = write(own, CollectionLink("file", make_file(own, b"x", everywhere=True))).fqid
    copy(fqid, own)
    key = keys.record_key("collection", fqid)
    before = record(own, "aws", key)
    with own.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE collections SET published_us = published_us - 1000000000")
    for replica in REPLICAS:
        own.replicas[replica].delete(key)
        swept = {(one.kind, one.replica): one.missing for one in sweeps.sweep_replicas(own)}
        assert swept["collection", replica] == 1
        copy(fqid, own)
        assert record(own, replica, key) == before


def test_restored_catalog_takes_in_collections(own: Stores, tmp_path: Path, spares: Spares) -> None:
    file = CollectionLink("file", make_file(own, b"x", everywhere=True))
    kept = write(own, file, CollectionLink("file", file.target, "é"), name="kept").fqid
    later = patched(own, kept, remove=[file]).fqid
    gone = write(own, file).fqid
    collections.delete(own, "aws", gone.uuid, OWNER)
    settle(own, kept.uuid, [kept, later, gone])
    settle(own, gone.uuid, [gone])
    (tmp_path / "new").mkdir()
    with spares.lend("sqlite", tmp_path / "new") as url:
        fresh = build_stores(tmp_path, Catalog(url))
        merged = reconcile.reconcile_catalog(fresh)
        assert not any(one.refused for one in merged)
        for replica in REPLICAS:
            assert contents(fresh, kept, replica) == contents(own, kept)
            assert contents(fresh, later, replica) == contents(own, later)
        assert collections.list_owned(fresh, OWNER, None, 9) == [kept, later]
        one, other = (collections.find(each, "gcp", *later, OWNER) for each in (own, fresh))
        assert collections.build_record(own, one) == collections.build_record(fresh, other)
        with pytest.raises(NotFoundError):
            collections.find(fresh, "aws", *gone, OWNER)
        with pytest.raises(ConflictError):
            write(fresh, file, fqid=gone)
        with pytest.raises(Forbidden):
            write(fresh, fqid=kept, owner="another@example.org")
        fresh.catalog.close()


def test_a_damaged_record_is_replaced_by_the_other_replica_s(own: Stores) -> None:
    fqid = write(own).fqid
    copy(fqid, own)
    key = keys.record_key("collection", fqid)
    good = record(own, "aws", key) or b""
    own.replicas["aws"].delete(key)
    own.replicas["aws"].put(key, good.replace(b'"name":"n"', b'"name":"x"'))
    found = scrub.verify_replica(own, "aws", repair=True, rng=random.Random(0))
    assert [(one.key, one.repaired) for one in found.damaged] == [(key, True)]
    assert record(own, "aws", key) == good


def segments_of(stores: Stores, fqid: FQID) -> list[int]:
    found = collections.find(stores, "aws", *fqid, OWNER)
    with stores.catalog.read() as tx:
        return [run.segment_id for run in catalog_collections.list_link_segments(tx, found.id)]


def test_changed_link_costs_one_segment(race_stores: Stores, targets: list[CollectionLink]) -> None:
    fqid = write(race_stores).fqid
    for step in range(5):
        added = [targets[0]._replace(path=f"{step} {place}") for place in range(1_000)]
        fqid = patched(race_stores, fqid, add=added).fqid
    before = segments_of(race_stores, fqid)
    assert len(before) == 5
    after = patched(race_stores, fqid, remove=[targets[0]._replace(path="2 0")]).fqid
    assert len(set(segments_of(race_stores, after)) - set(before)) == 1
    again = patched(race_stores, after, add=[targets[1]]).fqid
    assert len(contents(race_stores, again)) == 5_000


@settings(max_examples=examples(30))
@given(st.data())
def test_many_patches_end_at_list_limit(
    race_stores: Stores, targets: list[CollectionLink], data: st.DataObject
) -> None:
    count = data.draw(st.sampled_from([0, 1, SEGMENT_ENTRIES - 1, SEGMENT_ENTRIES, 2_100]))
    links = [targets[place % 2]._replace(path=str(place)) for place in range(count)]
    fqid = write(race_stores, *links).fqid
    for step in range(data.draw(st.integers(1, 4))):
        gone = [link for link in links if data.draw(st.integers(0, 99), label="x") < 3][:9]
        fresh = [
            targets[0]._replace(path=f"{step} {place}")
            for place in range(data.draw(st.sampled_from([0, 1, 30, 1_000])))
        ]
        added = [*fresh, *links[:3]]
        fqid = patched(race_stores, fqid, add=added, remove=gone).fqid
        kept = [link for link in links if link not in gone]
        links = [*kept, *(link for link in added if link not in kept)]
        assert contents(race_stores, fqid) == links
