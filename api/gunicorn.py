"""Gunicorn configuration of the HTTP APIs."""

import os
from typing import Any

from api.http import server
from config import load_settings, process

_settings = load_settings(os.environ)

_ports = [_settings.port] + ([_settings.ops_port] if _settings.ops_port else [])
bind = [f"{_settings.host}:{port}" for port in _ports]
workers = _settings.api_processes
worker_class = server.build_worker_class(_settings)
# Requests that run at once; those that wait have threads, too, up to the number of connections.
threads = _settings.api_threads
worker_connections = max(_settings.api_connections, 2 * threads)
# This is for a process that is stuck as a whole: a request may wait for as long as `Prefer: wait`
# allows, and a download takes as long as it takes.
timeout = 120
graceful_timeout = int(_settings.wait_cap_s) + 5
keepalive = 75
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None
accesslog = None
limit_request_line = server.MAX_REQUEST_LINE
# Trust no proxy headers; by default those of connections from loopback are trusted.
forwarded_allow_ips = ""
# By default it is in the operator's home folder, shared with other servers.
control_socket_disable = True


def post_fork(_server: Any, worker: Any) -> None:
    """Set up a new worker process."""
    server.die_with_master(worker)
    process.pause_gc()


def post_worker_init(worker: Any) -> None:
    """Exempt the loaded application from garbage collection."""
    process.relax_gc()
    server.prepare_worker(worker)
