"""Concurrent transactions of many processes."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest
from sqlalchemy import text

from storage.catalog import Catalog, bundles, deliveries, events, jobs, subscriptions, versions
from storage.catalog.versions import Tombstone
from storage.errors import NotFoundError, Unavailable
from storage.model import FQID, BundleEvent, Job
from tests.builders import new_uuid, version
from tests.subscription_builders import a_subscription, subscribe

ROUNDS = 40


def together(*acts: Callable[[], object]) -> list[object]:
    """Run them at the same time, as nearly as threads can."""
    barrier = Barrier(len(acts))

    def act(one: Callable[[], object]) -> object:
        barrier.wait()
        return one()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


def publish(catalog: Catalog, fqid: FQID) -> None:
    with catalog.write() as tx:
        versions.lock_heads(tx, "bundle", [fqid.uuid])
        if versions.find_covering_tombstone(tx, "bundle", fqid.uuid, fqid.version) is None:
            versions.publish(tx, "bundle", "aws", fqid, 1)


def bury(catalog: Catalog, uuid: str) -> None:
    stone = Tombstone(0, "bundle", uuid, "", "r", "d", "aws", "a", "e", 0)
    with catalog.write() as tx:
        versions.lock_heads(tx, "bundle", [uuid])
        versions.insert_tombstone(tx, stone)
        versions.unpublish(tx, "bundle", uuid, None)


@pytest.mark.spec("BUN-56")
def test_no_version_survives_the_tombstone_of_its_uuid(catalog: Catalog) -> None:
    for _ in range(ROUNDS):
        fqid = FQID(new_uuid(), version())
        together(lambda f=fqid: publish(catalog, f), lambda f=fqid: bury(catalog, f.uuid))  # type: ignore[misc]
        with catalog.read() as tx:
            assert versions.find_published(tx, "bundle", "aws", fqid) is None


def test_a_row_is_claimed_by_exactly_one(catalog: Catalog) -> None:
    def take(row: Job, token: str) -> object:
        with catalog.write() as tx:
            return jobs.claim(tx, row, token=token, lease_s=60, max_claims=5)

    for number in range(ROUNDS):
        row = Job("index", "aws", str(number))
        with catalog.write() as tx:
            jobs.insert(tx, [row])
        got = together(*(lambda r=row, t=str(t): take(r, t) for t in range(4)))  # type: ignore[misc]
        assert sum(claim is not None for claim in got) == 1


def test_one_of_many_reserves_a_version(catalog: Catalog) -> None:
    def reserve(fqid: FQID, digest: str) -> str:
        with catalog.write() as tx:
            versions.lock_heads(tx, "bundle", [fqid.uuid])
            row = bundles.find(tx, fqid)
            if row is not None:
                return row.digest
            new = bundles.NewBundleVersion(fqid, digest, "aws", 1, "a", None, "e", [])
            return bundles.insert(tx, new).digest

    for _ in range(ROUNDS):
        fqid = FQID(new_uuid(), version())
        got = together(*(lambda f=fqid, d=str(d): reserve(f, d) for d in range(4)))  # type: ignore[misc]
        assert len(set(got)) == 1


def test_a_failed_unit_of_work_leaves_nothing(catalog: Catalog) -> None:
    def fail() -> None:
        with catalog.write() as tx:
            jobs.insert(tx, [Job("index", "aws", "x")])
            raise NotFoundError("on purpose")

    for _ in range(3):
        with pytest.raises(NotFoundError):
            fail()
    with catalog.read() as tx:
        assert jobs.count_open(tx) == {}


def test_only_expendable_writes_skip_fsync(catalog: Catalog) -> None:
    setting = "PRAGMA synchronous" if catalog.sqlite else "SHOW synchronous_commit"
    levels = []
    for durable in (True, False, True):
        with catalog.write(durable=durable) as tx:
            levels.append(str(tx.exec_driver_sql(setting).scalar_one()))
    assert levels == (["2", "1", "2"] if catalog.sqlite else ["on", "off", "on"])


@pytest.mark.spec("EVT-05")
def test_sequencers_at_once_number_every_event_once_without_a_gap(catalog: Catalog) -> None:
    """A reader of the feed that sees a number has seen, or will never see, all numbers before."""
    count, writers = 25, 4

    def happen(writer: int) -> None:
        for number in range(count):
            with catalog.write() as tx:
                fqid = FQID(new_uuid(), version(number))
                events.append(tx, "CREATE", "gcp" if (writer + number) % 3 else "aws", fqid, 1)

    def sequence() -> list[list[tuple[str, int]]]:
        seen = []
        while len(seen) < 400:
            with catalog.write() as tx:
                events.assign_sequence(tx, limit=7)
            with catalog.read() as tx:
                seen.append(_feed(catalog))
                if len(seen[-1]) == count * writers:
                    break
        return seen

    acts = [lambda w=writer: happen(w) for writer in range(writers)]  # type: ignore[misc]
    *_, first, second = together(*acts, sequence, sequence)
    for seen in (*first, *second):  # type: ignore[misc]
        for replica in ("aws", "gcp"):
            numbers = [seq for where, seq in seen if where == replica]
            assert numbers == list(range(1, len(numbers) + 1))
    with catalog.read() as tx:
        assert not events.has_unsequenced(tx)


def _feed(catalog: Catalog) -> list[tuple[str, int]]:
    query = "SELECT replica, seq FROM events WHERE seq IS NOT NULL ORDER BY replica, seq"
    with catalog.read() as tx:
        return [(row[0], row[1]) for row in tx.exec_driver_sql(query)]


def test_event_numbers_are_permanent(catalog: Catalog) -> None:
    def happen() -> None:
        with catalog.write() as tx:
            for number in range(30):
                events.append(tx, "CREATE", "aws", FQID(new_uuid(), version(number)), 1)

    def number() -> None:
        with catalog.write() as tx:
            events.assign_sequence(tx)

    places: dict[str, int] = {}
    for _ in range(8):
        happen()
        together(number, number, number)
        with catalog.read() as tx:
            found = tx.exec_driver_sql("SELECT id, seq FROM events WHERE seq IS NOT NULL")
            now = {row[0]: row[1] for row in found}
        assert places.items() <= now.items()
        assert sorted(now.values()) == list(range(1, len(now) + 1))
        places = now


def test_batches_claimed_at_the_same_instant_are_full(server: Catalog) -> None:
    with server.write() as tx:
        jobs.insert(tx, [Job("verify", "aws", str(number)) for number in range(600)])
    with ExitStack() as transactions:
        claimed = [
            jobs.claim_more(
                transactions.enter_context(server.write()),
                Job("verify", "aws", "any"),
                token=str(number),
                lease_s=30,
                limit=64,
            )
            for number in range(8)
        ]
    assert [len(claims) for claims in claimed] == [64] * 8
    assert len({claim.job for claims in claimed for claim in claims}) == 512


def test_sequencer_waits_for_numbers_of_others(server: Catalog) -> None:
    with server.write() as tx:
        for number in range(3):
            events.append(tx, "CREATE", "aws", FQID(new_uuid(), version(number)), 1)

    def number() -> int:
        with server.write() as tx:
            return events.assign_sequence(tx)

    with ThreadPoolExecutor(1) as pool:
        with server.write() as tx:
            assert events.assign_sequence(tx) == 3
            with server.write() as late:
                ident = events.append(late, "CREATE", "aws", FQID(new_uuid(), version()), 1)
                late.execute(text("UPDATE events SET at_us = 0 WHERE id = :id"), {"id": ident})
            other = pool.submit(number)
            time.sleep(0.2)
            assert not other.done()
        assert other.result() == 1
    with server.read() as tx:
        found = tx.exec_driver_sql("SELECT id FROM events ORDER BY seq").scalars().all()
    assert found[3] == ident


@pytest.mark.spec("SUB-11")
def test_no_owner_gets_one_more_than_the_quota(catalog: Catalog) -> None:
    def another() -> bool:
        fresh = a_subscription(owner="o")
        with catalog.write() as tx:
            return (
                subscriptions.insert_subscription(tx, fresh, address="http://h/", limit=100)
                is not None
            )

    for _ in range(97):
        assert another()
    assert sum(map(bool, together(*[another] * 8))) == 3
    with catalog.read() as tx:
        assert subscriptions.count_by_owner(tx, "o") == 100


def test_an_event_matched_by_many_is_delivered_once(catalog: Catalog) -> None:
    subscription = subscribe(catalog, "http://h/")
    for number in range(10):
        fqid = FQID(new_uuid(), version(number))
        with catalog.write() as tx:
            ident = events.append(tx, "CREATE", "aws", fqid, 1)
        event = BundleEvent(ident, "aws", "CREATE", fqid, 1, 1)
        fresh = deliveries.NewDelivery(
            deliveries.make_delivery_id(subscription.uuid, ident), subscription.id, "{}"
        )

        def record(event: BundleEvent = event, fresh: deliveries.NewDelivery = fresh) -> int:
            with catalog.write() as tx:
                return len(deliveries.insert_matches(tx, [fresh], event))

        assert sum(together(*[record] * 4)) == 1  # type: ignore[arg-type]


def test_deadlock_victim_may_retry(server: Catalog) -> None:
    """Nothing here waits so; should it, one of the two has to give way, and may come back."""
    uuids = [new_uuid(), new_uuid()]
    for uuid in uuids:
        with server.write() as tx:
            versions.lock_heads(tx, "bundle", [uuid])
    held = Barrier(2)

    def cross(first: str, second: str) -> str:
        try:
            with server.write() as tx:
                versions.lock_heads(tx, "bundle", [first])
                held.wait()
                versions.lock_heads(tx, "bundle", [second])
                return "through"
        except Unavailable as error:
            return str(error.retry_after_s)

    ends = together(lambda: cross(*uuids), lambda: cross(*reversed(uuids)))
    assert sorted(map(str, ends)) == ["1", "through"]


def test_locks_many_heads_in_one_order(catalog: Catalog) -> None:
    uuids = [new_uuid() for _ in range(40)]

    def hold(turn: int) -> None:
        for _ in range(10):
            with catalog.write() as tx:
                versions.lock_heads(tx, "file", uuids if turn % 2 else uuids[::-1])

    together(*(lambda t=turn: hold(t) for turn in range(6)))  # type: ignore[misc]
