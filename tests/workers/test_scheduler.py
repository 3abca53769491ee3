"""The scheduler: one leader, bounded refills, numbered events, area sweeps."""

from dataclasses import replace

import pytest

from config import Settings
from pipelines import flow
from pipelines.flow import DELIVER, Step
from pipelines.quotas import LAST_COUNT_KEY
from pipelines.subscriptions import DeliveryRetention, expire_deliveries
from storage.catalog import areas, audit, endpoints, events, jobs, store_state, subscriptions
from storage.catalog.areas import AreaUploadRow
from storage.catalog.audit import AuditChange, AuditFilter
from storage.catalog.endpoints import Endpoint
from storage.catalog.quotas import DefaultQuotas, Limits
from storage.catalog.sql import parse
from storage.errors import NotFoundError
from storage.model import FQID, Job
from storage.stores import Stores
from tests.builders import new_uuid, version
from tests.subscription_builders import happen, match, states, subscribe, tell, told
from tests.waiting import PATIENCE_S
from workers.broker import MemoryBroker
from workers.messages import MessageSender
from workers.scheduler import Scheduler, build_scheduler

pytestmark = pytest.mark.spec("OPS-19")


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def clock(settings: Settings, stores: Stores, broker: MemoryBroker) -> Scheduler:
    return Scheduler(replace(settings, refill_rows=10), stores, MessageSender(broker))


def needs(stores: Stores, count: int, *, sent: bool, step: Step = Step.INDEX) -> list[Job]:
    rows = [Job(step, "aws", f"b.{n}") for n in range(count)]
    with stores.catalog.write() as tx:
        jobs.insert(tx, rows, sent=sent)
    return rows


