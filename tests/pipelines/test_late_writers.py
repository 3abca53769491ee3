"""Late writers: condemned blobs, taken keys, records after a purge."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pipelines import (
    areas,
    bundles,
    checksums,
    copies,
    files,
    flow,
    garbage_collection,
    ingest,
    purges,
    sweeps,
)
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.ingest import IngestRequest
from storage import keys
from storage.catalog import files as file_rows
from storage.catalog import garbage_collection as catalog_garbage_collection
from storage.catalog import ingest as catalog_ingest
from storage.catalog import jobs, now_us
from storage.errors import DomainError, Unavailable
from storage.model import CHECKSUM_NAMES, FQID, REPLICAS, Job, JobClaim, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.pipelines.interleavings import play
from tests.pipelines.purge_runs import finish

OWNER = "depositor@example.org"


def stage(stores: Stores, content: bytes) -> str:
    """A staged object's URL."""
    hashed = checksums.compute_checksums([content], len(content)).checksums
    area = new_uuid()
    areas.create(stores, area, OWNER)
    key = keys.area_file_key(area, "a.txt")
    metadata = {f"store-{field}": getattr(hashed, field) for field in CHECKSUM_NAMES}
    stores.areas.put(key, content, metadata=metadata)
    return stores.areas.direct_url(key)


def deposit(stores: Stores, url: str, fqid: FQID) -> ingest.AcceptedIngest:
    return ingest.start_task(stores, IngestRequest(fqid, "aws", url, 1), OWNER)


def claimed(stores: Stores, row: Job) -> JobClaim | None:
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        return jobs.claim(tx, row, token=new_uuid(), lease_s=60, max_claims=99)


def verify(stores: Stores, row: Job) -> None:
    claim = claimed(stores, row)
    assert claim is not None
    ingest.verify(stores, claim, lambda _n: None)


def blob(content: bytes) -> str:
    return keys.blob_key(sha256(content))


def sha256(content: bytes) -> str:
    return checksums.compute_checksums([content], len(content)).checksums.sha256


# Bytes on their way out


def orphaned(stores: Stores, content: bytes) -> None:
    """Bytes that nothing refers to, condemned long ago."""
    stores.replicas["aws"].put(blob(content), content)
    with stores.catalog.write() as tx:
        catalog_garbage_collection.condemn(tx, "aws", [sha256(content)])


def reap(stores: Stores) -> int:
    garbage_collection.condemn_orphans(stores)
    return garbage_collection.delete_expired(stores, grace_s=-1)


def take_in(url: str, fqid: FQID, stores: Stores) -> str:
    """A deposit and its verification, as long as it takes."""
    accepted = deposit(stores, url, fqid)
    for row in accepted.jobs:
        verify(stores, row)
    return "taken in"


def orders(first: int, second: int) -> Iterator[list[str]]:
    """Every order of so many moves of the reaper and of the depositor."""
    for places in itertools.combinations(range(first + second), first):
        yield ["r" if place in places else "d" for place in range(first + second)]


@pytest.mark.spec("BUN-62")
def test_condemned_bytes_that_are_deposited_again_are_there_in_every_order(
    race_stores: Stores,
) -> None:
    whole = 0
    for order in orders(3, 7):
        content, fqid = new_uuid().encode(), FQID(new_uuid(), version())
        orphaned(race_stores, content)
        url = stage(race_stores, content)
        actors: dict[str, Callable[[Stores], Any]] = {"r": reap, "d": partial(take_in, url, fqid)}
        ends = play(race_stores, order + ["d"] * 20, actors)
        assert ends["d"] == "taken in", (order, ends)
        assert files.locate(race_stores, "aws", *fqid).state == "here"
        reap(race_stores)
        whole += b"".join(race_stores.replicas["aws"].read(blob(content))) == content
    assert whole == sum(1 for _ in orders(3, 7))


@pytest.mark.spec("FIL-12")
def test_a_depositor_that_dies_anywhere_leaves_bytes_that_go_or_a_file_that_is_whole(
    race_stores: Stores,
) -> None:
    for moves in range(1, 9):
        content, fqid = new_uuid().encode(), FQID(new_uuid(), version())
        orphaned(race_stores, content)
        url = stage(race_stores, content)
        play(race_stores, ["d"] * moves + ["r"] * 9, {"r": reap, "d": partial(take_in, url, fqid)})
        with race_stores.catalog.read() as tx:
            task = catalog_ingest.find_current(tx, fqid)
        assert task is not None
        if task.state == "PENDING":
            verify(race_stores, Job(flow.Step.VERIFY, "aws", task.id))
        reap(race_stores)
        assert b"".join(race_stores.replicas["aws"].read(blob(content))) == content


@pytest.mark.spec("BUN-62")
def test_deposit_of_bytes_in_deletion_waits_and_stores_them(
    race_stores: Stores,
) -> None:
    content, fqid = new_uuid().encode(), FQID(new_uuid(), version())
    orphaned(race_stores, content)
    url = stage(race_stores, content)
    begun, may_go = threading.Event(), threading.Event()

    class Slow:
        def __getattr__(self, verb: str) -> Any:
            return getattr(race_stores.replicas["aws"], verb)

        def delete(self, key: str) -> None:
            begun.set()
            assert may_go.wait(20)
            race_stores.replicas["aws"].delete(key)

    slow: Any = {**race_stores.replicas, "aws": Slow()}
    with ThreadPoolExecutor(2) as pool:
        reaping = pool.submit(
            garbage_collection.delete_expired, replace(race_stores, replicas=slow), grace_s=-1
        )
        assert begun.wait(20)
        taking = pool.submit(take_in, url, fqid, race_stores)
        with pytest.raises(TimeoutError):
            taking.result(0.5)
        may_go.set()
        assert reaping.result(20) == 1
        assert taking.result(20) == "taken in"
    assert b"".join(race_stores.replicas["aws"].read(blob(content))) == content


