"""Where a WSGI server starts both services of an embedded store; acts at import, after the fork."""

import logging
import os
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from api.serving import authorization_application, booting, storage_application
from auth.tokens import administrator
from config import logs
from config.settings import load
from storage.catalog import revisions
from storage.connecting import connect
from storage.datagrams import office
from workers.hints import Hints

log = logging.getLogger(__name__)

_MIGRATED_EVERY_S = 0.05

with booting():
    _settings = load(os.environ)
    logs.configure(_settings.log_level, "web")
    _stores = connect(_settings)

    # The worker migrates; if it cannot, the supervisor ends us.
    if revisions.current(_stores.catalog) != revisions.expected():
        log.info("waiting for the worker, which migrates the catalog")
    while revisions.current(_stores.catalog) != revisions.expected():
        time.sleep(_MIGRATED_EVERY_S)

    administrator.keep(_settings)
    _storage = storage_application(
        _settings, _stores, Hints(office(_settings.home), _stores.notices)
    )
    _authorization = authorization_application(_settings, _stores.catalog)
_authorization_port = str(_settings.port + 1)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[Any]:
    """Each service at its own port."""
    asked = _authorization if environ["SERVER_PORT"] == _authorization_port else _storage
    return asked(environ, start_response)
