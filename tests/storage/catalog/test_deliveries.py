"""Delivery rows: once per event, ordered, superseded, recorded in groups."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from storage.catalog import Catalog, deliveries, delivery_log, now_us, subscriptions
from storage.catalog.deliveries import AttemptResult, DeliveryState, NewDelivery
from storage.catalog.delivery_log import DeliveryFilter
from storage.catalog.subscriptions import Subscription
from storage.model import FQID
from tests.subscription_builders import a_subscription, happen, match, states, subscribe, tell, told

URL = "https://receiver.example/hook"
UUID = "11111111-1111-4111-8111-111111111111"
VERSIONS = [f"2026-01-0{day}T000000.000000Z" for day in range(1, 6)]


def due(catalog: Catalog, subscription: Subscription, limit: int = 100) -> list[str]:
    with catalog.read() as tx:
        return [row.uuid for row in deliveries.list_due(tx, subscription.endpoint_id, limit=limit)]


def result(
    ident: int, state: DeliveryState = "delivered", *, due_us: int = 0, reason: str | None = None
) -> AttemptResult:
    return AttemptResult(
        delivery_id=ident,
        at_us=1,
        seconds=0.5,
        status=200 if state == "delivered" else 500,
        error=None,
        body="thanks",
        state=state,
        due_us=due_us,
        reason=reason,
    )


def close(catalog: Catalog, *results: AttemptResult) -> None:
    with catalog.write() as tx:
        deliveries.record_attempts(tx, results)


@pytest.mark.spec("FMT-07")
def test_ids_are_frozen() -> None:
    assert deliveries.make_delivery_id(UUID, UUID) == "a2553ba5-a9d5-5637-bf90-10c1ae5d2219"


def test_an_event_is_recorded_once_for_each_subscription(catalog: Catalog) -> None:
    one, two = subscribe(catalog, URL), subscribe(catalog, URL)
    event = happen(catalog)
    assert match(catalog, event, one) == 1
    assert match(catalog, event, one, two) == 1
    assert states(catalog, one) == states(catalog, two) == ["pending"]
    (delivery,) = told(catalog, one)
    assert delivery.uuid == deliveries.make_delivery_id(one.uuid, event.id)
    assert (delivery.bundle_uuid, delivery.bundle_version) == (event.fqid.uuid, event.fqid.version)


def test_matching_twice_at_once_records_once(catalog: Catalog) -> None:
    many = [subscribe(catalog, f"{URL}/{n}") for n in range(20)]
    event = happen(catalog)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: match(catalog, event, *many), range(4)))
    assert sum(made) == 20


def test_inserts_many_matches_in_chunks(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = subscribe(catalog, URL)
    rows = [NewDelivery(str(uuid4()), subscription.id, "x" * 3_000_000) for _ in range(5)]
    assert [len(chunk) for chunk in deliveries._split_chunks(rows)] == [2, 2, 1]
    small = [NewDelivery(str(uuid4()), subscription.id, "x") for _ in range(2500)]
    assert [len(chunk) for chunk in deliveries._split_chunks(small)] == [1000, 1000, 500]


@pytest.mark.spec("SUB-18")
def test_deleted_subscription_gets_no_delivery(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    with catalog.write() as tx:
        subscriptions.mark_deleted(tx, subscription)
    assert match(catalog, happen(catalog), subscription) == 0


def test_a_query_that_failed_is_a_failed_delivery_with_its_reason(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    match(catalog, happen(catalog), subscription, failure="too many steps")
    (delivery,) = told(catalog, subscription)
    assert (delivery.state, delivery.reason, delivery.next_us) == ("failed", "too many steps", None)
    with catalog.write() as tx:
        assert not delivery_log.retry_delivery(tx, delivery.id)


@pytest.mark.spec("NOT-12")
@pytest.mark.parametrize("kind", ["TOMBSTONE", "DELETE"])
@pytest.mark.parametrize("tombstone_first", [False, True])
def test_end_of_version_supersedes_its_creation(
    catalog: Catalog, kind: str, tombstone_first: bool
) -> None:
    subscription, only_creates = subscribe(catalog, URL), subscribe(catalog, URL)
    created = happen(catalog, fqid=FQID(UUID, VERSIONS[0]))
    other = happen(catalog, fqid=FQID(UUID, VERSIONS[1]))
    ended = happen(catalog, kind, fqid=created.fqid)  # type: ignore[arg-type]
    told_of = [
        (created, (subscription, only_creates)),
        (other, (subscription,)),
        (ended, (subscription,)),
    ]
    for event, who in reversed(told_of) if tombstone_first else told_of:
        match(catalog, event, *who)
    by_type = {(d.event_type, d.bundle_version): d.state for d in told(catalog, subscription)}
    assert by_type == {
        ("CREATE", VERSIONS[0]): "superseded",
        ("CREATE", VERSIONS[1]): "pending",
        (kind, VERSIONS[0]): "pending",
    }
    assert states(catalog, only_creates) == ["superseded"]


@pytest.mark.spec("NOT-12")
def test_tombstone_supersedes_in_its_replica_only(catalog: Catalog) -> None:
    there = subscribe(catalog, URL, replica="gcp")
    fqid = FQID(UUID, VERSIONS[0])
    created = happen(catalog, fqid=fqid)
    match(catalog, replace(created, replica="gcp", id="other"), there)
    match(catalog, happen(catalog, "TOMBSTONE", fqid))
    assert states(catalog, there) == ["pending"]


@pytest.mark.spec("NOT-12")
def test_delivered_is_never_superseded(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    (event,) = tell(catalog, [subscription])
    close(catalog, result(told(catalog, subscription)[0].id))
    match(catalog, happen(catalog, "TOMBSTONE", event.fqid), subscription)
    assert states(catalog, subscription) == ["delivered", "pending"]


@pytest.mark.spec("NOT-21")
def test_earliest_event_of_a_bundle_is_due_first(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    events = [happen(catalog, fqid=FQID(UUID, version)) for version in VERSIONS]
    for event in reversed(events):  # matched in another order than they happened
        match(catalog, event, subscription)
    tell(catalog, [subscription])
    by_version = {d.bundle_version: d for d in told(catalog, subscription) if d.bundle_uuid == UUID}
    first, second = by_version[VERSIONS[0]], by_version[VERSIONS[1]]
    assert first.uuid in due(catalog, subscription)
    assert len(due(catalog, subscription)) == 2
    with catalog.read() as tx:
        later = now_us(tx) + 60_000_000
    close(catalog, result(first.id, "pending", due_us=later))
    assert len(due(catalog, subscription)) == 1
    close(catalog, result(first.id, "failed"))
    assert second.uuid in due(catalog, subscription)


def test_results_are_recorded_together_with_numbered_attempts(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription], times=3)
    one, two, three = told(catalog, subscription)
    close(
        catalog,
        result(one.id),
        result(two.id, "pending", due_us=7, reason="later"),
        result(three.id, "failed", reason="no"),
    )
    close(catalog, result(two.id))
    one, two, three = told(catalog, subscription)
    assert [d.state for d in (one, two, three)] == ["delivered", "delivered", "failed"]
    assert [attempt.number for attempt in two.attempts] == [1, 2]
    assert [attempt.status for attempt in two.attempts] == [500, 200]
    assert (two.reason, three.reason) == (None, "no")
    close(catalog)


@pytest.mark.parametrize(
    ("state", "after"),
    [("delivered", "delivered"), ("pending", "superseded"), ("failed", "superseded")],
)
def test_only_success_overrides_concurrent_change(
    catalog: Catalog, state: DeliveryState, after: DeliveryState
) -> None:
    subscription = subscribe(catalog, URL)
    (event,) = tell(catalog, [subscription])
    match(catalog, happen(catalog, "TOMBSTONE", event.fqid))
    (delivery,) = told(catalog, subscription)
    close(catalog, result(delivery.id, state))
    (delivery,) = told(catalog, subscription)
    assert (delivery.state, len(delivery.attempts)) == (after, 1)


def test_duplicate_attempts_of_two_processes_both_count(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription], times=10)
    rows = told(catalog, subscription)
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda n: close(catalog, *(result(d.id) for d in rows[:: 1 if n % 2 else -1])),
                range(4),
            )
        )
    assert all([a.number for a in d.attempts] == [1, 2, 3, 4] for d in told(catalog, subscription))


def test_deleting_cancels_what_is_pending(catalog: Catalog) -> None:
    gone, kept = subscribe(catalog, URL), subscribe(catalog, URL)
    tell(catalog, [gone, kept], times=2)
    close(catalog, result(told(catalog, gone)[0].id))
    with catalog.write() as tx:
        assert deliveries.cancel_pending(tx, gone.id, gone.endpoint_id) == 1
    assert states(catalog, gone) == ["delivered", "cancelled"]
    assert states(catalog, kept) == ["pending", "pending"]


@pytest.mark.spec("SUB-29")
def test_pages_show_the_latest_first_by_state(catalog: Catalog) -> None:
    subscription, other = subscribe(catalog, URL), subscribe(catalog, URL)
    tell(catalog, [subscription, other], times=5)
    everything = told(catalog, subscription)[::-1]
    close(catalog, result(everything[2].id))
    with catalog.read() as tx:
        first = delivery_log.list_deliveries(tx, subscription.id, limit=2)
        rest = delivery_log.list_deliveries(tx, subscription.id, limit=9, after=first[-1].position)
        done = delivery_log.list_deliveries(
            tx, subscription.id, only=DeliveryFilter(state="delivered"), limit=9
        )
        assert delivery_log.find_delivery(tx, other.id, first[0].uuid) is None
    assert [d.id for d in first + rest] == [d.id for d in everything]
    assert [d.id for d in done] == [everything[2].id]


@pytest.mark.spec("SUB-33")
@pytest.mark.parametrize("state", ["failed", "delivered", "pending"])
def test_a_retry_is_due_now(catalog: Catalog, state: DeliveryState) -> None:
    subscription = subscribe(catalog, URL)
    tell(catalog, [subscription])
    (delivery,) = told(catalog, subscription)
    close(catalog, result(delivery.id, state, due_us=2**52))
    assert due(catalog, subscription) == []
    with catalog.write() as tx:
        assert delivery_log.retry_delivery(tx, delivery.id)
    assert due(catalog, subscription) == [delivery.uuid]


def test_superseded_delivery_is_not_retried(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    (event,) = tell(catalog, [subscription])
    match(catalog, happen(catalog, "TOMBSTONE", event.fqid))
    with catalog.write() as tx:
        assert not delivery_log.retry_delivery(tx, told(catalog, subscription)[0].id)


@pytest.mark.spec("SUB-35")
def test_a_test_delivery_is_due_like_any_other(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    uuid = str(uuid4())
    with catalog.write() as tx:
        fresh = NewDelivery(uuid, subscription.id, "{}")
        deliveries.insert_test(tx, fresh, bundle_uuid=UUID, version=VERSIONS[0])
    assert due(catalog, subscription) == [uuid]
    assert told(catalog, subscription)[0].event_type == "TEST"


def test_a_test_waits_for_no_other(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    with catalog.write() as tx:
        for _ in range(2):
            fresh = NewDelivery(str(uuid4()), subscription.id, "{}")
            deliveries.insert_test(tx, fresh, bundle_uuid=UUID, version=VERSIONS[0])
    first, second = told(catalog, subscription)
    close(catalog, result(first.id, "pending", due_us=2**52))
    assert due(catalog, subscription) == [second.uuid]


@pytest.mark.spec("SUB-35")
def test_events_of_a_bundle_do_not_wait_for_a_test_about_it(catalog: Catalog) -> None:
    subscription = subscribe(catalog, URL)
    event = happen(catalog, fqid=FQID(UUID, VERSIONS[0]))
    with catalog.write() as tx:
        fresh = NewDelivery(str(uuid4()), subscription.id, "{}")
        deliveries.insert_test(tx, fresh, bundle_uuid=UUID, version=VERSIONS[0])
    match(catalog, event, subscription)
    with catalog.read() as tx:
        found = deliveries.list_due(tx, subscription.endpoint_id, limit=9)
    assert [one.is_test for one in found] == [True, False]


def test_due_delivery_has_everything_for_an_attempt(catalog: Catalog) -> None:
    subscription = subscribe(
        catalog,
        URL,
        method="PUT",
        encoding="multipart/form-data",
        form_fields={"a": "b"},
        hmac_secret=b"s",
    )
    tell(catalog, [subscription])
    with catalog.write() as tx:
        (row,) = deliveries.list_due(tx, subscription.endpoint_id, limit=9)
        subscriptions.mark_deleted(tx, subscription)
        (gone,) = deliveries.list_due(tx, subscription.endpoint_id, limit=9)
    assert (row.method, row.form_fields, row.hmac_secret) == ("PUT", {"a": "b"}, b"s")
    assert (row.subscription_uuid, row.attempts) == (subscription.uuid, 0)
    assert gone == replace(row, deleted=True)
    assert a_subscription().hmac_secret is None
