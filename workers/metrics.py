"""Metrics of the actors, by dramatiq's Prometheus middleware.

The middleware counts into files, which the API adds to its own `/metrics` (`api/metrics.py`): no
port of its own is opened, since only dramatiq's command line starts the server for that.
"""

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from dramatiq.middleware import Middleware

_FOLDER = "dramatiq_prom_db"
"""The variable in which dramatiq looks for the folder."""


def middleware(folder: Path) -> Middleware:
    """The middleware of one worker process that counts into files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    _forget_dead_processes(folder)
    # Its module reads the folder's name when it is imported, and makes a shared one in /tmp if
    # there is none. So it is imported here, once the settings are known, and by workers only.
    os.environ[_FOLDER] = str(folder)
    found: Middleware = import_module("dramatiq.middleware.prometheus").Prometheus()
    return found


def _forget_dead_processes(folder: Path) -> None:
    """Remove gauges of processes that were killed; their counters stay, so that totals grow."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            with suppress(FileNotFoundError):
                path.unlink()
