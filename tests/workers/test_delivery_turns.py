"""Turns of endpoints: windows, leases, wake-ups and group commit."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from random import Random

import pytest
from sqlalchemy import event, text

from pipelines.deliveries import WebhookRequest, WebhookResponse
from storage.catalog import Catalog, endpoints
from storage.catalog.deliveries import AttemptResult
from storage.catalog.endpoints import EndpointVisit, LeaseHolder
from storage.catalog.subscriptions import Subscription
from storage.model import FQID
from storage.pubsub import MemoryPubSub
from tests.subscription_builders import backlog, happen, match, states, subscribe, tell, told
from tests.workers.webhook_receivers import RULES, delivering, eventually
from workers import delivery_records
from workers.deliver import CROWDED_AFTER_S, Deliverer
from workers.delivery_records import (
    FIRST_PERMITS,
    RESULTS_PER_PERMIT,
    AttemptPermit,
    AttemptPermits,
    NetworkLatency,
    ResultRecorder,
    StopReason,
    SubscriptionFence,
)
from workers.webhooks import SendPermission

pytestmark = pytest.mark.spec("NOT-22")

NEVER_S = 3600.0
"""A clock that does not tick: only messages and wake-ups are left."""


class Receivers:
    """Sends nothing: holds each request until it is let go, then answers by its path."""

    def __init__(self, *, hold: bool = False) -> None:
        self.sent: list[str] = []
        self.busy: list[str] = []
        self.hanging = True
        self._go = asyncio.Event()
        if not hold:
            self._go.set()

    def let_go(self) -> None:
        self._go.set()

    async def send(self, request: WebhookRequest, allowed: SendPermission) -> WebhookResponse:
        self.sent.append(request.url)
        self.busy.append(request.url)
        try:
            while ("hangs" in request.url and self.hanging) or not self._go.is_set():
                await asyncio.sleep(0.005)
            return WebhookResponse(status=500 if "refuses" in request.url else 200)
        finally:
            self.busy.remove(request.url)

    async def close(self) -> None:
        """Nothing to close."""


def url(path: str) -> str:
    return f"http://127.0.0.1:1/{path}"


def set_endpoint(catalog: Catalog, subscription: Subscription, change: str) -> None:
    with catalog.write() as tx:
        which = {"id": subscription.endpoint_id}
        tx.execute(text(f"UPDATE endpoints SET {change} WHERE id = :id"), which)


def waiting(catalog: Catalog) -> list[int]:
    with catalog.read() as tx:
        return endpoints.list_waiting(tx, limit=100)


def test_concurrent_requests_are_limited(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers = Receivers(hold=True)
        for number in range(5):
            subscription = subscribe(catalog, url(str(number)))
            backlog(catalog, subscription, 10)
            if number < 3:
                set_endpoint(catalog, subscription, "width = 8")
        async with delivering(catalog, rules=replace(RULES, in_flight=7), sender=receivers):
            await eventually(lambda: len(receivers.busy) == 7)
            await asyncio.sleep(0.1)
            assert len(receivers.busy) == 7
            # New receivers may hang: they have half of all at the most.
            assert sum(sent[-1] in "34" for sent in receivers.busy) <= 3
            receivers.let_go()
            await eventually(lambda: len(receivers.sent) == 50)

    asyncio.run(scene())


def test_a_process_that_dies_sends_no_more_again_than_its_permits(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("SLOW_ATTEMPT_S", "SLOW_SUSPECT_S"):
        monkeypatch.setattr(delivery_records, patience, 60.0)
    surplus: list[int] = []

    class Looking(Receivers):
        async def send(self, request: WebhookRequest, allowed: SendPermission) -> WebhookResponse:
            answer = await super().send(request, allowed)
            with catalog.read() as tx:
                count = "SELECT count(*) FROM deliveries WHERE state = 'delivered'"
                recorded = tx.execute(text(count)).scalar_one()
            again = len(self.sent) - recorded
            surplus.append(again - FIRST_PERMITS - recorded // RESULTS_PER_PERMIT)
            return answer

    async def scene() -> None:
        several = [subscribe(catalog, url(str(number))) for number in range(5)]
        for one in several:
            backlog(catalog, one, 50)
        async with delivering(catalog, sender=Looking()):
            await eventually(
                lambda: all(states(catalog, one) == ["delivered"] * 50 for one in several)
            )
        assert max(surplus) == 0

    asyncio.run(scene())


async def sending(places: AttemptPermits, *, suspect: bool = False) -> AttemptPermit:
    """Acquire a permit and begin to send."""
    permit = await places.acquire(suspect=suspect)
    permit.lend_later()
    return permit


def test_hanging_attempt_releases_permit() -> None:
    async def scene() -> None:
        places = AttemptPermits(in_flight=7, first=4)
        hanging = [await sending(places) for _ in range(4)]
        more = [asyncio.create_task(sending(places)) for _ in range(4)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in more)
        await eventually(lambda: sum(task.done() for task in more) == 3)
        # Answered and not recorded: they count again, and nothing has become free.
        for place in [*hanging, *(task.result() for task in more if task.done())]:
            place.mark_ended(is_answered=True)
        hanging.pop().release()
        await asyncio.sleep(0.01)
        assert sum(task.done() for task in more) == 3
        for place in hanging:
            place.release()
        (await more[0]).release()
        await asyncio.wait_for(asyncio.gather(*more), 1.0)

    asyncio.run(scene())


@pytest.mark.parametrize("asks_again", [False, True])
def test_attempts_that_wait_for_the_catalog_lend_no_permit(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, asks_again: bool
) -> None:
    for patience in ("SLOW_ATTEMPT_S", "SLOW_SUSPECT_S"):
        monkeypatch.setattr(delivery_records, patience, 0.001)
    monkeypatch.setattr(NetworkLatency, "FACTOR", 0)
    asked, sent, hangs = 0, 0, not asks_again
    responds = asyncio.Event()

    async def find_stop_reason(fence: SubscriptionFence, subscription_id: int) -> StopReason | None:
        nonlocal asked
        if hangs:
            asked += 1
            await responds.wait()
        return None

    class Connecting(Receivers):
        """Ask again once connected, as `WebhookSender` does."""

        async def send(self, request: WebhookRequest, allowed: SendPermission) -> WebhookResponse:
            nonlocal sent, hangs
            hangs = not responds.is_set()
            assert await allowed()
            sent += 1
            return await super().send(request, allowed)

    monkeypatch.setattr(SubscriptionFence, "find_stop_reason", find_stop_reason)

    async def scene() -> None:
        several = [subscribe(catalog, url(str(number))) for number in range(5)]
        for one in several:
            backlog(catalog, one, 4)
        async with delivering(catalog, sender=Connecting()):
            try:
                await eventually(lambda: asked >= FIRST_PERMITS)
                await asyncio.sleep(0.1)
                assert (asked, sent) == (FIRST_PERMITS, 0)
            finally:
                responds.set()
            await eventually(lambda: sent == 20)

    asyncio.run(scene())


def test_permits_are_lent_later_on_a_slow_network() -> None:
    latency = NetworkLatency()
    assert latency.find_lending_delay_s(0.01) == pytest.approx(0.15)
    latency.add(20.0)
    assert latency.find_lending_delay_s(0.01) == pytest.approx(0.15)
    latency.add(0.04)
    assert latency.find_lending_delay_s(0.01) == pytest.approx(0.12)
    latency.add(0.001)
    assert latency.find_lending_delay_s(0.01) == 0.01


def test_slow_receivers_keep_no_permit_for_longer() -> None:
    latency = NetworkLatency()
    latency.add(0.001)
    for _ in range(1000):
        latency.add(1.2)
    assert latency.find_lending_delay_s(0.05) == 0.05


def test_distant_receivers_do_not_lend_permits_on_the_way() -> None:
    async def scene() -> None:
        places = AttemptPermits(in_flight=100, first=2, latency=NetworkLatency(3600.0))
        held = [await sending(places, suspect=True) for _ in range(2)]
        waiting = [asyncio.create_task(sending(places, suspect=True)) for _ in range(3)]
        await asyncio.sleep(5 * delivery_records.SLOW_SUSPECT_S)
        assert not any(task.done() for task in waiting)
        for place in held:
            place.mark_ended(is_answered=True)
            place.release()
        await eventually(lambda: sum(task.done() for task in waiting) == 2)
        for task in waiting:
            task.cancel()

    asyncio.run(scene())


def test_new_and_failing_endpoints_get_half_of_permits() -> None:
    async def scene() -> None:
        places = AttemptPermits(in_flight=16, first=1, latency=NetworkLatency(0.0))
        suspects = [asyncio.create_task(sending(places, suspect=True)) for _ in range(20)]
        await eventually(lambda: sum(task.done() for task in suspects) == 8)
        others = [asyncio.wait_for(sending(places), 1.0) for _ in range(8)]
        assert len(await asyncio.gather(*others)) == 8
        for task in suspects:
            task.cancel()

    asyncio.run(scene())


def test_cancelled_waiter_takes_no_permit() -> None:
    async def scene() -> None:
        places = AttemptPermits(in_flight=2, first=1)
        held = await places.acquire()
        waiting = asyncio.create_task(places.acquire())
        await asyncio.sleep(0)
        held.release()
        waiting.cancel()  # … though it was granted just now.
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (await asyncio.wait_for(places.acquire(), 1.0)).release()

    asyncio.run(scene())


def test_receivers_that_keep_failing_use_half_of_the_threads(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers = Receivers()
        suspects = [subscribe(catalog, url(f"hangs/{number}")) for number in range(6)]
        healthy = [subscribe(catalog, url(f"takes/{number}")) for number in range(6)]
        tell(catalog, [*suspects, *healthy])
        for suspect in suspects:
            set_endpoint(catalog, suspect, "failures = 9")
        async with delivering(catalog, sender=receivers, threads=4):
            await eventually(lambda: sum("takes" in sent for sent in receivers.sent) == 6)
            await asyncio.sleep(0.1)
            assert len(receivers.busy) == 2
            receivers.hanging = False

    asyncio.run(scene())


def test_slow_receivers_do_not_keep_all_threads(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers = Receivers(hold=True)
        slow = [subscribe(catalog, url(str(number))) for number in range(4)]
        async with delivering(catalog, sender=receivers, threads=4, tick_s=NEVER_S) as deliverer:
            await asyncio.sleep(0.1)  # … for the one tick of the clock.
            tell(catalog, slow)
            waiting = [asyncio.create_task(deliverer.serve(each.endpoint_id)) for each in slow[:3]]
            await eventually(lambda: len(receivers.busy) == 3)
            await asyncio.sleep(2 * CROWDED_AFTER_S)
            assert not any(task.done() for task in waiting)
            async with asyncio.timeout(1.0):
                await deliverer.serve(slow[3].endpoint_id)
                await asyncio.gather(*waiting)
            # Their turns go on: nobody else serves them, and the answers are recorded. The last one
            # may still be reading its deliveries when the others make it leave its thread.
            await eventually(lambda: len(receivers.busy) == 4)
            receivers.let_go()
            await eventually(lambda: all(states(catalog, each) == ["delivered"] for each in slow))

    asyncio.run(scene())


def test_woken_turn_never_resends_open_requests(
    catalog: Catalog,
) -> None:
    async def scene() -> None:
        receivers = Receivers(hold=True)
        subscription = subscribe(catalog, url(""))
        for day in (1, 2):
            version = f"2026-01-0{day}T000000.000000Z"
            made = happen(catalog, fqid=FQID("11111111-1111-4111-8111-111111111111", version))
            match(catalog, made, subscription)
        async with delivering(catalog, sender=receivers, tick_s=0.01) as deliverer:
            await eventually(lambda: len(receivers.sent) == 1)
            for _ in range(20):
                await deliverer.serve(subscription.endpoint_id)
                await asyncio.sleep(0.01)
            assert len(receivers.sent) == 1
            receivers.let_go()
            await eventually(lambda: states(catalog, subscription) == ["delivered"] * 2)
        assert len(receivers.sent) == 2

    asyncio.run(scene())


def test_a_delivery_that_waited_for_long_is_read_again_before_it_is_sent(
    catalog: Catalog,
) -> None:
    async def scene() -> None:
        receivers = Receivers(hold=True)
        subscription = subscribe(catalog, url("a"))
        first, second = tell(catalog, [subscription], times=2)
        rules = replace(RULES, in_flight=1, fresh_s=0.1)
        began = time.monotonic()
        async with delivering(catalog, rules=rules, sender=receivers):
            await eventually(lambda: len(receivers.busy) == 1)
            fetching_s = time.monotonic() - began  # or less
            await asyncio.sleep(0.15 + 2 * fetching_s)
            for made in (first, second):
                match(catalog, happen(catalog, "TOMBSTONE", made.fqid), subscription)
            receivers.let_go()
            await eventually(lambda: "pending" not in states(catalog, subscription))
        # The first CREATE, which was in flight, and both TOMBSTONEs.
        assert sorted(states(catalog, subscription)) == ["delivered"] * 3 + ["superseded"]
        assert len(receivers.sent) == 3

    asyncio.run(scene())


def test_a_turn_that_lost_its_lease_sends_nothing_more_and_records_its_answers(
    catalog: Catalog,
) -> None:
    async def scene() -> None:
        receivers = Receivers(hold=True)
        subscription = subscribe(catalog, url(""))
        backlog(catalog, subscription, 50)
        async with delivering(catalog, rules=replace(RULES, lease_s=0.3), sender=receivers):
            await eventually(lambda: len(receivers.busy) == 4)
            set_endpoint(catalog, subscription, f"token = 'other', lease_us = {2**60}")
            await asyncio.sleep(0.35)
            receivers.let_go()
            await eventually(lambda: states(catalog, subscription).count("delivered") == 4)
            await asyncio.sleep(0.1)
        assert len(receivers.sent) == 4

    asyncio.run(scene())


def test_a_turn_keeps_its_lease_while_requests_hang(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers = Receivers(hold=True)
        subscription = subscribe(catalog, url(""))
        tell(catalog, [subscription])
        rules = replace(RULES, lease_s=1.0)
        async with (
            delivering(catalog, rules=rules, sender=receivers),
            delivering(catalog, rules=rules, sender=receivers),
        ):
            await eventually(lambda: len(receivers.busy) == 1)
            await asyncio.sleep(2.5)
            assert len(receivers.sent) == 1
            receivers.let_go()
            await eventually(lambda: states(catalog, subscription) == ["delivered"])

    asyncio.run(scene())


def test_no_wake_up_is_lost_between_processes(catalog: Catalog) -> None:
    """One message for each recorded delivery, to either process: none of them is left over.

    SQLite needs no clock for it. On PostgreSQL a claim does not wait for a release.
    """
    tick_s = NEVER_S if catalog.sqlite else 1.0

    async def scene() -> None:
        receivers, notices, rng = Receivers(), MemoryPubSub(), Random(1)
        subscription = subscribe(catalog, url(""))

        def record() -> None:
            tell(catalog, [subscription])

        async with (
            delivering(catalog, sender=receivers, notices=notices, tick_s=tick_s) as one,
            delivering(catalog, sender=receivers, notices=notices, tick_s=tick_s) as other,
        ):
            serving = []
            for _ in range(50):
                await asyncio.to_thread(record)
                either = rng.choice([one, other])
                serving.append(asyncio.create_task(either.serve(subscription.endpoint_id)))
                await asyncio.sleep(rng.random() * 0.01)
            await asyncio.gather(*serving)
            await eventually(lambda: states(catalog, subscription) == ["delivered"] * 50)
        assert len(receivers.sent) == 50

    asyncio.run(scene())


def test_a_message_to_another_process_wakes_the_turn_at_once(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers, notices = Receivers(hold=True), MemoryPubSub()
        subscription = subscribe(catalog, url(""))
        tell(catalog, [subscription])
        async with (
            delivering(catalog, sender=receivers, notices=notices, tick_s=NEVER_S) as one,
            delivering(catalog, sender=receivers, notices=notices, tick_s=NEVER_S) as other,
        ):
            serving = asyncio.create_task(one.serve(subscription.endpoint_id))
            await eventually(lambda: len(receivers.busy) == 1)
            tell(catalog, [subscription])
            await other.serve(subscription.endpoint_id)
            await eventually(lambda: len(receivers.busy) == 2, within_s=1.0)
            receivers.let_go()
            await serving

    asyncio.run(scene())


def test_a_turn_that_is_over_sends_itself_a_message(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers = Receivers()
        subscription = subscribe(catalog, url(""))
        backlog(catalog, subscription, 300)
        rules = replace(RULES, turn_s=0.02)
        async with delivering(catalog, rules=rules, sender=receivers, tick_s=NEVER_S):
            await eventually(lambda: len(receivers.sent) == 300)

    asyncio.run(scene())


def test_a_stopped_process_releases_what_hangs(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers = Receivers()
        subscription = subscribe(catalog, url("hangs"))
        tell(catalog, [subscription])
        async with serving_alone(catalog, receivers) as deliverer:
            task = asyncio.create_task(deliverer.serve(subscription.endpoint_id))
            await eventually(lambda: len(receivers.busy) == 1)
        await task
        assert waiting(catalog) == [subscription.endpoint_id]
        assert states(catalog, subscription) == ["pending"]

    asyncio.run(scene())


@asynccontextmanager
async def serving_alone(catalog: Catalog, receivers: Receivers) -> AsyncIterator[Deliverer]:
    """A deliverer whose process is told to end while requests hang."""
    deliverer = Deliverer(
        catalog,
        MemoryPubSub(),
        NoMessages(),
        rules=RULES,
        new_sender=lambda: receivers,
        unseal=lambda sealed, _: sealed,
        threads=4,
    )
    await deliverer.open()
    yield deliverer
    await deliverer.close()


class NoMessages:
    """Nothing is sent on."""

    def send(self, rows: object, request_id: str = "") -> None:
        raise AssertionError(rows)


def test_an_endpoint_rests_while_all_that_is_due_waits_for_an_earlier_one(
    catalog: Catalog,
) -> None:
    async def scene() -> None:
        receivers = Receivers()
        subscription = subscribe(catalog, url("refuses"))
        uuid = "11111111-1111-4111-8111-111111111111"
        for day in (1, 2):
            fqid = FQID(uuid, f"2026-01-0{day}T000000.000000Z")
            match(catalog, happen(catalog, fqid=fqid), subscription)
        rules = replace(RULES, delays_s=(0, 60.0, 60.0))
        async with delivering(catalog, rules=rules, sender=receivers):
            await eventually(lambda: bool(told(catalog, subscription)[0].attempts))
            await eventually(lambda: waiting(catalog) == [])
            await asyncio.sleep(0.2)
            assert waiting(catalog) == []
            assert len(receivers.sent) == 1
        # Something else that comes due is sent at once in spite of that.
        tell(catalog, [subscription])
        async with delivering(catalog, rules=rules, sender=receivers, tick_s=NEVER_S) as again:
            await again.serve(subscription.endpoint_id)
        assert len(receivers.sent) == 2

    asyncio.run(scene())


def a_result(ident: int, *, due_us: int = 1) -> AttemptResult:
    return AttemptResult(ident, 1, 0.1, 200, None, "", "delivered", due_us, None)


class Told:
    """What a recorder tells a turn."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.given_up = False

    def mark_recorded(self, delivery_id: int) -> None:
        self.done.append(delivery_id)

    def stop_attempts(self) -> None:
        self.given_up = True


