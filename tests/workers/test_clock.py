"""What ticks: one clock leads, queues are refilled within bounds, events get their numbers."""

from dataclasses import replace

import pytest

from config.settings import Settings
from pipelines import topics
from pipelines.flow import DELIVER, Step
from storage.catalog import audit, events, subscriptions, todo
from storage.catalog.audit import Change, Filter
from storage.catalog.engine import sql
from storage.model import FQID, Todo
from storage.stores import Stores
from tests.builders import new_uuid, version
from tests.telling import happen, match, states, subscribe, tell, told
from workers.broker import MemoryBroker
from workers.chains import Chains
from workers.scheduler import Clock


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def clock(settings: Settings, stores: Stores, broker: MemoryBroker) -> Clock:
    return Clock(replace(settings, refill_rows=10), stores, Chains(broker))


def needs(stores: Stores, count: int, *, sent: bool, step: Step = Step.INDEX) -> list[Todo]:
    rows = [Todo(step, "aws", f"b.{n}") for n in range(count)]
    with stores.catalog.write() as tx:
        todo.add(tx, rows, sent=sent)
    return rows


def test_only_the_leading_clock_works(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    first, second = clock(settings, stores, broker), clock(settings, stores, broker)
    ran: list[str] = []
    for each in (first, second):
        each.lead()
    first.job(lambda: ran.append("first"))()
    second.job(lambda: ran.append("second"))()
    assert ran == ["first"]
    first.leave()
    second.lead()
    second.job(lambda: ran.append("second"))()
    assert ran == ["first", "second"]


def test_a_failing_job_does_not_stop_the_clock(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    def failing() -> None:
        raise ZeroDivisionError

    ours = clock(settings, stores, broker)
    ours.lead()
    ours.job(failing)()


def test_queues_are_filled_with_a_bounded_number_of_due_rows(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    needs(stores, 25, sent=False, step=Step.SYNC_LARGE)
    ours = clock(settings, stores, broker)
    ours.refill()
    assert broker.depth("sync_large") == 10
    ours.refill()
    assert broker.depth("sync_large") == 10, "a full queue is left alone"


def test_an_emptied_queue_is_filled_again_at_once(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    needs(stores, 5, sent=True, step=Step.SYNC_LARGE)
    clock(settings, stores, broker).refill()
    assert broker.depth("sync_large") == 5


def test_a_batch_gets_one_message_and_what_failed_before_its_own(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    rows = needs(stores, 9, sent=False)
    with stores.catalog.write() as tx:
        for row in rows[:2]:
            held = todo.claim(tx, row, token="t", lease_s=60, max_claims=9)
            assert held is not None
            todo.postpone(tx, held, delay_s=0, reason="it failed")
    clock(settings, stores, broker).refill()
    assert broker.depth("index") == 3


def test_events_are_numbered_in_the_order_of_their_commits(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    fqids = [FQID(new_uuid(), version()) for _ in range(6)]
    with stores.catalog.write() as tx:
        for fqid in fqids:
            events.append(tx, "CREATE", "aws", fqid, 1)
            events.append(tx, "CREATE", "gcp", fqid, 1)
    ours = clock(settings, stores, broker)
    ours.number()
    with stores.catalog.write() as tx:
        events.append(tx, "TOMBSTONE", "aws", fqids[0], 1)
    ours.number()
    with stores.catalog.read() as tx:
        assert not events.unnumbered(tx)
        rows = tx.exec_driver_sql("SELECT replica, seq FROM events ORDER BY replica, seq").all()
    assert [row[1] for row in rows] == [*range(1, 8), *range(1, 7)]


def test_a_sweep_of_an_empty_store_finds_nothing_to_do(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    ours = clock(settings, stores, broker)
    ours.complete()
    ours.sweep()
    with stores.catalog.read() as tx:
        assert todo.backlog(tx) == {}


def test_deliveries_are_let_go_and_forgotten(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    ours = clock(replace(settings, delivery_keep_days=0), stores, broker)
    subscription = subscribe(stores.catalog, "https://receiver.example/hook")
    with stores.catalog.write() as tx:
        subscriptions.halt(tx, subscription.id)
    event, _ = tell(stores.catalog, [subscription], times=2)
    match(stores.catalog, happen(stores.catalog, "TOMBSTONE", event.fqid))
    with stores.catalog.write() as tx:
        subscriptions.resume(tx, subscription.id)
    ours.refill()
    assert broker.depth(DELIVER) == 0
    ours.settle()
    ours.refill()
    assert broker.depth(DELIVER) == 1
    assert [one.next_us is None for one in told(stores.catalog, subscription)] == [True, False]
    ours.forget()
    assert states(stores.catalog, subscription) == ["pending"]


def test_the_audit_log_forgets_old_logins_and_keeps_changes(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    with stores.catalog.write() as tx:
        for what in ("login_failed", "put_v1_user"):
            audit.add(tx, Change("who", what, "user/a@example.org", None, None, ""))
        tx.execute(sql("UPDATE audit SET at_us = at_us - 10 * 86400000000"))
        audit.add(tx, Change("who", "login", "user/a@example.org", None, None, ""))

    def left() -> list[str]:
        with stores.catalog.read() as tx:
            return [one.what for one in audit.listing(tx, Filter(), before_id=None, limit=9)]

    for days in (0, 11):
        clock(replace(settings, logins_keep_days=days), stores, broker).tidy()
        assert len(left()) == 3
    clock(replace(settings, logins_keep_days=9), stores, broker).tidy()
    assert left() == ["login", "put_v1_user"]


def test_numbered_events_are_to_be_journalled_and_readers_are_told(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    ours = clock(settings, stores, broker)
    ours.journal()
    with stores.catalog.write() as tx:
        assert todo.backlog(tx) == {}
        events.append(tx, "CREATE", "gcp", FQID(new_uuid(), version()), 1)
    with stores.notices.listen(topics.EVENTS) as listening:
        ours.number()
        assert listening.wait(1)
        ours.number()
        assert not listening.wait(0)
    ours.journal()
    with stores.catalog.read() as tx:
        assert todo.backlog(tx) == {(Step.JOURNAL, "gcp"): 1}
    assert settings.journal_s + settings.tick_s < 10 / 2, "listed within 10 s of the commit"
