"""Many small bundles at once, from upload to indexed in both replicas: how fast, and who works.

Run as `python -m bench.load [bundles] [in flight]`.
"""

import asyncio
import logging
import sys
import time

from bench import processors, stand, traffic
from bench.traffic import Depositor
from ops.local_store import LocalStore
from storage.catalog import jobs
from storage.stores import Stores

IN_FLIGHT = 64
PATIENCE_S = 180.0


def main(bundles: int = 200, in_flight: int = IN_FLIGHT) -> None:
    """Print bundles per second and processor time per bundle, for each kind of queue."""
    print(f"{bundles} bundles of 2 files (JSON, 20 kB), {in_flight} requests in flight")
    with stand.running() as (store, _, opened):
        asyncio.run(_measure("embedded", store, opened, bundles, in_flight))


async def _measure(
    queue: str, store: LocalStore, opened: Stores, bundles: int, in_flight: int
) -> None:
    async with traffic.depositing(store.api, store.token, connections=in_flight) as depositor:
        with processors.used(store, per=bundles) as shares:
            began = time.perf_counter()
            await deposit(depositor, bundles, in_flight)
            answered = time.perf_counter() - began
            await _at_rest(opened)
            rested = time.perf_counter() - began
    print(
        f"{queue}: acknowledged {bundles / answered:.1f}/s, whole and indexed in both replicas"
        f" {bundles / rested:.1f}/s"
    )
    print(f"  processor ms per bundle: {sum(shares.values()):.1f} = {shares}")


async def deposit(depositor: Depositor, bundles: int, in_flight: int) -> None:
    turns = asyncio.Semaphore(in_flight)

    async def one(number: int) -> None:
        async with turns:
            metadata = await depositor.metadata(number)
            await depositor.bundle(metadata, await depositor.data(number))

    await asyncio.gather(*(one(number) for number in range(bundles)))


async def _at_rest(opened: Stores) -> None:
    """Until nothing is left to do."""
    deadline = time.perf_counter() + PATIENCE_S
    while _open(opened):
        assert time.perf_counter() < deadline, "there is still work"
        await asyncio.sleep(0.05)


def _open(opened: Stores) -> int:
    with opened.catalog.read() as tx:
        assert jobs.count_dead(tx) == 0
        return sum(jobs.count_open(tx).values())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*map(int, sys.argv[1:]))
