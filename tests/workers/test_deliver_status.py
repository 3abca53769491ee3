"""Deliveries of paused and disabled subscriptions, and secret rotation."""

import asyncio
import base64
import json
from dataclasses import replace

import pytest
from aiohttp import web
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from pipelines import deliveries, delivery_log, subscriptions
from pipelines.subscriptions import NewSubscription, SubscriptionRef
from storage.catalog import Catalog
from storage.catalog import deliveries as catalog_deliveries
from storage.catalog import subscriptions as rows
from storage.catalog.delivery_log import LoggedDelivery
from storage.catalog.subscriptions import Subscription
from storage.stores import Stores
from tests.builders import new_uuid
from tests.subscription_builders import backlog, happen, match, states, subscribe, tell, told
from tests.workers.webhook_receivers import (
    RULES,
    Got,
    Receiver,
    delivering,
    eventually,
    receiving,
    refuses,
)

OWNER = "owner@example.org"
DAY_S = 86_400


def whose(subscription: Subscription) -> SubscriptionRef:
    return SubscriptionRef(subscription.uuid, subscription.owner, "aws")


def state(catalog: Catalog, subscription: Subscription) -> str:
    with catalog.read() as tx:
        found = rows.find(tx, subscription.uuid)
    assert found is not None
    return found.state


@pytest.mark.spec("SUB-22")
def test_a_paused_one_is_sent_nothing_until_it_is_resumed(stores: Stores) -> None:
    async def scene() -> None:
        catalog = stores.catalog
        async with receiving() as receiver:
            paused = subscribe(catalog, receiver.url + "/same?who=paused")
            other = subscribe(catalog, receiver.url + "/same?who=other")
            assert paused.endpoint_id == other.endpoint_id
            backlog(catalog, paused, 700)
            subscriptions.pause_subscription(stores, whose(paused))
            tell(catalog, [paused, other], times=3)
            async with delivering(catalog, rules=replace(RULES, first_permits=64)):
                await eventually(lambda: states(catalog, other) == ["delivered"] * 3)
                assert {got.path for got in receiver.got} == {"/same?who=other"}
                subscriptions.resume_subscription(stores, whose(paused))
                await eventually(lambda: states(catalog, paused) == ["delivered"] * 703)
            assert len(set(receiver.ids())) == len(receiver.ids()) == 706

    asyncio.run(scene())


@pytest.mark.spec("SUB-22")
def test_the_clock_lets_go_what_a_resumption_left(stores: Stores) -> None:
    catalog = stores.catalog
    subscription = subscribe(catalog, "http://receiver.example/")
    subscriptions.pause_subscription(stores, whose(subscription))
    tell(catalog, [subscription])
    with catalog.write() as tx:
        rows.resume(tx, subscription.id)
    assert told(catalog, subscription)[0].next_us is None
    assert subscriptions.release_paused_deliveries(stores) == 1
    assert subscriptions.release_paused_deliveries(stores) == 0
    assert told(catalog, subscription)[0].next_us is not None


def _grow_old(catalog: Catalog, seconds: float) -> None:
    """As if so much time had gone by since everything."""
    us = int(seconds * 1e6)
    with catalog.write() as tx:
        for table, column in (
            ("deliveries", "created_us"),
            ("deliveries", "finished_us"),
            ("subscriptions", "deleted_us"),
        ):
            tx.exec_driver_sql(f"UPDATE {table} SET {column} = {column} - {us}")


@pytest.mark.spec("NOT-23")
def test_old_deliveries_and_deleted_subscriptions_expire(stores: Stores) -> None:
    catalog = stores.catalog
    active, disabled, deleted = (
        subscribe(catalog, f"http://receiver.example/{path}") for path in ("", "", "gone")
    )
    tell(catalog, [active, disabled, deleted], times=3)
    subscriptions.pause_subscription(stores, whose(disabled))
    tell(catalog, [disabled])
    with catalog.write() as tx:
        for subscription in (active, disabled, deleted):
            failed, done = (one.id for one in told(catalog, subscription)[:2])
            tx.exec_driver_sql(
                "UPDATE deliveries SET finished_us = created_us,"
                f" state = CASE id WHEN {failed} THEN 'failed' ELSE 'delivered' END"
                f" WHERE id IN ({failed}, {done})"
            )
        rows.mark_deleted(tx, deleted)
        catalog_deliveries.cancel_pending(tx, deleted.id, deleted.endpoint_id)
    keep = subscriptions.DeliveryRetention(ended_s=30 * DAY_S, undelivered_s=90 * DAY_S)
    assert subscriptions.expire_deliveries(stores, keep) == 0
    _grow_old(catalog, 31 * DAY_S)
    assert subscriptions.expire_deliveries(stores, keep) == 2 + 3
    assert states(catalog, active) == ["failed", "pending"]
    assert states(catalog, disabled) == ["failed", "pending", "pending"]
    with catalog.read() as tx:
        assert rows.find_all(tx, [deleted.id]) == []
        named = tx.exec_driver_sql("SELECT id FROM endpoints").scalars().all()
        assert named == [active.endpoint_id]
    _grow_old(catalog, 60 * DAY_S)
    assert subscriptions.expire_deliveries(stores, replace(keep, undelivered_s=0)) == 0
    assert subscriptions.expire_deliveries(stores, keep) == 2
    assert states(catalog, active) == ["pending"]
    # What was held back for so long has ended, and is kept for a while as what has ended.
    assert states(catalog, disabled) == ["pending", "cancelled"]
    _grow_old(catalog, 31 * DAY_S)
    assert subscriptions.expire_deliveries(stores, keep) == 1
    assert states(catalog, disabled) == ["pending"]


