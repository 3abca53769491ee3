"""A worker of a store that has several, by way of Redis: `python -m workers QUEUE...`.

Without a name it runs every queue; `clock` is the scheduler. The only worker of an embedded store
is `workers.embedded`.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dramatiq import Worker

import config
from config import Settings, allocator, collector
from config.logs import configure
from storage.connecting import connect
from storage.faults import exit_with_sentence
from workers import actors, deliver, metrics, redis_broker, scheduler, stopping
from workers.actors import QUEUES
from workers.chains import Chains

log = logging.getLogger(__name__)

CLOCK = "clock"
KNOWN = (*QUEUES, deliver.QUEUE)
HURRIED = {"match"}
"""Queues with threads of their own: subscribers must not wait for the search engine."""


@contextmanager
def working(settings: Settings, queues: list[str]) -> Iterator[None]:
    """Run these queues, or all, while the block runs."""
    stores = connect(settings)
    broker = redis_broker.connect(
        settings.redis_url, stores.notices, poll_ms=settings.worker_poll_ms
    )
    broker.add_middleware(metrics.middleware(settings.worker_metrics))
    chains = Chains(broker, stores.notices)
    actors.declare(broker, actors.working(stores, chains, settings))
    wanted = set(queues or KNOWN)
    threads = settings.worker_threads
    workers = [
        Worker(broker, queues=jobs, worker_timeout=stopping.IDLE_MS, worker_threads=threads)
        for jobs in (wanted & HURRIED, wanted - HURRIED - {deliver.QUEUE})
        if jobs
    ]
    if deliver.QUEUE in wanted:
        threads = settings.delivery_threads
        workers.append(deliver.worker(broker, stores, chains, settings, threads=threads))
    # What dramatiq's own command line says here: the time limit starts its thread.
    broker.emit_after("process_boot")
    for worker in workers:
        worker.start()
    yield
    stopping.stop(workers)


@contextmanager
def scheduling(settings: Settings) -> Iterator[None]:
    """Send what is due, number events and sweep while the block runs."""
    stores = connect(settings)
    chains = redis_broker.sender(settings.redis_url, stores.notices)
    with scheduler.ticking(scheduler.Clock(settings, stores, chains), settings):
        yield


def main(names: list[str]) -> None:
    """Work until told to stop; what is in work then gets a while to end."""
    unknown = set(names) - set(KNOWN)
    if unknown and names != [CLOCK]:
        sys.exit(f"unknown queue {', '.join(sorted(unknown))}; there are {', '.join(KNOWN)}")
    allocator.bound_heap()
    settings = config.load(os.environ)
    shown = CLOCK if names == [CLOCK] else "worker " + ",".join(names or KNOWN)
    configure(settings.log_level, shown)
    stop = stopping.when_told()
    with scheduling(settings) if names == [CLOCK] else working(settings, names):
        collector.relax()
        log.info("%s runs", shown)
        stop.wait()


if __name__ == "__main__":
    with exit_with_sentence(lambda _: 1):
        main(sys.argv[1:])
