"""Gunicorn's configuration of the authorization service: one process, for little work."""

import os
from typing import Any

from api import server
from config.settings import load

_settings = load(os.environ)

bind = f"{_settings.host}:{_settings.port + 1}"
workers = 1
worker_class = server.worker_class(_settings)
threads = 8
worker_connections = max(_settings.api_connections, 2 * threads)
timeout = 30
graceful_timeout = 5
keepalive = 5
accesslog = None
# No header is believed here: by default those of whatever connects from loopback are.
forwarded_allow_ips = ""
# By default it would lie in the operator's home folder and be shared with the API's server.
control_socket_disable = True
# An authorization request goes through a login as one parameter of it.
limit_request_line = server.LONGEST_LINE
post_worker_init = server.prepare


def post_fork(_server: Any, worker: Any) -> None:
    """End with the master."""
    server.die_with_master(worker)
