"""Webhook receivers on loopback, and deliveries to them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from pipelines.flow import delivery_jobs
from storage.catalog import Catalog, endpoints
from storage.model import Job
from storage.protocols import PubSub
from storage.pubsub import MemoryPubSub
from workers.deliver import Deliverer
from workers.delivery_turns import DeliveryRules, SendsWebhooks, UnsealSecret
from workers.webhooks import WebhookSender

PATIENCE_S = 60.0
RULES = DeliveryRules(delays_s=(0.0, 0.05, 0.05))

Answering = Callable[["Receiver", "Got"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Got:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float


@dataclass
class Receiver:
    """A server of its own; `url` is its base."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0

    def ids(self) -> list[str]:
        """The transaction ids that came, in order."""
        return [one.headers["webhook-id"] for one in self.got]


async def takes(_receiver: Receiver, _got: Got) -> web.StreamResponse:
    """Everything is fine."""
    return web.Response(text="thank you")


async def hangs(_receiver: Receiver, _got: Got) -> web.StreamResponse:
    """No answer within anybody's patience."""
    await asyncio.sleep(3600)
    return web.Response()


async def refuses(_receiver: Receiver, _got: Got) -> web.StreamResponse:
    """Nothing is fine."""
    return web.Response(status=500, text="no")


@asynccontextmanager
async def receiving(answering: Answering = takes) -> AsyncIterator[Receiver]:
    """A receiver that answers so."""
    receiver = Receiver()

    async def handle(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        got = Got(request.method, request.path_qs, headers, await request.read(), time.monotonic())
        receiver.got.append(got)
        receiver.busy += 1
        receiver.busiest = max(receiver.busiest, receiver.busy)
        try:
            return await answering(receiver, got)
        finally:
            receiver.busy -= 1

    application = web.Application()
    application.router.add_route("*", "/{anything:.*}", handle)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


class Messages:
    """Sends messages: straight to the deliverer, in the event loop of the test."""

    def __init__(self) -> None:
        self.serve: Callable[[int], Awaitable[None]] | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Future[None]] = set()

    def send(self, rows: tuple[Job, ...], _request_id: str = "") -> None:
        """One task for each message."""
        self._loop.call_soon_threadsafe(self._begin, [int(row.ref) for row in rows])

    def _begin(self, endpoint_ids: list[int]) -> None:
        assert self.serve is not None
        for ident in endpoint_ids:
            task = asyncio.ensure_future(self.serve(ident))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def ended(self) -> None:
        """Return when no message is in work."""
        while self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def delivering(
    catalog: Catalog,
    *,
    rules: DeliveryRules = RULES,
    timeout_s: float = 5.0,
    allow_private: bool = True,
    unseal: UnsealSecret = lambda sealed, context: sealed,
    notices: PubSub | None = None,
    tick_s: float = 0.05,
    threads: int = 64,
    sender: SendsWebhooks | None = None,
) -> AsyncIterator[Deliverer]:
    """A deliverer and a clock's ticks while the block lasts; then it ends in an orderly way."""
    messages = Messages()
    sender = sender or WebhookSender(
        timeout_s=timeout_s, allow_private=allow_private, body_bytes=64
    )
    deliverer = Deliverer(
        catalog,
        notices or MemoryPubSub(),
        messages,
        rules=rules,
        new_sender=lambda: sender,
        unseal=unseal,
        threads=threads,
    )
    messages.serve = deliverer.serve
    await deliverer.open()
    ticking = asyncio.create_task(_tick(catalog, messages, tick_s))
    try:
        yield deliverer
    finally:
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
        deliverer.stop()
        await messages.ended()
        await deliverer.close()


async def _tick(catalog: Catalog, messages: Messages, tick_s: float) -> None:
    def waiting() -> list[int]:
        with catalog.read() as tx:
            return endpoints.list_waiting(tx, limit=100)

    while True:
        messages.send(delivery_jobs(await asyncio.to_thread(waiting)))
        await asyncio.sleep(tick_s)


async def eventually(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Return as soon as it holds."""
    end = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        if holds():
            return
        assert began < end, "it never came to hold"
        # A look blocks the event loop that delivers: no more than a quarter of the time.
        await asyncio.sleep(max(0.01, 3 * (time.monotonic() - began)))
