"""The single worker of an embedded store: all queues in memory, deliveries, scheduler.

Run it as `python -m workers.embedded`.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from config import Settings, load_settings, process
from config.logs import configure_logging
from pipelines.recovery import epochs
from storage import engines
from storage.catalog import revisions
from storage.connect import connect
from storage.datagrams import open_socket_folder
from storage.errors import DomainError, Unavailable, exit_on_error
from storage.metrics import share_metrics
from storage.stores import Stores
from workers import deliver, heartbeats, hints, runtime, scheduler
from workers.broker import MemoryBroker
from workers.heartbeats import FindStuck
from workers.messages import MessageSender

log = logging.getLogger(__name__)

THREAD_GROUPS = (
    (deliver.QUEUE,),
    # A request may be waiting for a verification, so small files never queue behind large ones.
    ("verify", "chores", "purge"),
    # A stream of deposits must not block the other replica until its end.
    ("sync",),
    # Time depends on the bytes.
    ("verify_large", "sync_large", "checkout"),
    ("index", "match"),
)
"""Queues that share threads."""


@contextmanager
def run_worker(settings: Settings) -> Iterator[list[FindStuck]]:
    """Migrate, then do all work while the block runs; DomainError or SettingsError on failure.

    It yields checks of progress.
    """
    stores = connect(settings)
    _prepare_catalog(stores)
    # It warns of every worker but the first.
    logging.getLogger("dramatiq.broker").setLevel(logging.ERROR)
    broker = MemoryBroker()
    sender = MessageSender(broker, stores.pubsub)
    threads = max(1, settings.worker_threads // 2)
    with runtime.run_workers(
        broker, sender, stores, settings, THREAD_GROUPS, threads=threads
    ) as check_jobs:
        ticker = scheduler.Scheduler(settings, stores, sender)
        with scheduler.run_scheduler(ticker, settings) as check_ticks:
            refill = ticker.guard_job(ticker.refill_queues, in_doubt=True)
            folder = open_socket_folder(settings.home)
            with closing(hints.listen_for_hints(folder, sender.send, refill)):
                yield [check_jobs, check_ticks]


def _prepare_catalog(stores: Stores) -> None:
    """Migrate the tables, and begin an epoch before anything is written.

    A bucket that is down must not block the others: the scheduler tries again.
    """
    revisions.require_known_revision(stores.catalog)
    engines.migrate_catalog(stores.catalog)
    try:
        if reason := epochs.begin_epoch(stores):
            log.warning("the store is read-only: %s", reason)
    except DomainError as error:
        log.warning("no epoch begins now: %s", error.detail)


def main() -> None:
    """Work until a stop signal; running jobs get a grace period."""
    process.bound_heap()
    settings = load_settings(os.environ)
    configure_logging(settings.log_level, "worker", settings.log_format, os.environ)
    share_metrics(settings.metrics_folder, "worker")
    stop = runtime.install_stop_signals()
    with run_worker(settings) as checks:
        process.relax_gc()
        log.info("worker: running")
        name = heartbeats.ALL_QUEUES
        heartbeats.beat_until(stop, settings.heartbeats_folder, name, checks)


if __name__ == "__main__":
    with exit_on_error(
        lambda error: os.EX_TEMPFAIL if isinstance(error, Unavailable) else os.EX_CONFIG
    ):
        main()