@pytest.mark.spec("SUB-22")
def test_a_test_is_sent_to_a_paused_one_too(stores: Stores) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            subscription = subscribe(stores.catalog, receiver.url)
            subscriptions.pause_subscription(stores, whose(subscription))
            subscriptions.ping_subscription(stores, subscription, uuid=new_uuid())
            tell(stores.catalog, [subscription])
            async with delivering(stores.catalog):
                await eventually(
                    lambda: states(stores.catalog, subscription) == ["delivered", "pending"]
                )
            assert json.loads(receiver.got[0].body)["test"] is True

    asyncio.run(scene())


@pytest.mark.spec("SUB-23")
def test_failing_subscription_is_disabled_alone(
    stores: Stores,
) -> None:
    async def depends(_receiver: Receiver, got: Got) -> web.StreamResponse:
        return web.Response(status=500 if "dead" in got.path else 200)

    async def scene() -> None:
        catalog = stores.catalog
        async with receiving(depends) as receiver:
            dead = subscribe(catalog, receiver.url + "/?dead")
            alive = subscribe(catalog, receiver.url + "/?alive")
            assert dead.endpoint_id == alive.endpoint_id
            tell(catalog, [dead, alive], times=12)
            delays_s = (0.0, 0.2, 0.2, 3600.0, 0)
            rules = replace(RULES, delays_s=delays_s, disable_after_s=0.3)
            async with delivering(catalog, rules=rules):
                await eventually(lambda: state(catalog, dead) == "disabled")
                await eventually(lambda: states(catalog, alive) == ["delivered"] * 12)
            assert state(catalog, alive) == "active"
            waiting = states(catalog, dead)
            assert "pending" in waiting
            shown = subscriptions.find_subscription(stores, dead.uuid, OWNER, replica="aws")
            assert shown.state_reason is not None
            assert "The receiver answered 500." in shown.state_reason
            subscriptions.resume_subscription(stores, whose(dead))
            # The schedule is what it was: nothing is sent before its time.
            next_us = [one.next_us for one in told(catalog, dead) if one.state == "pending"]
            assert all(next_us)
            assert state(catalog, dead) == "active"

    asyncio.run(scene())


@pytest.mark.spec("SUB-23")
def test_resumed_subscription_gets_held_deliveries(stores: Stores) -> None:
    async def scene() -> None:
        catalog = stores.catalog
        async with receiving(refuses) as receiver:
            dead = subscribe(catalog, receiver.url)
            tell(catalog, [dead], times=8)
            delays_s = (0.0, *[0.05] * 200)
            rules = replace(RULES, delays_s=delays_s, disable_after_s=0.3)
            async with delivering(catalog, rules=rules):
                await eventually(lambda: state(catalog, dead) == "disabled")
                await eventually(lambda: all(one.next_us is None for one in told(catalog, dead)))
                sent = len(receiver.got)
                await asyncio.sleep(0.5)
                assert len(receiver.got) == sent
            assert states(catalog, dead) == ["pending"] * 8
            attempts = [len(one.attempts) for one in told(catalog, dead)]
            assert sum(attempts) == sent

    asyncio.run(scene())


def sealing(plain: bytes, context: bytes) -> bytes:
    return context + b"|" + plain


def unsealing(sealed: bytes, context: bytes) -> bytes:
    assert sealed.startswith(context + b"|")
    return sealed.removeprefix(context + b"|")


def verifies(got: Got, key: bytes) -> bool:
    """By the library of Standard Webhooks, as a receiver would."""
    try:
        Webhook("whsec_" + base64.b64encode(key).decode()).verify(got.body, got.headers)
    except WebhookVerificationError:
        return False
    return True


def authorized(got: Got, key: bytes) -> bool:
    signed = deliveries.http_signature_headers(
        key,
        "key-2",
        method=got.method,
        target=got.path,
        host=got.headers["host"],
        date=got.headers["date"],
        body=got.body,
    )
    return signed["Authorization"] == got.headers["authorization"]