# Keys that are taken


class Racing:
    """A bucket in which somebody else is always a moment faster, with bytes of their own."""

    def __init__(self, inner: Any, theirs: bytes) -> None:
        self._inner, self._theirs, self._left = inner, theirs, 1

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    def _win(self, key: str) -> None:
        if self._left and key.startswith(keys.BLOBS):
            self._left -= 1
            self._inner.put(key, self._theirs)

    def put(self, key: str, data: bytes, **more: Any) -> Any:
        self._win(key)
        return self._inner.put(key, data, **more)

    def upload(self, key: str, **more: Any) -> Any:
        self._win(key)
        return self._inner.upload(key, **more)


@pytest.mark.spec("FIL-12")
@pytest.mark.parametrize("size", [100, copies.INLINE_BYTES + 1])
@pytest.mark.parametrize("length", [0, 1])
def test_other_bytes_under_key_are_rejected(stores: Stores, size: int, length: int) -> None:
    content = b"a" * size
    theirs = b"b" * (size - length)
    fqid = FQID(new_uuid(), version())
    accepted = deposit(stores, stage(stores, content), fqid)
    racing: Any = Racing(stores.replicas["aws"], theirs)
    raced = replace(stores, replicas={**stores.replicas, "aws": racing})
    if size > copies.INLINE_BYTES:
        with pytest.raises(Unavailable):
            verify(raced, accepted.jobs[0])
        assert files.locate(stores, "aws", *fqid).state == "pending"
        verify(stores, accepted.jobs[0])
    else:
        verify(raced, accepted.jobs[0])
    assert files.locate(stores, "aws", *fqid).state == "here"
    assert b"".join(stores.replicas["aws"].read(blob(content))) == content


@pytest.mark.spec("FIL-12")
@pytest.mark.parametrize("size", [0, 100, copies.INLINE_BYTES + 1])
def test_equal_bytes_of_other_writer_are_success(stores: Stores, size: int) -> None:
    content = b"a" * size
    fqid = FQID(new_uuid(), version())
    accepted = deposit(stores, stage(stores, content), fqid)
    racing: Any = Racing(stores.replicas["aws"], content)
    verify(replace(stores, replicas={**stores.replicas, "aws": racing}), accepted.jobs[0])
    assert files.locate(stores, "aws", *fqid).state == "here"


# After a purge


def buried(stores: Stores, file: FQID) -> FQID:
    """A bundle of one file, under a tombstone."""
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry("a.txt", file, False)]), OWNER)
    bundles.delete(stores, "aws", *fqid, reason="r", author=OWNER)
    return fqid


def listed(stores: Stores, replica: Replica) -> set[str]:
    return {info.key for info in stores.replicas[replica].list("")}


@pytest.mark.spec("BUN-62")
def test_sweep_removes_record_written_after_purge(stores: Stores, drain: Callable[[], int]) -> None:
    file = make_file(stores, b"x", everywhere=True)
    other = make_file(stores, b"y", everywhere=True)
    fqid = buried(stores, file)
    drain()
    purges.order_purge(stores, *fqid, reason="r", author=OWNER)
    finish(stores, drain)
    late = [keys.record_key("bundle", fqid), keys.record_key("file", file)]
    unknown = keys.record_key("file", FQID(new_uuid(), version()))
    for replica in REPLICAS:
        for key in (*late, unknown):
            stores.replicas[replica].put(key, b"late")
    sweeps.sweep_replicas(stores, repair=False)
    assert set(late) <= listed(stores, "gcp"), "a look changes nothing"
    sweeps.sweep_replicas(stores)
    for replica in REPLICAS:
        there = listed(stores, replica)
        assert not there & set(late)
        assert {unknown, keys.record_key("file", other)} <= there


@pytest.mark.spec("BUN-62")
def test_verification_that_missed_a_purge_creates_no_file(
    stores: Stores, drain: Callable[[], int]
) -> None:
    file, url = FQID(new_uuid(), version()), stage(stores, b"content")
    accepted = deposit(stores, url, file)
    with stores.catalog.read() as tx:
        row = catalog_ingest.find(tx, accepted.task_id or "")
    assert row is not None
    slept = claimed(stores, accepted.jobs[0])
    assert slept is not None
    verify(stores, accepted.jobs[0])  # By a twin, since the claim was lost.
    fqid = buried(stores, file)
    drain()
    purges.order_purge(stores, *fqid, reason="r", author=OWNER)
    finish(stores, drain)
    hashed = checksums.compute_checksums([b"content"], 7)
    with pytest.raises((DomainError, ingest.VerificationFailed)):
        ingest._publish_file(stores, row, hashed, slept)
    with stores.catalog.read() as tx:
        assert file_rows.find(tx, file) is None
        assert not catalog_garbage_collection.list_deletable(
            tx, "aws", now_us(tx) - 3_600_000_000, limit=9
        )
    assert keys.record_key("file", file) not in listed(stores, "aws")
