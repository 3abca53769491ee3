"""Everything at once from many threads: invariants hold and nothing deadlocks."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import text

from pipelines import bundles, flow, manifests, replication, sweeps
from pipelines.bundles import BundleDraft, NewEntry
from storage.catalog import Catalog, deliveries, events, jobs, subscriptions, versions
from storage.errors import ClaimLost, ConflictError, DomainError, NotFoundError
from storage.model import FQID, REPLICAS, BundleEvent, Job, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.subscription_builders import subscribe

SECONDS = 4.0
STEPS = {
    flow.Step.SYNC: replication.sync_version,
    flow.Step.BURY: manifests.write_tombstone,
    flow.Step.PUBLISH: sweeps.complete_reservation,
}
EXPECTED = (ConflictError, NotFoundError, ClaimLost)


@pytest.fixture(scope="module")
def file_ids(race_stores: Stores) -> list[FQID]:
    return [make_file(race_stores, content, everywhere=True) for content in (b"one", b"two")]


def write(stores: Stores, fqid: FQID, replica: Replica, named: list[FQID]) -> None:
    entries = [NewEntry(f"{file.uuid}.txt", file, False) for file in named]
    bundles.put(stores, BundleDraft(fqid, replica, 1, entries), "writer@example.org")


@pytest.mark.spec("BUN-56")
def test_none_of_many_versions_survives_the_tombstone_of_its_uuid(
    race_stores: Stores, file_ids: list[FQID]
) -> None:
    uuid = new_uuid()
    write(race_stores, FQID(uuid, version(0)), "aws", file_ids)

    def put(number: int) -> bool:
        try:
            write(race_stores, FQID(uuid, version(number)), "aws", file_ids)
        except ConflictError:
            return False
        return True

    def bury(_: int) -> bool:
        bundles.delete(race_stores, "aws", uuid, None, reason="wrong", author="a@example.org")
        return True

    with ThreadPoolExecutor(8) as pool:
        before = [pool.submit(put, number) for number in range(1, 150)]
        buried = pool.submit(bury, 0)
        after = [pool.submit(put, number) for number in range(150, 301)]
        assert buried.result()
        put_well = [each.result() for each in (*before, *after)]
    assert any(put_well)
    assert not all(put_well)
    with race_stores.catalog.read() as tx:
        for replica in REPLICAS:
            assert versions.find_latest(tx, "bundle", replica, uuid) is None


def deadlocks(catalog: Catalog) -> int:
    if catalog.sqlite:
        return 0
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    with catalog.read() as tx:
        return int(tx.execute(text(query)).scalar_one())


class Storm:
    """What each of many does, over and over, until the time is up."""

    def __init__(self, stores: Stores, file_ids: list[FQID]) -> None:
        self.stores, self.file_ids = stores, file_ids
        self.uuids = [new_uuid() for _ in range(5)]
        self.subscription = subscribe(stores.catalog, "http://h/")

    def put(self, rng: random.Random) -> None:
        fqid = FQID(rng.choice(self.uuids), version(rng.randrange(200)))
        named = rng.choice((self.file_ids, self.file_ids[1:]))
        write(self.stores, fqid, rng.choice(REPLICAS), named)

    def bury(self, rng: random.Random) -> None:
        fqid = FQID(rng.choice(self.uuids), version(rng.randrange(200)))
        time.sleep(0.02)
        bundles.delete(self.stores, "gcp", *fqid, reason="wrong", author="a@example.org")

    def work(self, rng: random.Random) -> None:
        step = rng.choice(list(STEPS))
        with self.stores.catalog.write(durable=False) as tx:
            due = jobs.take_due(tx, step, limit=8, resend=True)
        for row, *_ in due:
            self._one(step, row)

    def _one(self, step: flow.Step, row: Job) -> None:
        with self.stores.catalog.write(durable=False) as tx:
            claim = jobs.claim(tx, row, token=new_uuid(), lease_s=60, max_claims=99)
        if claim is None:
            return
        with self.stores.catalog.write(durable=False) as tx:
            if not jobs.renew(tx, claim, lease_s=60):
                raise ClaimLost("The claim was lost.")
        STEPS[step](self.stores, claim, lambda _n: None)

    def sequence(self, _rng: random.Random) -> None:
        with self.stores.catalog.write() as tx:
            events.assign_sequence(tx, limit=20)

    def match(self, rng: random.Random) -> None:
        fqid = FQID(rng.choice(self.uuids), version(rng.randrange(200)))
        kind = rng.choice(("CREATE", "TOMBSTONE"))
        ident = events.make_event_id(kind, "aws", fqid)  # type: ignore[arg-type]
        event = BundleEvent(ident, "aws", kind, fqid, 1, rng.randrange(10**6))  # type: ignore[arg-type]
        name = deliveries.make_delivery_id(self.subscription.uuid, ident)
        fresh = deliveries.NewDelivery(name, self.subscription.id, "{}")
        with self.stores.catalog.write() as tx:
            deliveries.insert_matches(tx, [fresh], event)

    def deliver(self, rng: random.Random) -> None:
        with self.stores.catalog.read() as tx:
            due = deliveries.list_due(tx, self.subscription.endpoint_id, limit=20)
        rng.shuffle(due)
        ends = [
            deliveries.AttemptResult(each.id, 1, 0.1, 204, None, None, "delivered", 1, None)
            for each in due
        ]
        with self.stores.catalog.write() as tx:
            deliveries.record_attempts(tx, ends)

    def subscribe(self, _rng: random.Random) -> None:
        made = subscribe(self.stores.catalog, "http://h/")
        with self.stores.catalog.write() as tx:
            subscriptions.mark_deleted(tx, made)
            deliveries.cancel_pending(tx, made.id, made.endpoint_id)

    def sweep(self, _rng: random.Random) -> None:
        sweeps.enqueue_reservations(self.stores, grace_s=-1)


def test_concurrent_writers_never_deadlock(race_stores: Stores, file_ids: list[FQID]) -> None:
    storm = Storm(race_stores, file_ids)
    stop = threading.Event()
    before = deadlocks(race_stores.catalog)

    def act(what: Callable[[random.Random], None], seed: int) -> tuple[int, list[Exception]]:
        rng, done, surprises = random.Random(seed), 0, []
        while not stop.is_set():
            try:
                what(rng)
                done += 1
            except EXPECTED:
                pass
            except Exception as error:
                surprises.append(error)
        return done, surprises

    acts = [storm.put, storm.put, storm.put, storm.bury, storm.work, storm.work, storm.work]
    acts += [storm.sequence, storm.sequence, storm.match, storm.match, storm.deliver]
    acts += [storm.deliver, storm.subscribe, storm.sweep]
    with ThreadPoolExecutor(len(acts)) as pool:
        going = [pool.submit(partial(act, what), seed) for seed, what in enumerate(acts)]
        time.sleep(SECONDS)
        stop.set()
        ends = [each.result() for each in going]
    surprises = [error for _, each in ends for error in each]
    assert [f"{type(e).__name__}: {e}" for e in surprises if not isinstance(e, DomainError)] == []
    assert surprises == [], "even what may be tried again"
    # What a session counts is told a moment later.
    time.sleep(0 if race_stores.catalog.sqlite else 1.1)
    assert deadlocks(race_stores.catalog) == before
    _numbered_in_order(race_stores)


def _numbered_in_order(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        while events.assign_sequence(tx, limit=1000):
            pass
        rows = tx.execute(text("SELECT replica, seq FROM events ORDER BY replica, seq")).all()
    for replica in REPLICAS:
        numbers = [row[1] for row in rows if row[0] == replica]
        assert numbers == list(range(1, len(numbers) + 1))
