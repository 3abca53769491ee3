"""Deliveries per second through the real dispatcher, against `requests` one after the other.

Both send the same signed requests to a receiver in a process of its own; the dispatcher also reads
them from the catalog and records every attempt. They take turns within one run.
Run as `python -m bench.deliveries [deliveries] [rounds]`.
"""

import asyncio
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import requests
from aiohttp import web
from sqlalchemy import text

from pipelines.notifying.delivery import Request, request_for
from storage.catalog import (
    Catalog,
    Tx,
    deliveries,
    endpoints,
    figures,
    migrate,
    now_us,
    subscriptions,
)
from storage.catalog.deliveries import NewDelivery
from storage.catalog.subscriptions import Subscription
from storage.model import FQID, Event
from workers.dispatch_ledger import Ledger
from workers.dispatch_loop import Dispatcher, Rules
from workers.dispatch_net import Sender

KEY = b"a key of the bench"
RECEIVERS = 20
ONE_BY_ONE = 500
"""How many are sent one after the other in a round."""
LIMIT_S = 120.0


LATENCIES_S = (0.0, 0.02)
"""How long the receiver thinks: none at all, and as long as a network takes."""


def main(count: int = 4000, rounds: int = 3) -> None:
    """Print both rates and their ratio, for each latency of the receiver."""
    print(
        f"{count} signed deliveries, {RECEIVERS} receivers, {rounds} rounds, {os.cpu_count()} cores"
    )
    for latency_s in LATENCIES_S:
        rates: dict[str, list[float]] = {"dispatcher": [], "one by one": []}
        with tempfile.TemporaryDirectory() as folder, receiver(latency_s) as url:
            for number in range(rounds):
                catalog = _catalog(Path(folder) / f"{number}.sqlite", url, count)
                rates["one by one"].append(_one_by_one(catalog))
                rates["dispatcher"].append(count / asyncio.run(dispatch(catalog)))
                catalog.close()
        _show(latency_s, rates)


def _show(latency_s: float, rates: dict[str, list[float]]) -> None:
    print(f"the receiver answers after {latency_s * 1000:.0f} ms")
    for name, found in rates.items():
        print(f"  {name:<12}{statistics.median(found):>8.0f}/s median{max(found):>8.0f}/s best")
    ratios = [ours / theirs for ours, theirs in zip(*rates.values(), strict=True)]
    print(f"  the dispatcher is {statistics.median(ratios):.1f} times as fast")


@contextmanager
def receiver(latency_s: float) -> Iterator[str]:
    """A receiver that takes everything, in a process of its own; its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.deliveries", "receive", str(latency_s)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def _receive(latency_s: float) -> None:
    async def take(request: web.Request) -> web.Response:
        await request.read()
        if latency_s:
            await asyncio.sleep(latency_s)
        return web.Response()

    application = web.Application()
    application.router.add_post("/{receiver}", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.sleep(3600)


def _catalog(path: Path, url: str, count: int) -> Catalog:
    catalog = Catalog(f"sqlite:///{path}")
    migrate.upgrade(catalog)
    fill(catalog, url, count)
    return catalog


def fill(catalog: Catalog, url: str, count: int, *, key: bytes | None = KEY) -> None:
    """Let so many deliveries be due; without a key unsigned ones."""
    with catalog.write() as tx:
        made = [_subscribe(tx, f"{url}/{number}", key) for number in range(RECEIVERS)]
        for _ in range(count // RECEIVERS):
            fqid = FQID(str(uuid4()), "2026-01-01T000000.000000Z")
            event = Event(str(uuid4()), "aws", "CREATE", fqid, 1, now_us(tx))
            fresh = [
                NewDelivery(str(uuid4()), each.id, '{"x":"%s"}' % ("y" * 700)) for each in made
            ]
            deliveries.record(tx, fresh, event)


def _subscribe(tx: Tx, url: str, key: bytes | None) -> Subscription:
    fresh = Subscription(
        uuid=str(uuid4()),
        owner="bench@example.org",
        replica="aws",
        type="jmespath",
        query=None,
        callback_url=url,
        method="POST",
        encoding="application/json",
        form_fields={},
        payload_form_field="payload",
        hmac_secret=key,
    )
    made = subscriptions.add(tx, fresh, address=url, limit=10 * RECEIVERS)
    assert made is not None
    return made


def _one_by_one(catalog: Catalog) -> float:
    """Requests per second."""
    with requests.Session() as session:
        session.trust_env = False
        due = waiting(catalog, ONE_BY_ONE)
        began = time.perf_counter()
        for request in due:
            session.request(
                request.method,
                request.url,
                data=request.body,
                headers=dict(request.headers),
                timeout=10,
            ).raise_for_status()
        return len(due) / (time.perf_counter() - began)


def waiting(catalog: Catalog, count: int) -> list[Request]:
    """So many of the requests that are due, signed, evenly of all receivers."""
    with catalog.read() as tx:
        due = [
            row
            for ident in endpoints.waiting(tx, limit=RECEIVERS)
            for row in deliveries.due(tx, ident, limit=count // RECEIVERS)
        ]
    now = time.time_ns() // 1000
    return [request_for(row, attempt=1, now_us=now, keys=(KEY,)) for row in due]


async def dispatch(catalog: Catalog) -> float:
    """Seconds until all of them are delivered and recorded."""
    sender = Sender(timeout_s=10, allow_private=True, body_bytes=1024)
    ledger = Ledger(catalog, token=uuid4().hex, lease_s=5)
    dispatcher = Dispatcher(
        ledger,
        sender,
        rules=Rules(delays_s=(0, 60)),
        unseal=lambda sealed, _: sealed,
        rng=Random(1),
    )
    stop = asyncio.Event()
    began = time.perf_counter()
    running = asyncio.create_task(dispatcher.run(stop))
    while pending(catalog) and time.perf_counter() - began < LIMIT_S:
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began
    stop.set()
    await running
    await sender.close()
    with catalog.read() as tx:
        failed = tx.execute(text("SELECT count(*) FROM deliveries WHERE state <> 'delivered'"))
        assert failed.scalar_one() == 0
    return took


def pending(catalog: Catalog) -> int:
    """Deliveries that are not done."""
    with catalog.read() as tx:
        return figures.pending_deliveries(tx)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1:2] == ["receive"]:
        asyncio.run(_receive(float(sys.argv[2])))
    else:
        main(*map(int, sys.argv[1:]))
