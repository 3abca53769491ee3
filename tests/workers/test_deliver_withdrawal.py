"""No attempt begins after a subscription was deleted or paused."""

import asyncio
import time
from collections.abc import Callable

import pytest
from aiohttp import web

from pipelines import subscriptions
from pipelines.subscriptions import SubscriptionRef
from storage.catalog import Catalog, endpoints
from storage.catalog.subscriptions import Subscription
from storage.stores import Stores
from tests.subscription_builders import backlog, states, subscribe, tell
from tests.workers.webhook_receivers import Got, Receiver, delivering, eventually, receiving

pytestmark = pytest.mark.spec("SUB-18")

WATCHED_S = 0.6

Stop = Callable[[Stores, Subscription], object]


def delete(stores: Stores, one: Subscription) -> None:
    subscriptions.delete_subscription(stores, one.uuid, one.owner, replica="aws")


def pause(stores: Stores, one: Subscription) -> None:
    subscriptions.pause_subscription(stores, SubscriptionRef(one.uuid, one.owner, "aws"))


async def answers_slowly(_receiver: Receiver, _got: Got) -> web.StreamResponse:
    await asyncio.sleep(0.02)
    return web.Response(text="thank you")


@pytest.mark.parametrize("stop", [delete, pause])
def test_no_attempt_begins_after_delete_response(stores: Stores, stop: Stop) -> None:
    async def scene() -> None:
        catalog = stores.catalog
        async with receiving(answers_slowly) as receiver:
            stopped = subscribe(catalog, receiver.url + "/stopped")
            other = subscribe(catalog, receiver.url + "/other")
            backlog(catalog, stopped, 3000)
            async with delivering(catalog):
                await eventually(lambda: len(receiver.got) > 100)
                await asyncio.to_thread(stop, stores, stopped)
                answered = time.monotonic()
                await asyncio.sleep(WATCHED_S)
                tell(catalog, [other])
                await eventually(lambda: states(catalog, other) == ["delivered"])
            late = [got for got in receiver.got if got.path == "/stopped" and got.at > answered]
            assert [round(got.at - answered, 3) for got in late] == []
            assert len(receiver.got) < 3000, "all were sent before the subscription was stopped"

    asyncio.run(scene())


def test_a_deletion_waits_for_no_attempts_where_none_begin(stores: Stores) -> None:
    stopped = subscribe(stores.catalog, "http://receiver.example/")
    backlog(stores.catalog, stopped, 10)
    began = time.monotonic()
    with stores.catalog.write() as tx:
        assert not endpoints.is_leased(tx, stopped.endpoint_id)
    subscriptions.wait_for_attempts(stores, stopped.endpoint_id)
    assert time.monotonic() - began < subscriptions.ATTEMPTS_WAIT_S


def test_slow_connection_sends_nothing_after_deletion(stores: Stores) -> None:
    """What was let out before the deletion, and is connected after it, is not sent."""

    async def scene(catalog: Catalog) -> None:
        async with receiving() as receiver:
            stopped = subscribe(catalog, receiver.url + "/stopped")
            async with delivering(catalog) as deliverer:
                connector = deliverer._sender._session.connector  # type: ignore[attr-defined]
                connect, connecting = connector._create_connection, asyncio.Event()
                may_connect = asyncio.Event()

                async def slow(*given: object) -> object:
                    connecting.set()
                    await may_connect.wait()
                    return await connect(*given)

                connector._create_connection = slow
                tell(catalog, [stopped])
                await asyncio.wait_for(connecting.wait(), 5)
                await asyncio.to_thread(delete, stores, stopped)
                may_connect.set()
                await eventually(lambda: states(catalog, stopped) == ["cancelled"])
                await asyncio.sleep(0.1)
            assert receiver.got == []

    asyncio.run(scene(stores.catalog))
