"""Command line of a worker with Redis: `python -m workers QUEUE...`, or `clock`.

Without a name it runs every queue; `clock` runs the scheduler. An embedded store has only the
worker `workers.embedded`.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import config
from config import Settings, process
from config.logs import configure_logging
from storage.connect import connect
from storage.errors import exit_on_error
from storage.metrics import serve_metrics, share_metrics
from workers import deliver, heartbeats, redis_broker, runtime, scheduler
from workers.actors import QUEUES
from workers.heartbeats import FindStuck
from workers.messages import MessageSender

log = logging.getLogger(__name__)

CLOCK = "clock"
QUEUE_NAMES = (*QUEUES, deliver.QUEUE)
DEDICATED_QUEUES = {"match"}
"""Queues with threads of their own: subscribers must not wait for the search engine."""


@contextmanager
def run_queues(settings: Settings, queues: list[str]) -> Iterator[list[FindStuck]]:
    """Run these queues, or all of them, while the block runs; yields checks of progress."""
    stores = connect(settings)
    broker = redis_broker.connect_broker(
        settings.redis_url, stores.pubsub, poll_ms=settings.worker_poll_ms
    )
    selected = set(queues or QUEUE_NAMES)
    all_groups = (DEDICATED_QUEUES, {deliver.QUEUE}, set(QUEUES) - DEDICATED_QUEUES)
    groups = [group & selected for group in all_groups if group & selected]
    sender, threads = MessageSender(broker, stores.pubsub), settings.worker_threads
    with runtime.run_workers(broker, sender, stores, settings, groups, threads=threads) as check:
        yield [check]


@contextmanager
def run_clock(settings: Settings) -> Iterator[list[FindStuck]]:
    """Run the scheduler while the block runs; yields checks of progress."""
    stores = connect(settings)
    chains = redis_broker.build_sender(settings.redis_url, stores.pubsub)
    with scheduler.run_scheduler(scheduler.Scheduler(settings, stores, chains), settings) as check:
        yield [check]


def main(names: list[str]) -> None:
    """Work until a stop signal; running jobs get a grace period."""
    unknown = set(names) - set(QUEUE_NAMES)
    if unknown and names != [CLOCK]:
        sys.exit(f"unknown queue {', '.join(sorted(unknown))}; there are {', '.join(QUEUE_NAMES)}")
    process.bound_heap()
    settings = config.load_settings(os.environ)
    process_name = CLOCK if names == [CLOCK] else "worker " + ",".join(names or QUEUE_NAMES)
    configure_logging(settings.log_level, process_name, settings.log_format, os.environ)
    share_metrics(settings.metrics_folder, CLOCK if names == [CLOCK] else "worker")
    serve_metrics(settings.host, settings.metrics_port)
    stop = runtime.install_stop_signals()
    with run_clock(settings) if names == [CLOCK] else run_queues(settings, names) as checks:
        process.relax_gc()
        log.info("%s runs", process_name)
        name = heartbeats.name_process(names)
        socket = os.environ.get("NOTIFY_SOCKET", "")
        heartbeats.beat_until(stop, settings.heartbeats_folder, name, checks, socket)


if __name__ == "__main__":
    with exit_on_error(lambda _: 1):
        main(sys.argv[1:])
