"""What worker processes share: their threads, stop signals, orderly shutdown, metrics.

The middleware counts into files, which the API shows at `/metrics` (`storage/metrics.py`).
Workers open no port: only dramatiq's command line starts a server.
"""

import os
import signal
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

from dramatiq import Broker, Worker
from dramatiq.middleware import Middleware

from config import Settings
from storage.metrics import find_shared_folder
from storage.stores import Stores
from workers import actors, deliver
from workers.claims import JobSender
from workers.heartbeats import FindStuck, JobWatch
from workers.queues import IDLE_POLL_MS, STOP_TIMEOUT_MS


@contextmanager
def run_workers(
    broker: Broker,
    sender: JobSender,
    stores: Stores,
    settings: Settings,
    thread_groups: Iterable[Collection[str]],
    *,
    threads: int,
) -> Iterator[FindStuck]:
    """Run these queues while the block runs; those of a group share threads.

    The block gets a function that finds what makes no progress.
    """
    watch = JobWatch()
    broker.add_middleware(watch)
    broker.add_middleware(_metrics_middleware(find_shared_folder() or settings.metrics_folder))
    actors.declare_actors(broker, actors.build_context(stores, sender, settings))
    workers = [
        deliver.build_worker(broker, stores, sender, settings, threads=settings.delivery_threads)
        if deliver.QUEUE in queues
        else Worker(broker, queues=set(queues), worker_timeout=IDLE_POLL_MS, worker_threads=threads)
        for queues in thread_groups
    ]
    # dramatiq's command line emits this: it starts the time limit's thread.
    broker.emit_after("process_boot")
    for worker in workers:
        worker.start()
    try:
        yield partial(watch.find_stuck, workers)
    finally:
        stop_workers(workers)


def install_stop_signals() -> threading.Event:
    """Return an event that SIGTERM or SIGINT sets; call it from the main thread."""
    stop = threading.Event()

    def handle_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle_signal)
    signal.signal(signal.SIGINT, handle_signal)
    return stop


def stop_workers(workers: Sequence[Worker]) -> None:
    """Stop all workers of a process in parallel: each waits for its threads."""
    with ThreadPoolExecutor(len(workers)) as pool:
        for worker in workers:
            pool.submit(worker.stop, timeout=STOP_TIMEOUT_MS)


_METRICS_FOLDER_VARIABLE = "dramatiq_prom_db"
"""The variable in which dramatiq expects the folder."""


def _metrics_middleware(folder: Path) -> Middleware:
    """Return middleware that counts into the files of this process in `folder`."""
    # The module reads the folder's name on import, and without one makes a shared folder in /tmp.
    # So it is imported here, after the settings, and by workers only.
    os.environ[_METRICS_FOLDER_VARIABLE] = str(folder)
    prometheus: Middleware = import_module("dramatiq.middleware.prometheus").Prometheus()
    return prometheus
