"""WSGI entry point of an embedded store: pages and API at one port, authorization at the next."""

import logging
import os
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from api.app import build_auth_app, exit_on_boot_failure
from auth.tokens import issuance
from config import load_settings, logs
from storage.catalog import revisions
from storage.connect import connect
from storage.datagrams import open_socket_folder
from storage.metrics import share_metrics
from web.app import build_app
from workers.hints import HintSender

log = logging.getLogger(__name__)

_MIGRATION_POLL_S = 0.05

with exit_on_boot_failure():
    _settings = load_settings(os.environ)
    logs.configure_logging(_settings.log_level, "web", _settings.log_format, os.environ)
    share_metrics(_settings.metrics_folder, "web")
    _stores = connect(_settings)

    # The worker migrates; if it cannot, the supervisor ends us.
    if revisions.read_current_revision(_stores.catalog) != revisions.expected_revision():
        log.info("waiting for the worker, which migrates the catalog")
    while revisions.read_current_revision(_stores.catalog) != revisions.expected_revision():
        time.sleep(_MIGRATION_POLL_S)

    issuance.write_admin_token(_settings)
    _storage_app = build_app(
        _settings, _stores, HintSender(open_socket_folder(_settings.home), _stores.pubsub)
    )
    _auth_app = build_auth_app(_settings, _stores.catalog, _stores.tracer)
_auth_port = str(_settings.port + 1)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[Any]:
    """Serve each API at its port."""
    app = _auth_app if environ["SERVER_PORT"] == _auth_port else _storage_app
    return app(environ, start_response)
