"""Throughput of each step with one and with two worker processes of its queue.

The work lies ready, the processes wait, then the messages are sent. Processes and servers share
this machine: when one process and the servers keep most of its cores busy, no second one can double
anything. `the cores allow` is how many times as much the cores could do that were left idle.
Run as `python -m bench.real.scaling [rows]`.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from sqlalchemy import func, select

from bench import deliveries, processors
from bench.real import distance, engines, holding
from bench.receiving import receiver
from bench.rows import version
from config import load_settings
from pipelines import areas, ingest
from pipelines.areas import IncomingFile
from pipelines.bundles import NewEntry
from pipelines.flow import Step, delivery_jobs
from storage import keys
from storage.catalog import endpoints, jobs
from storage.catalog.tables.jobs import todo
from storage.connect import connect
from storage.model import FQID, Job
from storage.stores import Stores
from workers.redis_broker import build_sender

AUTHOR = "bench@example.org"
SMALL = 20_000
AWAY_MS = 50
"""A round trip to another cloud."""
PATIENCE_S = 120.0
READY = (' runs"',)
"""What a worker says once it runs."""

Prepare = Callable[[Stores, int], Sequence[Job]]
Environ = Mapping[str, str]


@dataclass(frozen=True)
class Took:
    """One run: how long, and how many cores the processes and the whole machine used."""

    rate: float
    workers: float
    machine: float


def main(count: int = 600) -> None:
    """Print rates with one and two processes, their ratio, and what the cores allow."""
    print(f"{count} rows a run; cores used by the worker processes, and by all with the servers")
    print(
        f"{'':<18}{'1 process':>11}{'cores':>12}{'2 processes':>13}{'cores':>12}{'ratio':>8}"
        f"{'the cores allow':>17}"
    )
    _compare("verify", ["verify"], _to_verify, count)
    _compare("sync", ["sync"], _to_sync, count)
    with distance.away(AWAY_MS):
        _compare(f"sync, {AWAY_MS} ms away", ["sync"], _to_sync, count)
    _compare("index, match", ["index", "match"], _to_index, count)
    with _installation() as (environ, stores):
        _show("deliveries", [_delivered(environ, stores, 4 * count, n) for n in (1, 2)])


def _compare(name: str, queues: list[str], prepare: Prepare, count: int) -> None:
    with _installation() as (environ, stores):
        runs = [_drained(environ, stores, queues, prepare(stores, count), n) for n in (1, 2)]
    _show(name, runs)


def _show(name: str, runs: Sequence[Took]) -> None:
    told = "".join(
        f"{run.rate:>{width}.0f}/s{run.workers:>6.2f}{run.machine:>6.2f}"
        for run, width in zip(runs, (9, 11), strict=True)
    )
    one, two = runs
    allowed = min(2.0, (os.cpu_count() or 1) / one.machine)
    print(f"{name:<18}{told}{two.rate / one.rate:>7.2f}×{allowed:>16.2f}×")


@contextmanager
def _installation() -> Iterator[tuple[Environ, Stores]]:
    with ExitStack() as held:
        home = held.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        own = {"STORE_HOME": home, "STORE_SECRET_KEY": "a secret for benches only"}
        environ = held.enter_context(engines.settings(**own))
        held.enter_context(engines.catalog(environ["STORE_CATALOG_URL"]))
        stores = connect(load_settings(environ))
        yield environ, stores
        stores.catalog.close()


# The work


def _to_verify(stores: Stores, count: int) -> list[Job]:
    area = str(uuid4())
    areas.create(stores, area, AUTHOR)
    with ThreadPoolExecutor(holding.AT_ONCE) as pool:
        return [
            row for rows in pool.map(partial(_staged, stores, area), range(count)) for row in rows
        ]


def _staged(stores: Stores, area: str, number: int) -> tuple[Job, ...]:
    name, data = f"{number}.bin", os.urandom(SMALL)
    incoming = IncomingFile(area, name, holding.TYPE, iter([data]), SMALL, SMALL)
    areas.receive_file(stores, incoming, AUTHOR)
    url = keys.area_url(stores.base_url, area, name)
    deposit = ingest.IngestRequest(FQID(str(uuid4()), version(0)), "aws", url, 1)
    return ingest.start_task(stores, deposit, AUTHOR).jobs


def _to_sync(stores: Stores, count: int) -> list[Job]:
    made = holding.files_of(stores, (os.urandom(SMALL) for _ in range(count)))
    return _added(stores, [Job(Step.SYNC, "gcp", f"file:{fqid}") for fqid in made])


def _to_index(stores: Stores, count: int) -> list[Job]:
    """Half as many bundles: each is indexed and matched."""
    contents = (_metadata(number) for number in range(count // 2))
    made = holding.files_of(stores, contents, "application/json")
    entries = [[NewEntry("sample.json", fqid, True)] for fqid in made]
    with ThreadPoolExecutor(holding.AT_ONCE) as pool:
        written = pool.map(partial(holding.write, stores), entries)
        return [row for one in written for row in one.jobs if row.step != Step.SYNC]


def _metadata(number: int) -> bytes:
    content = {
        "core": {"schema_url": "http://bench.example/sample.json", "schema_version": "1.0.0"},
        "sample": {"id": str(uuid4()), "organ": f"organ {number % 7}", "text": "word " * 50},
    }
    return json.dumps(content).encode()


def _added(stores: Stores, wanted: list[Job]) -> list[Job]:
    with stores.catalog.write() as tx:
        jobs.insert(tx, wanted)
    return wanted


# The workers


def _drained(
    environ: Environ, stores: Stores, queues: list[str], wanted: Sequence[Job], processes: int
) -> Took:
    """Until the work is done, from the first message on."""
    sender = build_sender(environ["STORE_REDIS_URL"], stores.pubsub)
    steps = {row.step for row in wanted}
    with (
        _running(environ, ["workers", *queues], processes) as pids,
        processors.busy(pids) as used,
    ):
        sender.send(wanted)
        _until(lambda: not _open(stores, steps))
    return Took(len(wanted) / used.seconds, used.own, used.machine)


def _delivered(environ: Environ, stores: Stores, count: int, processes: int) -> Took:
    with (
        receiver(0.0) as url,
        _running(environ, ["workers", "deliver"], processes) as pids,
    ):
        deliveries.fill(stores.catalog, url, count, key=None)
        with stores.catalog.read() as tx:
            waiting = endpoints.list_waiting(tx, limit=count)
        sender = build_sender(environ["STORE_REDIS_URL"], stores.pubsub)
        with processors.busy(pids) as used:
            sender.send(delivery_jobs(waiting))
            _until(lambda: not deliveries.pending(stores.catalog))
    return Took(count / used.seconds, used.own, used.machine)


def _open(stores: Stores, steps: set[str]) -> int:
    with stores.catalog.read() as tx:
        assert jobs.count_dead(tx) == 0
        query = select(func.count()).select_from(todo).where(todo.c.step.in_(steps))
        return int(tx.execute(query).scalar_one())


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not holds():
        assert time.perf_counter() < deadline, "the work is not done"
        time.sleep(0.05)


@contextmanager
def _running(environ: Environ, command: list[str], processes: int) -> Iterator[list[int]]:
    """So many worker processes, waiting for work; their ids."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        logs = [folder / f"{number}.log" for number in range(processes)]
        started = [_started(environ, command, log, held) for log in logs]
        _until(lambda: all(any(word in log.read_text() for word in READY) for log in logs))
        # What they do first, such as compiling statements, is not what is measured.
        time.sleep(1)
        yield [process.pid for process in started]


def _started(
    environ: Environ, command: list[str], log: Path, held: ExitStack
) -> "subprocess.Popen[bytes]":
    output = held.enter_context(log.open("wb"))
    inherited = {name: raw for name, raw in os.environ.items() if not name.startswith("STORE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**inherited, **environ},
        stdout=output,
        stderr=output,
    )
    held.callback(process.wait)
    held.callback(process.terminate)
    return process


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"{os.cpu_count()} cores; {engines.versions()}")
    main(*map(int, sys.argv[1:]))