def test_only_leading_scheduler_works(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    first, second = clock(settings, stores, broker), clock(settings, stores, broker)
    ran: list[str] = []
    for each in (first, second):
        each.renew_leadership()
    first.guard_job(lambda: ran.append("first"))()
    second.guard_job(lambda: ran.append("second"))()
    assert ran == ["first"]
    first.release_leadership()
    second.renew_leadership()
    second.guard_job(lambda: ran.append("second"))()
    assert ran == ["first", "second"]


def test_a_failing_job_does_not_stop_the_clock(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    def failing() -> None:
        raise ZeroDivisionError

    ours = clock(settings, stores, broker)
    ours.renew_leadership()
    ours.guard_job(failing)()


def test_queues_are_filled_with_a_bounded_number_of_due_rows(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    needs(stores, 25, sent=False, step=Step.SYNC_LARGE)
    ours = clock(settings, stores, broker)
    ours.refill_queues()
    assert broker.depth("sync_large") == 10
    ours.refill_queues()
    assert broker.depth("sync_large") == 10, "a full queue is left alone"


def test_an_emptied_queue_is_filled_again_at_once(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    needs(stores, 5, sent=True, step=Step.SYNC_LARGE)
    clock(settings, stores, broker).refill_queues()
    assert broker.depth("sync_large") == 5


def test_a_batch_gets_one_message_and_what_failed_before_its_own(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    rows = needs(stores, 9, sent=False)
    with stores.catalog.write() as tx:
        for row in rows[:2]:
            held = jobs.claim(tx, row, token="t", lease_s=60, max_claims=9)
            assert held is not None
            jobs.postpone(tx, held, delay_s=0, reason="it failed")
    clock(settings, stores, broker).refill_queues()
    assert broker.depth("index") == 3


@pytest.mark.spec("EVT-05")
def test_events_are_numbered_in_the_order_of_their_commits(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    fqids = [FQID(new_uuid(), version()) for _ in range(6)]
    with stores.catalog.write() as tx:
        for fqid in fqids:
            events.append(tx, "CREATE", "aws", fqid, 1)
            events.append(tx, "CREATE", "gcp", fqid, 1)
    ours = clock(settings, stores, broker)
    ours.number_events()
    with stores.catalog.write() as tx:
        events.append(tx, "TOMBSTONE", "aws", fqids[0], 1)
    ours.number_events()
    with stores.catalog.read() as tx:
        assert not events.has_unsequenced(tx)
        rows = tx.exec_driver_sql("SELECT replica, seq FROM events ORDER BY replica, seq").all()
    assert [row[1] for row in rows] == [*range(1, 8), *range(1, 7)]


def test_a_sweep_of_an_empty_store_finds_nothing_to_do(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    ours = clock(settings, stores, broker)
    ours.complete_reservations()
    ours.sweep_replicas()
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {}


@pytest.mark.spec("NOT-23")
def test_deliveries_are_let_go_and_forgotten(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    ours = clock(replace(settings, delivery_keep_days=0), stores, broker)
    subscription = subscribe(stores.catalog, "https://receiver.example/hook")
    with stores.catalog.write() as tx:
        subscriptions.pause(tx, subscription.id)
    event, _ = tell(stores.catalog, [subscription], times=2)
    match(stores.catalog, happen(stores.catalog, "TOMBSTONE", event.fqid))
    with stores.catalog.write() as tx:
        subscriptions.resume(tx, subscription.id)
    ours.refill_queues()
    assert broker.depth(DELIVER) == 0
    ours.settle_deliveries()
    ours.refill_queues()
    assert broker.depth(DELIVER) == 1
    assert [one.next_us is None for one in told(stores.catalog, subscription)] == [True, False]
    ours.expire_deliveries()
    assert states(stores.catalog, subscription) == ["pending"]


@pytest.mark.spec("LOG-10")
def test_the_audit_log_forgets_old_logins_and_keeps_changes(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    with stores.catalog.write() as tx:
        for what in ("login_failed", "put_v1_user"):
            audit.append(tx, AuditChange("who", what, "user/a@example.org", None, None, ""))
        tx.execute(parse("UPDATE audit SET at_us = at_us - 10 * 86400000000"))
        audit.append(tx, AuditChange("who", "login", "user/a@example.org", None, None, ""))

    def left() -> list[str]:
        with stores.catalog.read() as tx:
            return [
                one.what for one in audit.list_records(tx, AuditFilter(), before_id=None, limit=9)
            ]

    for days in (0, 11):
        clock(replace(settings, logins_keep_days=days), stores, broker).expire_leftovers()
        assert len(left()) == 3
    clock(replace(settings, logins_keep_days=9), stores, broker).expire_leftovers()
    assert left() == ["login", "put_v1_user"]


@pytest.mark.spec("EVT-06")
def test_numbered_events_get_journal_jobs_and_wake_readers(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    ours = clock(settings, stores, broker)
    ours.tend_journals()
    with stores.catalog.write() as tx:
        assert jobs.count_open(tx) == {}
        events.append(tx, "CREATE", "gcp", FQID(new_uuid(), version()), 1)
    with stores.pubsub.listen(flow.EVENTS_TOPIC) as listening:
        ours.number_events()
        assert listening.wait(PATIENCE_S)
        ours.number_events()
        assert not listening.wait(0)
    ours.tend_journals()
    with stores.catalog.read() as tx:
        assert jobs.count_open(tx) == {(Step.JOURNAL, "gcp"): 1}
    assert settings.journal_s + settings.tick_s < 10 / 2, "listed within 10 s of the commit"


KEY = "areas/6ba7b810-9dad-11d1-80b4-00c04fd430c8/a"


@pytest.mark.spec("ARU-04")
def test_aborts_multipart_uploads_idle_for_a_day(settings: Settings, stores: Stores) -> None:
    begun = {
        ident: stores.areas.upload(KEY, part_size=5, content_type="text/plain")
        for ident in ("old", "new")
    }
    with stores.catalog.write() as tx:
        for ident, one in begun.items():
            row = AreaUploadRow(ident, KEY.split("/")[1], "a", one.token, 5, "text/plain", 5)
            areas.insert_upload(tx, row)
        day = "UPDATE area_uploads SET at_us = at_us - 86401000000 WHERE id = 'old'"
        tx.execute(parse(day))
    clock(settings, stores, MemoryBroker()).expire_leftovers()
    with stores.catalog.read() as tx:
        assert areas.find_upload(tx, "old") is None
        assert areas.find_upload(tx, "new") is not None
    for ident, gone in (("old", True), ("new", False)):
        try:
            stores.areas.upload(KEY, part_size=5, content_type="", token=begun[ident].token)
            there = True
        except NotFoundError:
            there = False
        assert there is not gone


@pytest.mark.spec("OPS-45", "NOT-23")
def test_counts_usage_and_deletes_unused_endpoints_at_the_start(
    settings: Settings, stores: Stores, broker: MemoryBroker
) -> None:
    some = DefaultQuotas(Limits(100), Limits())
    ours = clock(settings, replace(stores, quotas=some), broker)
    ours.renew_leadership()
    gone = subscribe(stores.catalog, "https://receiver.example/hook")
    keep = DeliveryRetention(ended_s=0, undelivered_s=0)
    with stores.catalog.write() as tx:
        endpoints.claim(tx, {gone.endpoint_id: True}, token="a", lease_s=60, patience=5)
        subscriptions.mark_deleted(tx, gone)
    expire_deliveries(stores, keep)
    expire_deliveries(stores, keep)
    with stores.catalog.write() as tx:
        endpoints.release(tx, [Endpoint(gone.endpoint_id, 0, 4.0, 0)], token="a")
    expire_deliveries(stores, keep)

    def read_state() -> tuple[bool, list[int]]:
        with stores.catalog.read() as tx:
            is_counted = store_state.read_value(tx, LAST_COUNT_KEY) is not None
            return is_counted, endpoints.list_unreferenced(tx, limit=9)[0]

    assert read_state() == (False, [gone.endpoint_id])
    # A job that is not started yet has a next time only if it runs at once.
    for job in build_scheduler(ours, settings).get_jobs():
        if getattr(job, "next_run_time", None) is not None:
            job.func()
    assert read_state() == (True, [])
