"""The one worker of an embedded store: all queues in memory, deliveries, and the scheduler.

Run as `python -m workers.embedded`.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dramatiq import Worker

from config import Settings, allocator, collector, load
from config.logs import configure
from pipelines.recovering import epochs
from storage import engines
from storage.catalog import revisions
from storage.connecting import connect
from storage.datagrams import office
from storage.errors import StoreError, Unavailable
from storage.faults import exit_with_sentence
from storage.stores import Stores
from workers import actors, deliver, hints, metrics, scheduler, stopping
from workers.broker import MemoryBroker
from workers.chains import Chains

log = logging.getLogger(__name__)

GROUPS = (
    # A request may be waiting for a verification, so small files never queue behind large ones.
    ("verify", "chores", "purge"),
    # A stream of deposits must not keep the other replica waiting for its end.
    ("sync",),
    # What takes the time that its bytes take.
    ("verify_large", "sync_large", "checkout"),
    ("index", "match"),
)
"""Queues that share threads."""


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """Migrate, then do all work while the block runs; StoreError or SettingsError if not."""
    stores = connect(settings)
    _prepare(stores)
    broker = MemoryBroker()
    broker.add_middleware(metrics.middleware(settings.worker_metrics))
    chains = Chains(broker, stores.notices)
    actors.declare(broker, actors.working(stores, chains, settings))
    ticker = scheduler.Clock(settings, stores, chains)

    with ExitStack() as running:
        # What dramatiq's own command line says here: the time limit starts its thread.
        broker.emit_after("process_boot")
        # It warns of every worker but the first.
        logging.getLogger("dramatiq.broker").setLevel(logging.ERROR)
        threads = settings.delivery_threads
        workers = [deliver.worker(broker, stores, chains, settings, threads=threads)]
        threads = max(1, settings.worker_threads // 2)
        workers += [
            Worker(
                broker, queues=set(queues), worker_timeout=stopping.IDLE_MS, worker_threads=threads
            )
            for queues in GROUPS
        ]
        for worker in workers:
            worker.start()
        running.callback(stopping.stop, workers)
        running.enter_context(scheduler.ticking(ticker, settings))
        refill = ticker.job(ticker.refill, in_doubt=True)
        inbox = hints.listen(office(settings.home), chains.send, refill)
        running.callback(inbox.close)
        yield


def _prepare(stores: Stores) -> None:
    """Tables of this release, and an epoch that begins before anything is written. A bucket that
    is away must not keep the others from starting: the clock tries again."""
    revisions.require_known(stores.catalog)
    engines.migrate(stores.catalog)
    try:
        if reason := epochs.begin(stores):
            log.warning("the store is read-only: %s", reason)
    except StoreError as error:
        log.warning("no epoch begins now: %s", error.detail)


def main() -> None:
    """Work until told to stop; what is in work then gets a while to end."""
    allocator.bound_heap()
    settings = load(os.environ)
    configure(settings.log_level, "worker")
    stop = stopping.when_told()
    with running(settings):
        collector.relax()
        log.info("worker: running")
        stop.wait()


if __name__ == "__main__":
    with exit_with_sentence(
        lambda error: os.EX_TEMPFAIL if isinstance(error, Unavailable) else os.EX_CONFIG
    ):
        main()
