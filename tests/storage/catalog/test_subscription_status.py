"""Rows of paused and disabled subscriptions, and their held deliveries."""

import sqlite3
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from storage.catalog import Catalog, Tx, deliveries, delivery_log, endpoints, now_us, subscriptions
from storage.catalog.deliveries import AttemptResult, DeliveryState, DueDelivery, NewDelivery
from storage.catalog.delivery_log import DeliveryFilter, LoggedDelivery, RetryWindow
from storage.catalog.subscriptions import MIN_FAILURES, Subscription
from storage.catalog.tables.event_log import PAUSED_DUE_US
from storage.model import FQID
from tests.builders import new_uuid
from tests.storage.catalog.query_cost import work_of
from tests.subscription_builders import backlog, happen, match, states, subscribe, tell, told

URL = "https://receiver.example/hook"
UUID = "11111111-1111-4111-8111-111111111111"
VERSION = "2026-01-01T000000.000000Z"
WEEK_S = 604_800.0


def read_again(catalog: Catalog, subscription: Subscription) -> Subscription:
    with catalog.read() as tx:
        found = subscriptions.find(tx, subscription.uuid)
    assert found is not None
    return found


def pause(catalog: Catalog, subscription: Subscription) -> None:
    with catalog.write() as tx:
        subscriptions.pause(tx, subscription.id)


def resume(catalog: Catalog, subscription: Subscription) -> None:
    with catalog.write() as tx:
        subscriptions.resume(tx, subscription.id)


def due(catalog: Catalog, subscription: Subscription) -> list[DueDelivery]:
    with catalog.read() as tx:
        return deliveries.list_due(tx, subscription.endpoint_id, limit=1000)


def met(catalog: Catalog, subscription: Subscription) -> int:
    """As `deliver` does when it fetches what must not be sent."""
    halted = [row.id for row in due(catalog, subscription) if row.halted]
    with catalog.write() as tx:
        return deliveries.pause(tx, halted)


def result(
    ident: int, state: DeliveryState, at_us: int, reason: str | None = None
) -> AttemptResult:
    return AttemptResult(
        ident, at_us, 0.5, 200 if state == "delivered" else 500, None, "", state, 0, reason
    )


def close(
    catalog: Catalog, results: Iterable[AttemptResult], *, after_s: float = WEEK_S
) -> list[str]:
    listed = list(results)
    with catalog.write() as tx:
        disabled = subscriptions.count_failures(tx, listed, disable_after_s=after_s)
        deliveries.record_attempts(tx, listed)
    return disabled


def now(catalog: Catalog) -> int:
    with catalog.read() as tx:
        return now_us(tx)


@pytest.mark.spec("SUB-22")
def test_matches_during_pause_are_due_after_resume(catalog: Catalog) -> None:
    paused, other = subscribe(catalog, URL), subscribe(catalog, URL)
    pause(catalog, paused)
    tell(catalog, [paused, other])
    assert states(catalog, paused) == ["pending"]
    assert told(catalog, paused)[0].next_us is None
    assert [row.subscription_id for row in due(catalog, paused)] == [other.id]
    resume(catalog, paused)
    with catalog.write() as tx:
        assert deliveries.release_paused(tx, paused.id) == 1
        assert deliveries.release_paused(tx, paused.id) == 0
    assert {row.subscription_id for row in due(catalog, paused)} == {paused.id, other.id}


@pytest.mark.spec("SUB-22")
def test_pending_deliveries_are_held_with_schedule_and_tests_are_not(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription], times=2)
    with catalog.write() as tx:
        fresh = NewDelivery(new_uuid(), subscription.id, "{}")
        deliveries.insert_test(tx, fresh, bundle_uuid=UUID, version=VERSION)
    before = [delivery.next_us for delivery in told(catalog, subscription)]
    assert met(catalog, subscription) == 0
    pause(catalog, subscription)
    assert met(catalog, subscription) == 2
    assert met(catalog, subscription) == 0
    assert [row.uuid for row in due(catalog, subscription)] == [fresh.uuid]
    resume(catalog, subscription)
    with catalog.write() as tx:
        assert deliveries.release_paused(tx, subscription.id) == 2
    assert [delivery.next_us for delivery in told(catalog, subscription)] == before