def test_unrecordable_result_fails_alone(catalog: Catalog) -> None:
    async def scene() -> None:
        subscription = subscribe(catalog, url(""))
        tell(catalog, [subscription], times=3)
        idents = [delivery.id for delivery in told(catalog, subscription)]
        places = AttemptPermits(3, first=3)
        recorder = ResultRecorder(catalog, LeaseHolder("t", 5.0, 5), places)
        turns = [Told() for _ in idents]
        for ident, turn in zip(idents, turns, strict=True):
            result = a_result(ident, due_us=2**70 if turn is turns[1] else 1)
            recorder.record(result, turn, await places.acquire())
        running = asyncio.create_task(recorder.run())
        with pytest.raises(Exception, match=r"\d"):
            await recorder.visit(EndpointVisit(subscription.endpoint_id, claim=True))
        await recorder.close(running)
        assert [turn.done for turn in turns] == [[idents[0]], [], [idents[2]]]
        assert [turn.given_up for turn in turns] == [False, True, False]
        assert states(catalog, subscription) == ["delivered", "pending", "delivered"]
        async with asyncio.timeout(1.0):
            await asyncio.gather(*(places.acquire() for _ in range(3)))

    asyncio.run(scene())


def test_results_of_many_turns_share_one_transaction(catalog: Catalog) -> None:
    async def scene() -> None:
        receivers = Receivers(hold=True)
        several = [subscribe(catalog, url(str(number))) for number in range(10)]
        tell(catalog, several)
        async with delivering(catalog, sender=receivers):
            await eventually(lambda: len(receivers.busy) == 10)
            with counting(catalog) as commits:
                receivers.let_go()
                await eventually(
                    lambda: all(states(catalog, one) == ["delivered"] for one in several)
                )
            assert commits() < 10

    asyncio.run(scene())


@contextmanager
def counting(catalog: Catalog) -> Iterator[Callable[[], int]]:
    """How often results were recorded meanwhile."""
    count = 0

    def look(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal count
        count += "INSERT INTO attempts" in statement

    event.listen(catalog.engine, "before_cursor_execute", look)
    yield lambda: count
    event.remove(catalog.engine, "before_cursor_execute", look)


def test_time_between_record_and_request_is_short(catalog: Catalog) -> None:
    """Not a measurement: it fails if a delivery waits for a tick or a poll."""

    async def scene() -> None:
        receivers = Receivers()
        subscription = subscribe(catalog, url(""))
        async with delivering(catalog, sender=receivers, tick_s=NEVER_S) as deliverer:
            took = []
            for count in range(1, 6):
                tell(catalog, [subscription])
                began = time.monotonic()
                serving = asyncio.create_task(deliverer.serve(subscription.endpoint_id))
                await eventually(lambda count=count: len(receivers.sent) == count)
                took.append(time.monotonic() - began)
                await serving
        assert statistics.median(took) < 0.5

    asyncio.run(scene())