@pytest.mark.spec("SUB-21")
@pytest.mark.parametrize(("overlap_s", "former"), [(60, True), (0, False)])
def test_both_secrets_sign_during_overlap(stores: Stores, overlap_s: float, former: bool) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            new = NewSubscription(receiver.url, "aws", hmac_secret_key="old", hmac_key_id="key-1")
            made = subscriptions.create_subscription(
                stores,
                new,
                OWNER,
                uuid=new_uuid(),
                seal=sealing,
                limit=9,
                allow_private=True,
            )
            subscriptions.rotate_secret(
                stores,
                whose(made),
                "new",
                key_id="key-2",
                overlap_s=overlap_s,
                overlap_cap_s=60,
                seal=sealing,
            )
            tell(stores.catalog, [made])
            async with delivering(stores.catalog, unseal=unsealing):
                await eventually(lambda: states(stores.catalog, made) == ["delivered"])
            (got,) = receiver.got
            assert verifies(got, b"new")
            assert verifies(got, b"old") is former
            assert not verifies(got, b"other")
            assert authorized(got, b"new")
            assert not authorized(got, b"old")
            signed = got.headers["webhook-signature"].split(" ")
            assert len(signed) == 1 + former

    asyncio.run(scene())


@pytest.mark.spec("SUB-40")
@pytest.mark.parametrize("former", ["failed", "delivered", "pending"])
def test_resent_delivery_is_sent_once_while_disabled(stores: Stores, former: str) -> None:
    async def scene() -> None:
        catalog = stores.catalog
        async with receiving() as receiver:
            own = subscribe(catalog, receiver.url)
            event = tell(catalog, [own])[0]
            # Earlier events of its bundle do not hold it back.
            match(catalog, happen(catalog, "TOMBSTONE", event.fqid), own)
            match(catalog, happen(catalog), own)
            with catalog.write() as tx:
                tx.exec_driver_sql(
                    "UPDATE subscriptions SET state = 'disabled', failures = 7, failing_us = 1"
                )
                tx.exec_driver_sql(
                    f"UPDATE deliveries SET state = '{former}' WHERE event_type = 'TOMBSTONE'"
                )
            (one,) = (each for each in told(catalog, own) if each.event_type == "TOMBSTONE")
            resent = delivery_log.resend_delivery(stores, own, one.uuid)
            assert (resent.state, resent.resent_from) == ("pending", former)
            async with delivering(catalog):
                await eventually(lambda: len(receiver.got) == 1)
                await eventually(lambda: find(stores, own, one.uuid).state == "delivered")
            assert receiver.ids() == [one.uuid]
            assert find(stores, own, one.uuid).resent_from is None
            with catalog.read() as tx:
                row = rows.find(tx, own.uuid)
            assert row is not None
            assert (row.state, row.failures, row.failing_us) == ("disabled", 7, 1)

    asyncio.run(scene())


@pytest.mark.spec("SUB-40")
@pytest.mark.parametrize("former", ["failed", "delivered"])
def test_failed_resend_keeps_state_and_counts_no_failure(stores: Stores, former: str) -> None:
    async def scene() -> None:
        catalog = stores.catalog
        async with receiving(refuses) as receiver:
            own = subscribe(catalog, receiver.url)
            tell(catalog, [own])
            with catalog.write() as tx:
                tx.exec_driver_sql(f"UPDATE deliveries SET state = '{former}', attempts = 1")
            (one,) = told(catalog, own)
            delivery_log.resend_delivery(stores, own, one.uuid)
            async with delivering(catalog):
                await eventually(lambda: find(stores, own, one.uuid).attempts != ())
            after = find(stores, own, one.uuid)
            assert (after.state, after.next_us, len(after.attempts)) == (former, None, 1)
            assert (after.reason is None) == (former == "delivered")
            with catalog.read() as tx:
                row = rows.find(tx, own.uuid)
            assert row is not None
            assert (row.failures, row.failing_us) == (0, None)

    asyncio.run(scene())


@pytest.mark.spec("SUB-38")
@pytest.mark.parametrize("encoding", ["application/json", "multipart/form-data"])
def test_rebuilt_requests_are_those_that_were_sent(stores: Stores, encoding: str) -> None:
    async def scene() -> None:
        catalog, uuid = stores.catalog, new_uuid()
        async with receiving(refuses) as receiver:
            own = subscribe(
                catalog,
                receiver.url + "/hook?x=1",
                uuid=uuid,
                method="PUT",
                encoding=encoding,
                form_fields={"lab": "ä"},
                hmac_secret=sealing(b"secret", subscriptions.secret_context(uuid)),
            )
            tell(catalog, [own])
            rules = replace(RULES, delays_s=(0.0, 0.0))
            async with delivering(catalog, rules=rules, unseal=unsealing):
                await eventually(lambda: states(catalog, own) == ["failed"])
            (one,) = told(catalog, own)
            rebuilt = delivery_log.rebuild_requests(stores, own, one, unsealing)
            assert len(rebuilt) == len(receiver.got) == 2
            for request, got in zip(rebuilt, receiver.got, strict=True):
                assert (request.method, request.body) == ("PUT", got.body)
                assert request.url == receiver.url + got.path
                sent = {name.lower(): value for name, value in request.headers.items()}
                assert sent.items() <= got.headers.items()
                assert "webhook-signature" in sent

    asyncio.run(scene())


def find(stores: Stores, own: Subscription, uuid: str) -> LoggedDelivery:
    return delivery_log.find_delivery(stores, own, uuid)
