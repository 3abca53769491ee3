"""Command line of a worker with Redis: `python -m workers QUEUE...`, or `clock`.

Without a name it runs every queue; `clock` runs the scheduler. An embedded store has only the
worker `workers.embedded`.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dramatiq import Worker

import config
from config import Settings, process
from config.logs import configure_logging
from storage.connect import connect
from storage.errors import exit_on_error
from workers import actors, deliver, redis_broker, runtime, scheduler
from workers.actors import QUEUES
from workers.messages import MessageSender

log = logging.getLogger(__name__)

CLOCK = "clock"
QUEUE_NAMES = (*QUEUES, deliver.QUEUE)
DEDICATED_QUEUES = {"match"}
"""Queues with threads of their own: subscribers must not wait for the search engine."""


@contextmanager
def run_queues(settings: Settings, queues: list[str]) -> Iterator[None]:
    """Run these queues, or all of them, while the block runs."""
    stores = connect(settings)
    broker = redis_broker.connect_broker(
        settings.redis_url, stores.pubsub, poll_ms=settings.worker_poll_ms
    )
    broker.add_middleware(runtime.metrics_middleware(settings.worker_metrics))
    chains = MessageSender(broker, stores.pubsub)
    actors.declare_actors(broker, actors.build_context(stores, chains, settings))
    selected = set(queues or QUEUE_NAMES)
    threads = settings.worker_threads
    workers = [
        Worker(broker, queues=jobs, worker_timeout=runtime.IDLE_POLL_MS, worker_threads=threads)
        for jobs in (selected & DEDICATED_QUEUES, selected - DEDICATED_QUEUES - {deliver.QUEUE})
        if jobs
    ]
    if deliver.QUEUE in selected:
        threads = settings.delivery_threads
        workers.append(deliver.build_worker(broker, stores, chains, settings, threads=threads))
    # dramatiq's command line emits this: it starts the time limit's thread.
    broker.emit_after("process_boot")
    for worker in workers:
        worker.start()
    yield
    runtime.stop_workers(workers)


@contextmanager
def run_clock(settings: Settings) -> Iterator[None]:
    """Run the scheduler while the block runs."""
    stores = connect(settings)
    chains = redis_broker.build_sender(settings.redis_url, stores.pubsub)
    with scheduler.run_scheduler(scheduler.Scheduler(settings, stores, chains), settings):
        yield


def main(names: list[str]) -> None:
    """Work until a stop signal; running jobs get a grace period."""
    unknown = set(names) - set(QUEUE_NAMES)
    if unknown and names != [CLOCK]:
        sys.exit(f"unknown queue {', '.join(sorted(unknown))}; there are {', '.join(QUEUE_NAMES)}")
    process.bound_heap()
    settings = config.load_settings(os.environ)
    process_name = CLOCK if names == [CLOCK] else "worker " + ",".join(names or QUEUE_NAMES)
    configure_logging(settings.log_level, process_name)
    stop = runtime.install_stop_signals()
    with run_clock(settings) if names == [CLOCK] else run_queues(settings, names):
        process.relax_gc()
        log.info("%s runs", process_name)
        stop.wait()


if __name__ == "__main__":
    with exit_on_error(lambda _: 1):
        main(sys.argv[1:])
