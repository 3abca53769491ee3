"""Two writers of one version, sync and a tombstone, in every interleaving.

Whatever the order, and wherever a writer dies: no two buckets ever hold two contents of one
version, exactly one writer wins, what was acknowledged stays, and what is buried is not seen.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pipelines import bundles, flow, manifests, replication, sweeps
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.manifests import WriteResult
from storage import keys
from storage.catalog import Tx, events, jobs, versions
from storage.catalog import files as catalog_files
from storage.errors import ConflictError, NotFoundError
from storage.model import FQID, REPLICAS, Job, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid
from tests.pipelines.interleavings import play

pytestmark = pytest.mark.spec("BUN-27")

VERSION = "2026-01-01T000000.000000Z"


@pytest.fixture(scope="module")
def file_ids(race_stores: Stores) -> list[FQID]:
    """Two files that are whole in both replicas."""
    return [make_file(race_stores, content, everywhere=True) for content in (b"one", b"two")]


def write(fqid: FQID, replica: Replica, named: list[FQID], stores: Stores) -> WriteResult:
    entries = [NewEntry(f"{file.uuid}.txt", file, False) for file in named]
    return bundles.put(stores, BundleDraft(fqid, replica, 1, entries), "writer@example.org")


def bury(fqid: FQID, stores: Stores) -> str:
    bundles.delete(stores, "gcp", fqid.uuid, None, reason="wrong", author="admin@example.org")
    return "buried"


def copy(fqid: FQID, stores: Stores) -> str:
    """Whatever sync would do at this moment."""
    for replica in REPLICAS:
        row = Job(flow.Step.SYNC, replica, f"bundle:{fqid}")
        with stores.catalog.write() as tx:
            claim = jobs.claim(tx, row, token="sync", lease_s=60, max_claims=99)
        if claim is not None:
            replication.sync_version(stores, claim, lambda _n: None)
    return "copied"


def settle(stores: Stores, fqid: FQID) -> None:
    """What the clock and the workers would do afterwards, until nothing is left to do."""
    for _ in range(4):
        sweeps.enqueue_reservations(stores, grace_s=-1)
        for step, work in (
            (flow.Step.PUBLISH, sweeps.complete_reservation),
            (flow.Step.SYNC, replication.sync_version),
            (flow.Step.BURY, manifests.write_tombstone),
        ):
            for row in _open(stores, step, fqid):
                with stores.catalog.write() as tx:
                    jobs.insert(tx, [row])
                    claim = jobs.claim(tx, row, token="end", lease_s=60, max_claims=99)
                assert claim is not None
                work(stores, claim, lambda _n: None)


def _open(stores: Stores, step: str, fqid: FQID) -> list[Job]:
    refs = (f"bundle:{fqid}", fqid.uuid)
    rows = [Job(step, replica, ref) for replica in REPLICAS for ref in refs]
    with stores.catalog.read() as tx:
        return [row for row in rows if jobs.exists(tx, row)]


def record(stores: Stores, replica: Replica, fqid: FQID) -> bytes | None:
    try:
        return b"".join(stores.replicas[replica].read(keys.record_key("bundle", fqid)))
    except NotFoundError:
        return None


def happened(tx: Tx, kind: Any, fqid: FQID) -> set[str]:
    return {
        replica
        for replica in REPLICAS
        if events.find(tx, events.make_event_id(kind, replica, fqid)) is not None
    }


def judge(stores: Stores, fqid: FQID, ends: dict[str, Any], *, same: bool) -> None:
    """The guarantees, after everything came to rest."""
    for end in ends.values():
        assert (
            end is None
            or not isinstance(end, Exception)
            or isinstance(end, ConflictError | NotFoundError)
        )
    won = [name for name in ("a", "b") if isinstance(ends.get(name), WriteResult)]
    assert sum(ends[name].created for name in won) <= 1, "two were told that they made it"
    if not same:
        assert len(won) <= 1
    elif "t" not in ends:
        assert not any(isinstance(end, Exception) for end in ends.values())
    settle(stores, fqid)
    contents = {record(stores, replica, fqid) for replica in REPLICAS}
    assert len(contents) == 1, "the replicas differ"
    if won:
        assert None not in contents, "what was acknowledged is gone"
    _judge_visible(stores, fqid, ends, won=won)


def _judge_visible(stores: Stores, fqid: FQID, ends: dict[str, Any], *, won: list[str]) -> None:
    with stores.catalog.read() as tx:
        seen = {r for r in REPLICAS if versions.find_published(tx, "bundle", r, fqid) is not None}
        created, buried = happened(tx, "CREATE", fqid), happened(tx, "TOMBSTONE", fqid)
    if ends.get("t") == "buried":
        assert seen == set()
        assert buried == created, "one TOMBSTONE for each version that was live"
    else:
        assert buried == set()
        assert seen == created
        if won:
            assert seen == set(REPLICAS)


Actor = Callable[[Stores], Any]


def orders(counts: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Every order of so many moves each."""
    moves = "".join(name * count for name, count in counts.items())
    yield from sorted(set(itertools.permutations(moves)))


def run(stores: Stores, order: tuple[str, ...], file_ids: list[FQID], *, same: bool) -> None:
    fqid = FQID(new_uuid(), VERSION)
    # The same content in another order is the same content.
    second = file_ids[::-1] if same else file_ids[1:]
    actors: dict[str, Actor] = {
        "a": partial(write, fqid, "aws", file_ids),
        "b": partial(write, fqid, "gcp", second),
        "t": partial(bury, fqid),
        "s": partial(copy, fqid),
    }
    taking_part = {name: actors[name] for name in sorted(set(order))}
    judge(stores, fqid, play(stores, order, taking_part), same=same)


@pytest.mark.parametrize("same", [False, True])
def test_two_writers_in_every_order_with_crashes(
    race_stores: Stores, file_ids: list[FQID], same: bool
) -> None:
    for mine, others in itertools.product(range(4), repeat=2):
        for order in orders({"a": mine, "b": others}):
            if order:
                run(race_stores, order, file_ids, same=same)


@pytest.mark.parametrize("same", [False, True])
def test_two_writers_and_tombstone_in_every_order(
    race_stores: Stores, file_ids: list[FQID], same: bool
) -> None:
    for order in orders({"a": 3, "b": 3, "t": 1}):
        run(race_stores, order, file_ids, same=same)


@pytest.mark.parametrize("same", [False, True])
def test_two_writers_sync_and_tombstone_in_many_orders(
    race_stores: Stores, file_ids: list[FQID], same: bool
) -> None:
    rng = random.Random(7)
    moves = list("aaabbbtssss")
    for _ in range(150):
        rng.shuffle(moves)
        run(race_stores, tuple(moves), file_ids, same=same)


@pytest.mark.spec("BUN-28")
def test_a_bundle_of_absent_files_puts_nothing(race_stores: Stores) -> None:
    fqid = FQID(new_uuid(), VERSION)
    with pytest.raises(Exception, match="do not exist"):
        write(fqid, "aws", [FQID(new_uuid(), VERSION)], race_stores)
    assert record(race_stores, "aws", fqid) is None
    with race_stores.catalog.read() as tx:
        assert catalog_files.find(tx, fqid) is None
