"""Real receivers on loopback, and a dispatcher that runs until something holds."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from uuid import uuid4

from aiohttp import web

from storage.catalog import Catalog
from workers.dispatch_ledger import Ledger
from workers.dispatch_loop import Dispatcher, Rules, Unseal
from workers.dispatch_net import Sender

PATIENCE_S = 20.0
RULES = Rules(delays_s=(0.0, 0.05, 0.05), poll_s=0.05)

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


@asynccontextmanager
async def dispatching(
    catalog: Catalog,
    *,
    rules: Rules = RULES,
    timeout_s: float = 5.0,
    allow_private: bool = True,
    disable_after_s: float = 0.0,
    unseal: Unseal = lambda sealed, context: sealed,
) -> AsyncIterator[Dispatcher]:
    """A dispatcher that delivers while the block lasts, then ends in an orderly way."""
    sender = Sender(timeout_s=timeout_s, allow_private=allow_private, body_bytes=64)
    ledger = Ledger(
        catalog, token=uuid4().hex, lease_s=rules.lease_s, disable_after_s=disable_after_s
    )
    dispatcher = Dispatcher(ledger, sender, rules=rules, unseal=unseal, rng=Random(1))
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))
    try:
        yield dispatcher
    finally:
        stop.set()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await sender.close()


async def eventually(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Return as soon as it holds."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        await asyncio.sleep(0.01)
