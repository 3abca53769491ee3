"""Replica sync and checkout of a bundle, beside the tools that a user would take, and a plain loop.

Ours is the step as a worker process runs it, every copy compared by checksum and recorded in
PostgreSQL; a sync also writes a record for every file, so the tools copy the bytes alone, and then
as many objects as ours writes. All take turns within one run, each into a new bucket.
Run as `python -m bench.real.copies [rounds] [times smaller]`.
"""

import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from bench.real import distance, engines, holding, tools
from bench.real.holding import Shape
from bench.stand import Unsent
from config import Settings
from pipelines import checkouts, flow
from storage.catalog import Catalog, jobs
from storage.model import FQID, Job
from storage.stores import Stores
from workers.actors import STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

MANY = Shape(1_000, 64 * 1024)
LARGE = Shape(8, 64 * 1024 * 1024)
FEWER = Shape(500, 64 * 1024)

AWAY_MS = 10
"""A round trip within a region, to a busy bucket."""

Routes = Sequence[tuple[str, str]]
ROUTES: Routes = (
    ("s3", "checkout, S3 to S3"),
    ("s3", "sync, S3 to S3"),
    ("gcs", "sync, S3 to GCS"),
)
"""To which engine, and what."""

Contender = Callable[[str], None]
"""Copies everything into the bucket of this URL."""


@dataclass(frozen=True)
class Stage:
    """A bundle in a bucket of S3, and the stores of the worker that is to copy it."""

    stores: Stores
    source: str
    fqid: FQID
    shape: Shape


def main(rounds: int = 3, smaller: int = 1) -> None:
    """Print seconds and ratios for each way and each shape, `smaller` times as small."""
    many, large, fewer = (one.divided(smaller) for one in (MANY, LARGE, FEWER))
    with engines.database() as url, engines.catalog(url) as catalog:
        _shape(catalog, many, rounds)
        _shape(catalog, large, max(rounds - 1, 1))
        with distance.away(AWAY_MS):
            _shape(catalog, fewer, 1, routes=(("s3", f"sync, S3 to S3, {AWAY_MS} ms away"),))


def _shape(catalog: Catalog, shape: Shape, rounds: int, routes: Routes = ROUTES) -> None:
    source = engines.bucket("s3")
    with holding.stores(catalog, holding.blobs(source)) as stores:
        stage = Stage(stores, source, holding.bundle(stores, shape), shape)
        for engine, name in routes:
            try:
                _compare(stage, name, engine, rounds)
            except engines.Missing as missing:
                print(f"{name}, {shape}: not measured: {missing}")
    tools.remove(source)


def _compare(stage: Stage, name: str, engine: str, rounds: int) -> None:
    sync = name.startswith("sync")
    ours = _sync(stage) if sync else _checkout(stage)
    contenders = {"ours": ours, **_others(stage, engine, records=sync)}
    seconds: Mapping[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds):
        order = list(contenders)
        for name_of_one in order[turn % len(order) :] + order[: turn % len(order)]:
            target = engines.bucket(engine)
            began = time.perf_counter()
            contenders[name_of_one](target)
            seconds[name_of_one].append(time.perf_counter() - began)
            tools.remove(target)
    _show(f"{name}: {stage.shape}, {rounds} rounds", stage.shape, seconds)


def _show(title: str, shape: Shape, seconds: Mapping[str, list[float]]) -> None:
    print(f"{title:<48}{'median s':>9}{'best s':>8}{'files/s':>9}{'MB/s':>7}{'ours is':>9}")
    ours = statistics.median(seconds["ours"])
    for name, took in seconds.items():
        middle = statistics.median(took)
        rates = f"{shape.files / middle:>9.0f}{shape.megabytes / middle:>7.0f}"
        print(f"  {name:<46}{middle:>9.2f}{min(took):>8.2f}{rates}{middle / ours:>8.2f}×")


def _others(stage: Stage, engine: str, *, records: bool) -> dict[str, Contender]:
    """The tools with their defaults, and what one would write in five minutes."""
    source = engines.name_of(stage.source)
    found: dict[str, Contender] = {
        f"{name}, the files": lambda url, run=run: run(source, "blobs/", url)  # type: ignore[misc]
        for name, run in tools.copiers(engine).items()
    }
    if records:
        found |= {
            f"{name}, files and records": lambda url, run=run: run(source, "", url)  # type: ignore[misc]
            for name, run in tools.copiers(engine).items()
        }
    plain = tools.plain_loop(engine)
    return {**found, "plain loop, the files": lambda url: plain(source, "blobs/", url)}


def _sync(stage: Stage) -> Contender:
    def run(target: str) -> None:
        catalog = stage.stores.catalog
        holding.forget_copies(catalog)
        replicas = {**stage.stores.replicas, "gcp": holding.blobs(target)}
        row = Job(flow.Step.SYNC, "gcp", f"bundle:{stage.fqid}")
        with catalog.write() as tx:
            jobs.insert(tx, [row])
        _work(replace(stage.stores, replicas=replicas), row)

    return run


def _checkout(stage: Stage) -> Contender:
    def run(target: str) -> None:
        stores = replace(stage.stores, checkouts={"aws": holding.blobs(target)})
        wanted = checkouts.CheckoutRequest("aws", *stage.fqid)
        (row,) = checkouts.create(stores, wanted, None).jobs
        _work(stores, row)
        job = checkouts.get_status(stores, "aws", row.ref)
        assert job.state == "SUCCEEDED", job.cause

    return run


def _work(stores: Stores, row: Job) -> None:
    working = WorkerContext(stores, Unsent(), STEP_FUNCTIONS, Settings().max_claims, Random(1))
    assert run_job(working, row), f"{row} was not done"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"{os.cpu_count()} cores; {engines.versions()}")
    main(*map(int, sys.argv[1:]))
