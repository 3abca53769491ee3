"""A worker process: `python -m workers QUEUE...`, or every queue when none is named."""

import logging
import os
import sys
from random import Random

from dramatiq import Worker

import config
from config import allocator, collector
from config.logs import configure
from storage.connecting import connect
from workers import actors, broker
from workers.actors import QUEUES
from workers.chains import Chains
from workers.claims import Working
from workers.stopping import when_told

log = logging.getLogger(__name__)

STOP_S = 8
"""How long work may take to end: less than the supervisor waits before it kills."""


def main(queues: list[str]) -> None:
    """Run actors until told to stop; what is in work then gets a while to end."""
    unknown = set(queues) - set(QUEUES)
    if unknown:
        sys.exit(f"unknown queue {', '.join(sorted(unknown))}; there are {', '.join(QUEUES)}")
    allocator.bound_heap()
    settings = config.load(os.environ)
    configure(settings.log_level, "worker " + ",".join(queues or QUEUES))
    stores = connect(settings)
    messages = broker.connect(settings.redis_url, stores.notices)
    working = Working(stores, Chains(messages), actors.STEPS, settings.max_claims, Random())
    actors.declare(messages, working)
    worker = Worker(
        messages,
        queues=set(queues) or None,
        worker_timeout=settings.worker_poll_ms,
        worker_threads=settings.worker_threads,
    )
    stop = when_told()
    collector.relax()
    # What dramatiq's own command line says here: the time limit starts its thread.
    messages.emit_after("process_boot")
    worker.start()
    log.info("worker: running %s", ", ".join(queues or QUEUES))
    stop.wait()
    worker.stop(timeout=STOP_S * 1000)


if __name__ == "__main__":
    main(sys.argv[1:])
