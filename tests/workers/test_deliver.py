"""Deliveries to real receivers are fair, ordered and crash-safe."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from sqlalchemy import text

from storage.catalog import Catalog, Tx, deliveries, endpoints, subscriptions
from storage.model import FQID
from tests.subscription_builders import backlog, happen, match, states, subscribe, tell, told
from tests.workers.webhook_receivers import (
    PATIENCE_S,
    RULES,
    Got,
    Receiver,
    delivering,
    eventually,
    receiving,
    refuses,
)


def leased(catalog: Catalog) -> int:
    with catalog.read() as tx:
        return int(
            tx.execute(text("SELECT count(*) FROM endpoints WHERE token IS NOT NULL")).scalar_one()
        )


def for_update(tx: Tx) -> str:
    return "" if tx.dialect.name == "sqlite" else " FOR UPDATE"


@pytest.mark.spec("SVC-09", "NOT-01", "NOT-16", "STA-03")
def test_a_delivery_is_sent_once_and_recorded(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            subscription = subscribe(catalog, receiver.url + "/hook?token=1")
            tell(catalog, [subscription])
            async with delivering(catalog):
                await eventually(lambda: states(catalog, subscription) == ["delivered"])
            (delivery,) = told(catalog, subscription)
            (got,) = receiver.got
            assert (got.method, got.path) == ("POST", "/hook?token=1")
            assert got.body.decode() == f'{{"to":"{subscription.uuid}"}}'
            assert got.headers["webhook-id"] == delivery.uuid
            assert got.headers["x-store-notify-attempt"] == "1"
            (attempt,) = delivery.attempts
            assert (attempt.number, attempt.status, attempt.body) == (1, 200, "thank you")
            assert delivery.next_us is None
            assert leased(catalog) == 0

    asyncio.run(scene())


@pytest.mark.spec("OPS-03")
def test_an_attempt_is_logged_under_the_request_that_caused_it(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            subscription = subscribe(catalog, receiver.url + "/hook?token=secret")
            match(catalog, happen(catalog), subscription, request_id="request-1")
            async with delivering(catalog):
                await eventually(lambda: states(catalog, subscription) == ["delivered"])

    with caplog.at_level("INFO", "workers.delivery_turns"):
        asyncio.run(scene())
    (line,) = [record for record in caplog.records if "attempt 1" in record.getMessage()]
    assert vars(line)["request_id"] == "request-1"
    assert "secret" not in line.getMessage()


@pytest.mark.spec("NOT-15", "NOT-17", "STA-04")
def test_failed_delivery_is_retried_on_schedule_then_given_up(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving(refuses) as receiver:
            subscription = subscribe(catalog, receiver.url)
            tell(catalog, [subscription])
            rules = replace(RULES, delays_s=(0.0, 0.2, 0.4))
            async with delivering(catalog, rules=rules):
                await eventually(lambda: states(catalog, subscription) == ["failed"])
            (delivery,) = told(catalog, subscription)
            assert [attempt.status for attempt in delivery.attempts] == [500, 500, 500]
            assert [got.headers["x-store-notify-attempt"] for got in receiver.got] == [
                "1",
                "2",
                "3",
            ]
            assert len(set(receiver.ids())) == 1
            first, second, third = (got.at for got in receiver.got)
            assert second - first >= 0.2
            assert third - second >= 0.4
            assert delivery.reason == "The receiver answered 500."

    asyncio.run(scene())


@pytest.mark.spec("NOT-01")
def test_a_redirect_is_not_followed(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as other:

            async def sends_away(_receiver: Receiver, _got: Got) -> web.StreamResponse:
                return web.Response(status=302, headers={"Location": other.url})

            async with receiving(sends_away) as receiver:
                subscription = subscribe(catalog, receiver.url)
                tell(catalog, [subscription])
                async with delivering(catalog):
                    await eventually(lambda: states(catalog, subscription) == ["failed"])
                assert other.got == []

    asyncio.run(scene())


@pytest.mark.spec("NOT-22")
def test_dead_receiver_with_backlog_delays_no_other(catalog: Catalog) -> None:
    async def scene() -> None:
        released = asyncio.Event()

        async def hangs_until_released(_receiver: Receiver, _got: Got) -> web.StreamResponse:
            await released.wait()
            return web.Response(status=500)

        async with receiving(hangs_until_released) as dead, receiving() as alive:
            backlog(catalog, subscribe(catalog, dead.url), 20_000)
            others = [subscribe(catalog, f"{alive.url}/{n}") for n in range(10)]
            tell(catalog, others, times=10)
            # No request to the dead receiver ends while the others are delivered.
            async with delivering(catalog, timeout_s=2 * PATIENCE_S):
                await eventually(lambda: len(alive.got) == 100)
                await eventually(lambda: len(dead.got) >= 4)
                assert len(dead.got) == dead.busiest == 4
                released.set()
            released.clear()
            before = len(dead.got)
            async with delivering(catalog, timeout_s=0.5):
                await eventually(lambda: len(dead.got) > before + 4)
            assert dead.busiest == 4

    asyncio.run(scene())


@pytest.mark.spec("NOT-22")
def test_slow_receiver_delays_no_other(catalog: Catalog) -> None:
    async def slowly(_receiver: Receiver, _got: Got) -> web.StreamResponse:
        await asyncio.sleep(0.5)
        return web.Response()

    async def scene() -> None:
        async with receiving(slowly) as slow, receiving() as quick:
            patient, brisk = subscribe(catalog, slow.url), subscribe(catalog, quick.url)
            backlog(catalog, patient, 60)
            backlog(catalog, brisk, 60)
            async with delivering(catalog):
                await eventually(lambda: len(quick.got) == 60)
                assert len(slow.got) < 60
                await eventually(lambda: len(slow.got) == 60)
            assert slow.busiest <= 32

    asyncio.run(scene())


def test_a_window_opens_with_success(catalog: Catalog) -> None:
    async def shortly(_receiver: Receiver, _got: Got) -> web.StreamResponse:
        await asyncio.sleep(0.02)
        return web.Response()

    async def scene() -> None:
        async with receiving(shortly) as receiver:
            backlog(catalog, subscribe(catalog, receiver.url), 400)
            async with delivering(catalog, rules=replace(RULES, first_permits=64)):
                await eventually(lambda: len(receiver.got) == 400)
            assert 16 < receiver.busiest <= 32

    asyncio.run(scene())


@pytest.mark.spec("NOT-21")
def test_notifications_about_a_bundle_are_in_order(catalog: Catalog) -> None:
    async def fails_at_first(receiver: Receiver, got: Got) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return web.Response(
            status=500 if receiver.ids().count(got.headers["webhook-id"]) == 1 else 200
        )

    async def scene() -> None:
        async with receiving(fails_at_first) as receiver:
            subscription = subscribe(catalog, receiver.url)
            uuid = "11111111-1111-4111-8111-111111111111"
            versions = [f"2026-01-0{day}T000000.000000Z" for day in range(1, 6)]
            for version in versions:
                match(catalog, happen(catalog, fqid=FQID(uuid, version)), subscription)
            async with delivering(catalog):
                await eventually(lambda: states(catalog, subscription) == ["delivered"] * 5)
            ids = [delivery.uuid for delivery in told(catalog, subscription)]
            assert receiver.ids() == [ident for ident in ids for _ in range(2)]
            assert receiver.busiest == 1

    asyncio.run(scene())


@pytest.mark.spec("SUB-18", "NOT-12")
def test_superseded_and_cancelled_deliveries_are_not_sent(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            kept, gone = (
                subscribe(catalog, receiver.url + "/kept"),
                subscribe(catalog, receiver.url + "/gone"),
            )
            (event,) = tell(catalog, [kept])
            tell(catalog, [gone])
            match(catalog, happen(catalog, "TOMBSTONE", event.fqid), kept)
            with catalog.write() as tx:
                subscriptions.mark_deleted(tx, gone)
            async with delivering(catalog):
                await eventually(lambda: states(catalog, kept) == ["superseded", "delivered"])
                await eventually(lambda: states(catalog, gone) == ["cancelled"])
            assert [got.path for got in receiver.got] == ["/kept"]

    asyncio.run(scene())


@pytest.mark.spec("NOT-21")
def test_other_process_continues_with_same_transaction_ids(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            subscription = subscribe(catalog, receiver.url)
            tell(catalog, [subscription], times=3)
            with catalog.write() as tx:
                # Another one claimed it, sent and died before it recorded anything.
                (ident,) = endpoints.list_waiting(tx, limit=10)
                tx.execute(
                    text("UPDATE endpoints SET token = 'dead', lease_us = :until WHERE id = :id"),
                    {"until": time.time_ns() // 1000 + 500_000, "id": ident},
                )
                sent = {due.uuid for due in deliveries.list_due(tx, ident, limit=10)}
            async with delivering(catalog):
                await asyncio.sleep(0.2)
                assert receiver.got == []
                await eventually(lambda: states(catalog, subscription) == ["delivered"] * 3)
            assert set(receiver.ids()) == sent

    asyncio.run(scene())


def test_sends_nothing_while_results_cannot_be_recorded(catalog: Catalog) -> None:
    async def slowly(_receiver: Receiver, _got: Got) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return web.Response()

    @contextmanager
    def away() -> Iterator[None]:
        with catalog.write() as tx:
            # PostgreSQL has no one lock of all writers.
            tx.execute(text("SELECT id FROM endpoints" + for_update(tx)))
            tx.execute(text("SELECT id FROM deliveries" + for_update(tx)))
            yield

    async def scene() -> None:
        async with receiving(slowly) as receiver:
            subscription = subscribe(catalog, receiver.url)
            tell(catalog, [subscription], times=500)
            async with delivering(catalog, rules=replace(RULES, first_permits=64)):
                await eventually(lambda: receiver.busy >= 24)
                with away():
                    await asyncio.sleep(0.45)
                    sent = len(receiver.got)
                    await asyncio.sleep(0.45)
                    assert len(receiver.got) == sent < 500
                await eventually(lambda: states(catalog, subscription) == ["delivered"] * 500)
            assert len(receiver.got) == 500

    asyncio.run(scene())


def test_processes_share_work_without_duplicates(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            subscriptions = [subscribe(catalog, f"{receiver.url}/{n}") for n in range(20)]
            tell(catalog, subscriptions, times=10)
            async with delivering(catalog), delivering(catalog):
                await eventually(
                    lambda: all(states(catalog, one) == ["delivered"] * 10 for one in subscriptions)
                )
            assert len(receiver.ids()) == len(set(receiver.ids())) == 200

    asyncio.run(scene())


def test_stop_ends_and_records_open_requests(catalog: Catalog) -> None:
    async def slowly(_receiver: Receiver, _got: Got) -> web.StreamResponse:
        await asyncio.sleep(0.4)
        return web.Response()

    async def scene() -> None:
        async with receiving(slowly) as receiver:
            subscription = subscribe(catalog, receiver.url)
            tell(catalog, [subscription], times=9)
            async with delivering(catalog):
                await eventually(lambda: len(receiver.got) == 4)
            assert sorted(states(catalog, subscription)) == ["delivered"] * 4 + ["pending"] * 5
            assert len(receiver.got) == 4
            assert leased(catalog) == 0

    asyncio.run(scene())


@pytest.mark.spec("NOT-22")
def test_a_receiver_that_keeps_failing_is_probed_one_at_a_time(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving(refuses) as receiver:
            backlog(catalog, subscribe(catalog, receiver.url), 1000)
            async with delivering(catalog, rules=replace(RULES, delays_s=(0, 60))):
                await eventually(lambda: len(receiver.got) >= 5)
                await asyncio.sleep(1.0)
            assert len(receiver.got) <= 12

    asyncio.run(scene())


@pytest.mark.spec("NOT-20")
def test_a_private_address_is_refused_at_connect_time(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            port = receiver.url.rpartition(":")[2]
            hosts = ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"]
            refused = [subscribe(catalog, f"http://{host}:{port}/") for host in hosts]
            tell(catalog, refused)
            async with delivering(catalog, allow_private=False):
                for one in refused:
                    await eventually(lambda one=one: states(catalog, one) == ["failed"])
            assert receiver.got == []
            for one in refused:
                (delivery,) = told(catalog, one)
                assert "loopback" in (delivery.reason or "")

    asyncio.run(scene())


@pytest.mark.spec("SUB-32")
def test_an_endless_answer_is_cut_short(catalog: Catalog) -> None:
    async def scene() -> None:
        async with receiving(long_winded) as receiver:
            subscription = subscribe(catalog, receiver.url)
            tell(catalog, [subscription])
            async with delivering(catalog):
                await eventually(lambda: states(catalog, subscription) == ["delivered"])
            (delivery,) = told(catalog, subscription)
            assert delivery.attempts[0].body == "x" * 64

    asyncio.run(scene())


async def long_winded(_receiver: Receiver, _got: Got) -> web.StreamResponse:
    return web.Response(body=b"x" * 5_000_000)