def test_active_subscription_holds_nothing_back(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    pause(catalog, subscription)
    halted = [row.id for row in due(catalog, subscription)]
    resume(catalog, subscription)
    with catalog.write() as tx:
        assert deliveries.pause(tx, halted) == 0
        assert deliveries.pause(tx, []) == 0


def test_held_delivery_stays_before_later_events(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    pause(catalog, subscription)
    fqids = [FQID(UUID, f"2026-01-0{day}T000000.000000Z") for day in (1, 2)]
    match(catalog, happen(catalog, fqid=fqids[0]), subscription)
    resume(catalog, subscription)
    match(catalog, happen(catalog, fqid=fqids[1]), subscription)
    assert due(catalog, subscription) == []
    with catalog.write() as tx:
        deliveries.release_paused(tx, subscription.id)
    assert [row.uuid for row in due(catalog, subscription)] == [told(catalog, subscription)[0].uuid]


def test_held_delivery_is_superseded_too(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    pause(catalog, subscription)
    (event,) = tell(catalog, [subscription])
    match(catalog, happen(catalog, "TOMBSTONE", event.fqid), subscription)
    assert states(catalog, subscription) == ["superseded", "pending"]


def test_finds_active_subscriptions_with_held_deliveries(catalog: Catalog) -> None:
    paused, active, deleted = (subscribe(catalog, f"{URL}/{n}") for n in range(3))
    for one in (paused, active, deleted):
        pause(catalog, one)
        backlog(catalog, one, 100)
        met(catalog, one)
    resume(catalog, active)
    with catalog.write() as tx:
        subscriptions.mark_deleted(tx, deleted)
    with catalog.read() as tx:
        loose = {one.id: one.deleted for one in deliveries.list_releasable(tx, limit=10)}
        assert len(deliveries.list_releasable(tx, limit=1)) == 1
    assert loose == {active.id: False, deleted.id: True}
    with catalog.write() as tx:
        assert deliveries.cancel_paused(tx, deleted.id) == 100
    assert set(states(catalog, deleted)) == {"cancelled"}


def walked(tx: Tx) -> None:
    assert deliveries.list_releasable(tx, limit=10) == []
    assert deliveries.list_paused_before(tx, 1, limit=10) == []


def vacuum(catalog: Catalog) -> None:
    """PostgreSQL counts the rows of its tables and indexes anew, but not what is in them."""
    if not catalog.sqlite:
        connection = catalog.engine.raw_connection()
        driver: Any = connection.driver_connection
        driver.rollback()
        driver.autocommit = True
        driver.execute("VACUUM deliveries")
        driver.autocommit = False
        connection.close()


def miscount(catalog: Catalog) -> None:
    """PostgreSQL counted next to no rows in many pages: they were emptied just then."""
    if not catalog.sqlite:
        with catalog.write() as tx:
            few = "UPDATE pg_class SET reltuples = 1, relpages = 2000 WHERE relname = 'deliveries'"
            tx.execute(text(few))


@pytest.mark.parametrize("known", ["nothing", "next to nothing", "how many", "too few"])
def test_many_held_deliveries_are_one_index_step(catalog: Catalog, known: str) -> None:
    one, other = (subscribe(catalog, f"{URL}/{n}") for n in range(2))
    for each in (one, other):
        pause(catalog, each)
    tell(catalog, [one, other])
    if known != "nothing":
        with catalog.write() as tx:
            tx.execute(text("ANALYZE"))
    short = work_of(catalog, walked)
    backlog(catalog, one, 20_000)
    if known == "how many":
        vacuum(catalog)
    if known == "too few":
        miscount(catalog)
    halted = [row.id for row in due(catalog, one) if row.halted]
    assert work_of(catalog, lambda tx: deliveries.pause(tx, halted)) < 300 * len(halted)
    results = [result(ident, "pending", 1, "It said no.") for ident in halted]
    # Each with each other, not with the 20,000.
    assert (
        work_of(catalog, lambda tx: deliveries.record_attempts(tx, results)) < 3 * len(halted) ** 2
    )
    assert 0 < work_of(catalog, walked) < short + 100


def test_releases_a_bounded_number_at_once(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    backlog(catalog, subscription, deliveries.PAUSE_BATCH + 7)
    with catalog.write() as tx:
        tx.execute(text(f"UPDATE deliveries SET due_us = due_us + {2**60}"))
    freed = []
    for _ in range(3):
        with catalog.write() as tx:
            freed.append(deliveries.release_paused(tx, subscription.id))
    assert freed == [deliveries.PAUSE_BATCH, 7, 0]


def failing(catalog: Catalog, subscription: Subscription, days: Iterable[float]) -> list[str]:
    """Failures so many days ago; who was disabled."""
    (delivery,) = told(catalog, subscription, limit=1)
    disabled = []
    for ago in days:
        at_us = now(catalog) - int(ago * 86_400_000_000)
        disabled += close(catalog, [result(delivery.id, "pending", at_us, "It said no.")])
    return disabled


@pytest.mark.spec("SUB-23", "STA-07")
def test_week_of_failures_disables_with_reason(catalog: Catalog) -> None:
    dead, other = subscribe(catalog, URL), subscribe(catalog, URL)
    tell(catalog, [dead, other])
    assert failing(catalog, dead, [7.5, 6, 5, 4]) == []
    assert read_again(catalog, dead).state == "active"
    assert failing(catalog, dead, [0]) == [dead.uuid]
    found = read_again(catalog, dead)
    assert (found.state, found.state_reason) == (
        "disabled",
        "Only failures for 7 days; the latest: It said no.",
    )
    assert found.state_us is not None
    assert abs((found.failing_us or 0) - (now(catalog) - int(7.5 * 86_400_000_000))) < 60_000_000
    # The one beside it at the same endpoint is another's.
    assert read_again(catalog, other).state == "active"
    assert failing(catalog, dead, [0]) == []


@pytest.mark.spec("SUB-23")
@pytest.mark.parametrize(
    ("days", "why"),
    [
        ([6.9] * 20, "less than a week"),
        ([30, *[0.1] * (MIN_FAILURES - 2)], "too few"),
    ],
)
def test_shorter_failures_disable_nothing(catalog: Catalog, days: list[float], why: str) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    assert failing(catalog, subscription, days) == [], why


@pytest.mark.spec("SUB-23")
def test_success_resets_failure_count(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription], times=2)
    failing(catalog, subscription, [8] * 10)
    (last,) = told(catalog, subscription)[1:]
    close(catalog, [result(last.id, "delivered", now(catalog))])
    assert read_again(catalog, subscription).failing_us is None
    assert failing(catalog, subscription, [0] * 10) == []


def test_tests_that_fail_count_for_nothing_and_zero_is_never(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    with catalog.write() as tx:
        fresh = NewDelivery(new_uuid(), subscription.id, "{}")
        deliveries.insert_test(tx, fresh, bundle_uuid=UUID, version=VERSION)
    assert failing(catalog, subscription, [8] * 10) == []
    assert read_again(catalog, subscription).failing_us is None
    tell(catalog, [subscription])
    (_, delivery) = told(catalog, subscription)
    for _ in range(10):
        old = result(delivery.id, "pending", now(catalog) - 8 * 86_400_000_000)
        assert close(catalog, [old], after_s=0) == []
    assert close(catalog, []) == []


@pytest.mark.spec("STA-07")
def test_a_paused_one_is_not_disabled_and_resuming_forgets_its_failures(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    failing(catalog, subscription, [8, 8, 8])
    pause(catalog, subscription)
    assert failing(catalog, subscription, [0] * 10) == []
    resume(catalog, subscription)
    found = read_again(catalog, subscription)
    assert (found.state, found.state_reason, found.state_us, found.failing_us) == (
        "active",
        None,
        None,
        None,
    )


@pytest.mark.spec("STA-07")
def test_pausing_a_disabled_one_leaves_its_reason(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    failing(catalog, subscription, [8] * 5)
    pause(catalog, subscription)
    assert read_again(catalog, subscription).state == "disabled"


def test_deliveries_and_owners_at_once_end_well(catalog: Catalog) -> None:
    """Failures, pausing, resuming and matching run at once without a deadlock."""
    many = [subscribe(catalog, f"{URL}/{n}") for n in range(4)]
    tell(catalog, many, times=5)
    rows = [delivery.id for one in many for delivery in told(catalog, one)]

    def act(number: int) -> None:
        order = rows if number % 2 else rows[::-1]
        if number % 3 == 0:
            close(catalog, [result(ident, "pending", 1) for ident in order])
        elif number % 3 == 1:
            for one in many:
                pause(catalog, one)
                met(catalog, one)
        else:
            for one in reversed(many):
                with catalog.write() as tx:
                    subscriptions.resume(tx, one.id)
                    deliveries.release_paused(tx, one.id)
            tell(catalog, many)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(act, range(24)))


@pytest.mark.spec("SUB-21")
def test_a_secret_is_followed_by_another_with_an_overlap(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL, hmac_secret=b"one", hmac_key_id="k1")
    tell(catalog, [subscription])

    def rotate(secret: bytes, overlap_us: int, key_id: str | None = None) -> DueDelivery:
        with catalog.write() as tx:
            until = now_us(tx) + overlap_us
            subscriptions.rotate_secret(
                tx, subscription, secret=secret, key_id=key_id, until_us=until
            )
        return due(catalog, subscription)[0]

    both = rotate(b"two", 60_000_000, "k2")
    assert (both.hmac_secret, both.hmac_previous, both.hmac_key_id) == (b"two", b"one", "k2")
    again = rotate(b"three", 60_000_000, "k3")
    assert (again.hmac_secret, again.hmac_previous) == (b"three", b"two")
    at_once = rotate(b"four", 0)
    assert (at_once.hmac_secret, at_once.hmac_previous) == (b"four", None)
    assert read_again(catalog, subscription).hmac_previous_us is None


@pytest.mark.spec("SUB-21")
def test_a_former_secret_signs_no_more_when_its_time_is_over_and_is_forgotten(
    catalog: Catalog,
) -> None:
    subscription = subscribe(catalog, URL, hmac_secret=b"one")
    tell(catalog, [subscription])
    with catalog.write() as tx:
        until = now_us(tx) + 60_000_000
        subscriptions.rotate_secret(tx, subscription, secret=b"two", key_id=None, until_us=until)
        assert subscriptions.expire_previous_secrets(tx) == 0
        tx.execute(text("UPDATE subscriptions SET hmac_previous_us = hmac_previous_us - 60000000"))
    assert due(catalog, subscription)[0].hmac_previous is None
    with catalog.write() as tx:
        assert subscriptions.expire_previous_secrets(tx) == 1
    assert read_again(catalog, subscription).hmac_previous is None


def test_the_first_secret_has_none_before_it(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    with catalog.write() as tx:
        until = now_us(tx) + 60_000_000
        subscriptions.rotate_secret(tx, subscription, secret=b"one", key_id="k", until_us=until)
    found = read_again(catalog, subscription)
    assert (found.hmac_secret, found.hmac_previous, found.hmac_previous_us) == (b"one", None, None)


def give_up(catalog: Catalog, subscription: Subscription) -> None:
    rows = told(catalog, subscription)
    close(catalog, [result(delivery.id, "failed", 1, "no") for delivery in rows])


EVER = RetryWindow(0, 2**60)


def given_up(
    catalog: Catalog, subscription: Subscription, span: RetryWindow = EVER, *, limit: int = 100
) -> tuple[int, int]:
    with catalog.write() as tx:
        return delivery_log.retry_failed(tx, subscription, span, limit=limit)


@pytest.mark.spec("SUB-34")
def test_retries_failed_deliveries_of_a_time_range(catalog: Catalog) -> None:
    subscription, other = subscribe(catalog, URL), subscribe(catalog, URL)
    tell(catalog, [subscription, other], times=3)
    give_up(catalog, subscription)
    give_up(catalog, other)
    middle = now(catalog) + 1
    assert given_up(catalog, subscription, RetryWindow(middle, 2**60)) == (0, 0)
    assert given_up(catalog, subscription, RetryWindow(0, 1)) == (0, 0)
    assert given_up(catalog, subscription, replace(EVER, event_type="TOMBSTONE")) == (0, 0)
    assert given_up(catalog, subscription, limit=2) == (2, 2)
    assert sorted(states(catalog, subscription)) == ["failed", "pending", "pending"]
    assert given_up(catalog, subscription) == (1, 1)
    assert states(catalog, other) == ["failed"] * 3
    assert len(due(catalog, subscription)) == 3


@pytest.mark.spec("SUB-34")
def test_retry_makes_later_attempts_due_now(catalog: Catalog) -> None:
    subscription, other = subscribe(catalog, URL), subscribe(catalog, URL)
    tell(catalog, [subscription, other], times=4)
    late = now(catalog) + 60_000_000
    first, second, held, fresh = told(catalog, subscription)
    failed = [
        replace(result(one.id, "pending", at_us, "no"), due_us=due_us)
        for one, at_us, due_us in [
            (first, 5, late),
            (second, 9, late),
            (held, 5, late + PAUSED_DUE_US),
            (told(catalog, other)[0], 5, late),
        ]
    ]
    close(catalog, failed)
    assert [row.id for row in due(catalog, subscription) if row.id == fresh.id] == [fresh.id]

    def put_off(span: RetryWindow) -> tuple[int, int]:
        with catalog.write() as tx:
            return delivery_log.retry_postponed(tx, subscription, span, limit=9)

    assert put_off(RetryWindow(6, 9)) == (0, 0)
    assert put_off(replace(EVER, event_type="TEST")) == (0, 0)
    assert put_off(RetryWindow(6, 10)) == (1, 1)
    assert put_off(EVER) == (1, 1)
    assert put_off(EVER) == (0, 0)
    again = {row.id for row in due(catalog, subscription) if row.subscription_id == subscription.id}
    assert again == {first.id, second.id, fresh.id}
    assert [len(one.attempts) for one in told(catalog, subscription)] == [1, 1, 1, 0]


@pytest.mark.spec("SUB-34")
def test_ended_versions_are_not_sent_again(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    (event,) = tell(catalog, [subscription])
    give_up(catalog, subscription)
    match(catalog, happen(catalog, "TOMBSTONE", event.fqid), subscription)
    assert given_up(catalog, subscription) == (1, 0)
    assert states(catalog, subscription) == ["superseded", "pending"]
    with catalog.write() as tx:
        assert not delivery_log.retry_delivery(tx, told(catalog, subscription)[0].id)


def test_a_query_that_failed_has_nothing_to_send_again(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    match(catalog, happen(catalog), subscription, failure="too many steps")
    assert given_up(catalog, subscription) == (0, 0)


def test_retries_of_paused_subscription_wait(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    give_up(catalog, subscription)
    pause(catalog, subscription)
    assert given_up(catalog, subscription) == (1, 1)
    assert due(catalog, subscription) == []
    resume(catalog, subscription)
    with catalog.write() as tx:
        deliveries.release_paused(tx, subscription.id)
    assert len(due(catalog, subscription)) == 1


@pytest.mark.spec("SUB-30")
def test_deliveries_are_listed_by_event_bundle_and_time(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    (first,) = tell(catalog, [subscription])
    between = now(catalog)
    (second,) = tell(catalog, [subscription])
    match(catalog, happen(catalog, "TOMBSTONE", first.fqid), subscription)

    def listed(only: DeliveryFilter) -> list[tuple[str, str]]:
        with catalog.read() as tx:
            page = delivery_log.list_deliveries(tx, subscription.id, only=only, limit=9)
        return [(delivery.event_type, delivery.bundle_uuid) for delivery in page]

    one, two = first.fqid.uuid, second.fqid.uuid
    assert listed(DeliveryFilter(event_type="TOMBSTONE")) == [("TOMBSTONE", one)]
    assert listed(DeliveryFilter(bundle_uuid=one)) == [("TOMBSTONE", one), ("CREATE", one)]
    assert listed(DeliveryFilter(since_us=between)) == [("TOMBSTONE", one), ("CREATE", two)]
    assert listed(DeliveryFilter(until_us=between)) == [("CREATE", one)]
    assert listed(DeliveryFilter(bundle_uuid=one, state="superseded")) == [("CREATE", one)]


def test_each_state_has_its_time_and_what_is_pending_stays(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription], times=5)
    done, also, failed, ended, _waits = told(catalog, subscription)
    close(
        catalog,
        [
            result(done.id, "delivered", 1),
            result(also.id, "delivered", 1),
            result(failed.id, "failed", 1),
        ],
    )
    with catalog.write() as tx:
        tx.execute(
            text("UPDATE deliveries SET state = 'cancelled', finished_us = 1 WHERE id = :id"),
            {"id": ended.id},
        )
    later = now(catalog) + 1
    with catalog.write() as tx:
        assert delivery_log.expire_deliveries(tx, 1, limit=100) == 0
        assert delivery_log.expire_deliveries(tx, later, limit=2) == 2
        assert delivery_log.expire_deliveries(tx, later, limit=2) == 1
        assert delivery_log.expire_deliveries(tx, later, limit=2) == 0
    assert states(catalog, subscription) == ["failed", "pending"]
    with catalog.write() as tx:
        assert tx.execute(text("SELECT count(*) FROM attempts")).scalar_one() == 1
        assert delivery_log.expire_deliveries(tx, 1, failed=True, limit=2) == 0
        assert delivery_log.expire_deliveries(tx, later, failed=True, limit=2) == 1
        assert tx.execute(text("SELECT count(*) FROM attempts")).scalar_one() == 0
    assert states(catalog, subscription) == ["pending"]


@pytest.mark.spec("NOT-23")
def test_deliveries_held_too_long_are_cancelled_with_reason(catalog: Catalog) -> None:
    paused, also, active = (subscribe(catalog, URL) for _ in range(3))
    for each in (paused, also):
        pause(catalog, each)
    (_, second) = tell(catalog, [paused, active], times=2)
    with catalog.read() as tx:
        between = told(catalog, paused)[1].created_us
        assert deliveries.list_paused_before(tx, between, limit=9) == [paused.id]
    tell(catalog, [also])
    with catalog.write() as tx:
        assert deliveries.cancel_paused_before(tx, paused.id, between) == 1
        assert deliveries.list_paused_before(tx, between, limit=9) == []
        assert deliveries.list_paused_before(tx, now_us(tx) + 1, limit=9) == [paused.id, also.id]
    ended, waits = told(catalog, paused)
    assert (ended.state, ended.reason) == ("cancelled", deliveries.PAUSED_TOO_LONG_REASON)
    assert (waits.state, waits.bundle_uuid) == ("pending", second.fqid.uuid)
    assert states(catalog, active) == ["pending", "pending"]


@pytest.mark.spec("NOT-23")
def test_a_deleted_one_is_forgotten_once_nothing_refers_to_it(catalog: Catalog) -> None:
    gone, kept = subscribe(catalog, URL), subscribe(catalog, URL)
    tell(catalog, [gone, kept], times=3)
    failed, done, _pending = told(catalog, gone)
    close(catalog, [result(failed.id, "failed", 1), result(done.id, "delivered", 1)])
    with catalog.write() as tx:
        assert not subscriptions.delete(tx, gone.id)
        subscriptions.mark_deleted(tx, gone)
        assert subscriptions.list_deleted_before(tx, now_us(tx) + 1, limit=9) == [gone.id]
        assert subscriptions.list_deleted_before(tx, 1, limit=9) == []
    with catalog.write() as tx:
        assert delivery_log.delete_deliveries(tx, gone.id, limit=1) == 1
        assert delivery_log.delete_deliveries(tx, gone.id, limit=9) == 1
        assert not subscriptions.delete(tx, gone.id)
        assert deliveries.cancel_pending(tx, gone.id, gone.endpoint_id) == 1
        assert delivery_log.delete_deliveries(tx, gone.id, limit=9) == 1
        assert subscriptions.delete(tx, gone.id)
        assert subscriptions.list_deleted_before(tx, now_us(tx) + 1, limit=9) == []
        assert tx.execute(text("SELECT count(*) FROM attempts")).scalar_one() == 0
    assert states(catalog, kept) == ["pending"] * 3


FILTERS = [
    DeliveryFilter(state=state, event_type=kind, bundle_uuid=bundle)
    for state in (None, "pending", "delivered", "failed")
    for kind in (None, "CREATE", "TOMBSTONE", "TEST")
    for bundle in (None, "b1", "b2")
]


@pytest.mark.spec("SUB-30")
def test_filtered_pages_equal_full_scan(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    backlog(catalog, subscription, 120)
    with catalog.write() as tx:
        mixed = (
            "UPDATE deliveries SET bundle_uuid = 'b' || (id % 3), created_us = id / 4,"
            " event_type = CASE WHEN id % 5 = 0 THEN 'TOMBSTONE' WHEN id % 7 = 0 THEN 'TEST'"
            " ELSE 'CREATE' END, state = CASE WHEN id % 4 = 0 THEN 'failed'"
            " WHEN id % 2 = 0 THEN 'delivered' ELSE 'pending' END"
        )
        tx.execute(text(mixed))
    everything = told(catalog, subscription)[::-1]
    spans = [(None, None), (everything[90].created_us, everything[20].created_us)]
    for only in [replace(only, since_us=a, until_us=b) for only in FILTERS for a, b in spans]:
        wanted = [one for one in everything if _fits(one, only)]
        walked: list[LoggedDelivery] = []
        while True:
            after = walked[-1].position if walked else None
            with catalog.read() as tx:
                page = delivery_log.list_deliveries(
                    tx, subscription.id, only=only, after=after, limit=7
                )
            walked += page
            if len(page) < 7:
                break
        assert walked == wanted, only


def _fits(one: LoggedDelivery, only: DeliveryFilter) -> bool:
    return (
        only.state in (None, one.state)
        and only.event_type in (None, one.event_type)
        and only.bundle_uuid in (None, one.bundle_uuid)
        and (only.since_us is None or one.created_us >= only.since_us)
        and (only.until_us is None or one.created_us < only.until_us)
    )


@pytest.mark.spec("SUB-30")
@pytest.mark.parametrize(
    "only",
    [
        DeliveryFilter(state="failed"),
        DeliveryFilter(event_type="DELETE"),
        DeliveryFilter(state="failed", event_type="TEST"),
        DeliveryFilter(bundle_uuid="b7"),
        DeliveryFilter(bundle_uuid="b7", state="failed", event_type="CREATE"),
        DeliveryFilter(since_us=2, until_us=3),
        DeliveryFilter(state="failed", since_us=2, until_us=3),
    ],
    ids=str,
)
def test_a_filter_reads_what_it_finds_and_no_more(catalog: Catalog, only: DeliveryFilter) -> None:
    """By the rows that the engine steps over, not by the clock."""
    subscription = subscribe(catalog, URL)
    backlog(catalog, subscription, 20_000)
    with catalog.read() as tx:
        raw = tx.connection.driver_connection
        if not isinstance(raw, sqlite3.Connection):
            pytest.skip("plans of PostgreSQL have tests of their own")
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        raw.set_progress_handler(tick, 100)
        delivery_log.list_deliveries(tx, subscription.id, only=only, limit=500)
        raw.set_progress_handler(None, 0)
    # A step over each row would be thousands of these.
    assert ticks < 200


def test_endpoint_with_held_deliveries_only_is_not_waiting(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    pause(catalog, subscription)
    tell(catalog, [subscription])
    with catalog.read() as tx:
        assert endpoints.list_waiting(tx, limit=10) == []


@pytest.mark.spec("SUB-14")
def test_statuses_have_the_last_success_and_failure_of_each_subscription(catalog: Catalog) -> None:
    first, second = (subscribe(catalog, f"http://receiver.example/{name}") for name in "ab")
    tell(catalog, [first], times=4)
    with catalog.write() as tx:
        for number, (state, at_us) in enumerate(
            (("delivered", 30), ("delivered", 40), ("failed", 20), ("pending", None)), start=1
        ):
            tx.exec_driver_sql(
                f"UPDATE deliveries SET state = '{state}', created_us = {number},"
                f" finished_us = {'NULL' if at_us is None else at_us}"
                f" WHERE id = (SELECT min(id) + {number - 1} FROM deliveries)"
            )
    with catalog.read() as tx:
        shown = subscriptions.list_statuses(tx, first.owner)
        assert subscriptions.list_statuses(tx, "other@example.org") == []
    assert [one.subscription.uuid for one in shown] == [second.uuid, first.uuid]
    assert [(one.delivered_us, one.failed_us) for one in shown] == [(None, None), (40, 20)]
