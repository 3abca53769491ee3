"""Gunicorn configuration of the authorization service."""

import os
from typing import Any

from api.http import server
from config import load_settings

_settings = load_settings(os.environ)

bind = f"{_settings.host}:{_settings.port + 1}"
workers = 1
worker_class = server.build_worker_class(_settings)
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
limit_request_line = server.MAX_REQUEST_LINE
post_worker_init = server.prepare_worker


def post_fork(_server: Any, worker: Any) -> None:
    """End with the master."""
    server.die_with_master(worker)
