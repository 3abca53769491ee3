"""Listings, searches and deposits while reads go to the primary of the catalog, and to a standby.

Both servers are started here, with default durability, and one store is started on them twice in
each round: without and with `STORE_CATALOG_READ_URL`. Readers ask for listings and searches in
turns, as fast as they are answered, while bundles are put at a steady rate. The processor time of
the servers is that of their own processes until no job is open, without what the same deposits cost
when nothing is read. Every second round is in reverse order, since a store that has just started is
slower.
Everything shares one machine: what a standby saves the primary can be seen, but not how many more
reads two machines would answer.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from uuid import uuid4

import httpx
from sqlalchemy import Engine, create_engine

from bench.harness import ROOT, Figures, Measure
from bench.reach import Depositor, depositing, wait_for_jobs
from bench.stores import processor_s
from ops.local_store import running_store, temporary_home
from tests.engines import postgres
from tests.engines.engine import Running

READERS = 8
PAGE = 100
REPLICA = {"replica": "aws"}
PATIENCE_S = 60.0
READS = 'store_catalog_reads_total{server="'
"""How the lines of a scrape begin that count reads which may be old."""
SEARCH = {"es_query": {"query": {"match": {"files.sample_json.sample.organ": "organ 3"}}}}


@dataclass
class Load:
    """What was asked and put while reads went to one server."""

    reads: int
    took_s: float
    primary_s: float
    standby_s: float
    """Processor time of the servers."""
    put_ms: list[float]
    listed_ms: list[float]
    """From the answer to a PUT to the first listing with its bundle."""


@contextmanager
def prepare(
    root: Path = ROOT, *, bundles: int = 300, seconds: float = 15, per_second: float = 5
) -> Iterator[Measure]:
    """Put so many bundles into a store, then so many a second for some time beside the readers."""
    with (
        tempfile.TemporaryDirectory(prefix="standby-") as folder,
        postgres.running(Path(folder)) as primary,
        postgres.standby(Path(folder), primary.url) as standby,
        temporary_home() as home,
    ):
        common = {"STORE_LOG_LEVEL": "WARNING", "STORE_CATALOG_URL": primary.url}
        lagging = {**common, "STORE_CATALOG_READ_URL": standby.url}
        catalog = create_engine(primary.url)
        with running_store(home, common, root) as store, depositing(store) as depositor:
            depositor.put_bundles(bundles)
            wait_for_jobs(catalog)

        def run(settings: dict[str, str], order: int) -> tuple[Load, Load, float]:
            with running_store(home, settings, root) as store, depositing(store) as depositor:
                if settings is lagging:
                    _wait_for_standby(depositor.http)
                loads = {
                    readers: _run(
                        depositor, catalog, (primary, standby), seconds, per_second, readers
                    )
                    for readers in (0, READERS)[::order]
                }
                return loads[0], loads[READERS], _share_of_standby(depositor.http)

        orders = itertools.cycle((1, -1))

        def measure() -> Figures:
            order = next(orders)
            runs = {
                name: run(settings, order)
                for name, settings in (("primary", common), ("standby", lagging))[::order]
            }
            figures: Figures = {}
            for name in ("primary", "standby"):
                unread, load, _ = runs[name]
                figures |= _summarize(f"reads from the {name}", unread, load)
            figures["reads that the standby answered %"] = runs["standby"][2] * 100
            return figures | _compare(figures)

        try:
            yield measure
        finally:
            catalog.dispose()


def _run(
    depositor: Depositor,
    catalog: Engine,
    servers: tuple[Running, Running],
    seconds: float,
    per_second: float,
    readers: int,
) -> Load:
    """Read as fast as possible for so long, and put bundles beside it."""
    http, is_over = depositor.http, Event()
    data, metadata = depositor.put_data(0, wait_s=60), depositor.put_metadata(0, wait_s=60)

    def read(number: int) -> int:
        for count in itertools.count(number):
            _list_page(http) if count % 2 else _search(http)
            if is_over.is_set():
                break
        return count - number + 1

    with ThreadPoolExecutor(max(1, readers)) as pool:
        spent, began = [processor_s(server.pid) for server in servers], time.perf_counter()
        reading = [pool.submit(read, number) for number in range(readers)]
        try:
            put_ms, listed_ms = _put_bundles(depositor, metadata, data, seconds, per_second)
        finally:
            is_over.set()
        reads = sum(reader.result() for reader in reading)
        took_s = time.perf_counter() - began
    wait_for_jobs(catalog)
    used = [processor_s(server.pid) - s for server, s in zip(servers, spent, strict=True)]
    return Load(reads, took_s, used[0], used[1], put_ms, listed_ms)


def _put_bundles(
    depositor: Depositor, metadata: str, data: str, seconds: float, per_second: float
) -> tuple[list[float], list[float]]:
    """Put a bundle at a time; how long each took, and until a listing had it, milliseconds."""
    put_ms, listed_ms, began = [], [], time.perf_counter()
    for number in range(max(1, round(seconds * per_second))):
        time.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        uuid, before = str(uuid4()), time.perf_counter()
        depositor.put_bundle(uuid, metadata, data)
        answered = time.perf_counter()
        while uuid not in _list_page(depositor.http, prefix=uuid):
            assert time.perf_counter() < answered + PATIENCE_S, "a bundle is not listed"
        put_ms.append((answered - before) * 1000)
        listed_ms.append((time.perf_counter() - answered) * 1000)
    return put_ms, listed_ms


def _list_page(http: httpx.Client, **more: str) -> set[str]:
    """The uuids of one page of bundles."""
    asked = {**REPLICA, "per_page": str(PAGE), **more}
    answer = http.get("/v1/bundles/all", params=asked)
    assert answer.status_code in (200, 206), answer.text[:300]
    return {bundle["uuid"] for bundle in answer.json()["bundles"]}


def _search(http: httpx.Client) -> None:
    answer = http.post("/v1/search", params={**REPLICA, "per_page": PAGE}, json=SEARCH)
    assert answer.status_code in (200, 206), answer.text[:300]


def _wait_for_standby(http: httpx.Client) -> None:
    """Wait until reads go to the standby."""
    deadline = time.monotonic() + PATIENCE_S
    while not _count_reads(http).get("standby"):
        assert time.monotonic() < deadline, "the standby is not read"
        _list_page(http)


def _share_of_standby(http: httpx.Client) -> float:
    found = _count_reads(http)
    return found.get("standby", 0.0) / (sum(found.values()) or 1.0)


def _count_reads(http: httpx.Client) -> dict[str, float]:
    """Reads that may be old, by the server that answered."""
    lines = http.get("/metrics").raise_for_status().text.splitlines()
    counted = (line.rpartition(" ") for line in lines if line.startswith(READS))
    return {name[len(READS) : -2]: float(value) for name, _, value in counted}


def _summarize(name: str, unread: Load, load: Load) -> Figures:
    """Figures of a load, beside one of as many deposits without readers."""
    primary_s = load.primary_s - unread.primary_s
    standby_s = load.standby_s - unread.standby_s
    return {
        f"{name} /s": load.reads / load.took_s,
        f"{name}: PUT bundle: median ms": statistics.median(load.put_ms),
        f"{name}: PUT bundle: longest ms": max(load.put_ms),
        f"{name}: listed after: median ms": statistics.median(load.listed_ms),
        f"{name}: listed after: longest ms": max(load.listed_ms),
        f"{name}: primary's ms a read": primary_s * 1000 / load.reads,
        f"{name}: standby's ms a read": standby_s * 1000 / load.reads,
    }


def _compare(figures: Figures) -> Figures:
    """How much better it is to read from the standby; no share of a cost that is too short."""
    alone, beside = "reads from the primary", "reads from the standby"
    put, cost = "PUT bundle: median ms", "primary's ms a read"
    alone_ms, beside_ms = figures[f"{alone}: {cost}"], figures[f"{beside}: {cost}"]
    compared = {
        "with a standby: reads ×": figures[f"{beside} /s"] / figures[f"{alone} /s"],
        "with a standby: PUT bundle as fast ×": figures[f"{alone}: {put}"]
        / figures[f"{beside}: {put}"],
    }
    # Short loads may cost less than a tick of the kernel's clock, or than their deposits vary.
    if min(alone_ms, beside_ms) > 0:
        compared["with a standby: saved of a read's cost %"] = (1 - beside_ms / alone_ms) * 100
    return compared
