"""Gunicorn's configuration of the API."""

import os
import shutil
from typing import Any

from api import server
from config import collector
from config.settings import load

_settings = load(os.environ)
_figures = _settings.home.absolute() / "figures"

_ports = [_settings.port] + ([_settings.ops_port] if _settings.ops_port else [])
bind = [f"{_settings.host}:{port}" for port in _ports]
workers = _settings.api_processes
worker_class = server.worker_class(_settings)
# Requests that run at once; those that wait have threads, too, up to the number of connections.
threads = _settings.api_threads
worker_connections = max(_settings.api_connections, 2 * threads)
# A request may be waiting for as long as `Prefer: wait` allows, a download for as long as it takes;
# this is for a process that is stuck as a whole.
timeout = 120
graceful_timeout = int(_settings.wait_cap_s) + 5
keepalive = 75
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None
accesslog = None
limit_request_line = server.LONGEST_LINE
# No header is believed here: by default those of whatever connects from loopback are.
forwarded_allow_ips = ""
# By default it would lie in the operator's home folder and be shared with other servers.
control_socket_disable = True

# The figures of several processes meet in files; their library looks for the folder at import.
raw_env = [f"PROMETHEUS_MULTIPROC_DIR={_figures}"] if workers > 1 else []


def post_fork(_server: Any, worker: Any) -> None:
    """The application is imported next."""
    server.die_with_master(worker)
    collector.pause()


def post_worker_init(worker: Any) -> None:
    """The application is there: what it consists of is no garbage."""
    collector.relax()
    server.prepare(worker)


def on_starting(_server: Any) -> None:
    """Begin with no figures of a former run."""
    shutil.rmtree(_figures, ignore_errors=True)
    if workers > 1:
        _figures.mkdir(parents=True)
