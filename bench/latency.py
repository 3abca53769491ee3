"""From PUT of a bundle to the first callback, at a steady rate.

The bundles' files are there before. Run as `python -m bench.latency [bundles] [per second]`.
"""

import asyncio
import json
import logging
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from aiohttp import web

from bench import processors, stand, traffic
from bench.traffic import Depositor
from ops.local_store import LocalStore
from storage.model import FQID

IN_FLIGHT = 16
PATIENCE_S = 60.0
WARM_UP = 20


@dataclass
class Times:
    """When a bundle was sent, answered, and told of."""

    sent: dict[str, float] = field(default_factory=dict)
    answered: dict[str, float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)


def main(bundles: int = 400, per_second: int = 20, warm_up: int = WARM_UP) -> None:
    """Print the percentiles of an embedded store."""
    print(f"{bundles} bundles of 2 files, {per_second} a second, one subscription on every bundle")
    print(f"{'store':<14}{'':<18}{'p50 ms':>8}{'p95 ms':>8}{'max ms':>8}")
    with stand.running() as (store, _, _):
        times, shares = asyncio.run(measured(store, bundles, per_second, warm_up))
    print(f"{'':<14}cores used: {shares}")
    show(f"{'embedded':<14}", times)


def show(queue: str, times: Times) -> None:
    """Print the percentiles of one run."""
    spans = {
        "PUT to 201": (times.sent, times.answered),
        "PUT to callback": (times.sent, times.told),
    }
    for span, (begins, ends) in spans.items():
        took = [(ends[fqid] - begins[fqid]) * 1000 for fqid in begins]
        p50, p95 = statistics.median(took), statistics.quantiles(took, n=20)[-1]
        print(f"{queue}{span:<18}{p50:>8.0f}{p95:>8.0f}{max(took):>8.0f}")


async def measured(
    store: LocalStore, bundles: int, per_second: int, warm_up: int = WARM_UP
) -> tuple[Times, processors.Shares]:
    """When each bundle was sent, answered and told of, and who worked meanwhile."""
    times = Times()
    async with (
        _receiving(times) as callback_url,
        traffic.depositing(store.api, store.token, connections=IN_FLIGHT) as depositor,
    ):
        files = await _files(depositor, warm_up + bundles)
        await depositor.subscribe(callback_url)
        await _put_steadily(depositor, files[:warm_up], per_second, times)
        await _all_told(times)
        for noted in (times.sent, times.answered, times.told):
            noted.clear()
        with processors.used(store, seconds_of_wall=True) as shares:
            await _put_steadily(depositor, files[warm_up:], per_second, times)
            await _all_told(times)
    return times, shares


async def _files(depositor: Depositor, count: int) -> list[tuple[FQID, FQID]]:
    """Separate metadata for every bundle, and one data file for all, all taken in."""
    turns = asyncio.Semaphore(IN_FLIGHT)
    data = await depositor.data(0, wait=True)

    async def one(number: int) -> tuple[FQID, FQID]:
        async with turns:
            return await depositor.metadata(number, wait=True), data

    return await asyncio.gather(*(one(number) for number in range(count)))


async def _put_steadily(
    depositor: Depositor, files: list[tuple[FQID, FQID]], per_second: int, times: Times
) -> None:
    """One bundle after the other at its time, whether or not those before were answered."""

    async def put(metadata: FQID, data: FQID) -> None:
        fqid = FQID(str(uuid4()), traffic.VERSION)
        times.sent[fqid.uuid] = time.perf_counter()
        await depositor.put_bundle(fqid, metadata, data)
        times.answered[fqid.uuid] = time.perf_counter()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, pair in enumerate(files):
            await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
            group.create_task(put(*pair))


async def _all_told(times: Times) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while times.sent.keys() - times.told.keys():
        assert time.perf_counter() < deadline, "callbacks are missing"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _receiving(times: Times) -> AsyncIterator[str]:
    """A receiver that notes when it was first told of each bundle; its URL."""

    async def take(request: web.Request) -> web.Response:
        now = time.perf_counter()
        match = json.loads(await request.read())["match"]
        times.told.setdefault(match["bundle_uuid"], now)
        return web.Response()

    application = web.Application()
    application.router.add_post("/", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*map(int, sys.argv[1:]))
