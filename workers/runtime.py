"""Signals, orderly shutdown and Prometheus metrics of worker processes.

The middleware counts into files, which the API adds to its own `/metrics` (`api/http/metrics.py`).
Workers open no port: only dramatiq's command line starts a server.
"""

import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType

from dramatiq import Worker
from dramatiq.middleware import Middleware

IDLE_POLL_MS = 1_000
"""Interval at which idle worker threads check whether to stop."""
STOP_TIMEOUT_MS = 8_000
"""Grace period of running jobs, shorter than the supervisor's."""


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


def metrics_middleware(folder: Path) -> Middleware:
    """Return middleware that counts into files in `folder`, for one worker process."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_dead_gauges(folder)
    # The module reads the folder's name on import, and without one makes a shared folder in /tmp.
    # So it is imported here, after the settings, and by workers only.
    os.environ[_METRICS_FOLDER_VARIABLE] = str(folder)
    prometheus: Middleware = import_module("dramatiq.middleware.prometheus").Prometheus()
    return prometheus


def _remove_dead_gauges(folder: Path) -> None:
    """Remove gauges of killed processes; their counters stay, so that totals grow."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            with suppress(FileNotFoundError):
                path.unlink()
