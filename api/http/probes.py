"""Probes for load balancers and container platforms: `/livez` and `/readyz`.

They need no token and name no engine; `/health` has the details.
"""

import time
from collections.abc import Callable
from threading import Lock

from flask import Flask, Response, g, request

from api.http.operation import json_response
from api.http.responses import STOPPING_KEY
from storage.catalog import Catalog, revisions
from storage.errors import DomainError

LIVE_PATH = "/livez"
READY_PATH = "/readyz"
PROBE_PATHS = frozenset({LIVE_PATH, READY_PATH})
CACHE_S = 1.0
"""How long a result is reused, so that probes cost the catalog one query a second."""
PATIENCE_S = 1.0
"""How long a probe waits for another one that is asking the catalog."""

UNREACHABLE = "the catalog cannot be reached"
OUTDATED = "the catalog is not migrated to this release"
STOPPING = "the process is stopping"


class Readiness:
    """Whether this process can take requests; results are cached."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog, self._clock = catalog, clock
        self._lock = Lock()
        self._reason: str | None = None
        self._fresh_until = float("-inf")

    def find_obstacle(self) -> str | None:
        """Return why the process cannot take requests; None if it can."""
        # A catalog that hangs holds one thread, not one for each probe.
        if not self._lock.acquire(timeout=PATIENCE_S):
            return UNREACHABLE
        try:
            if self._clock() >= self._fresh_until:
                self._reason = _check_catalog(self._catalog)
                self._fresh_until = self._clock() + CACHE_S
            return self._reason
        finally:
            self._lock.release()


def _check_catalog(catalog: Catalog) -> str | None:
    try:
        revision = revisions.read_current_revision(catalog)
    except DomainError:
        return UNREACHABLE
    # While an upgrade is rolled out, old processes serve from newer tables.
    return OUTDATED if revisions.is_older_revision(revision) else None


def register_probes(app: Flask, catalog: Catalog) -> None:
    """Serve `/livez` and `/readyz`."""
    readiness = Readiness(catalog)

    @app.get(LIVE_PATH)
    def get_livez() -> Response:
        g.operation = "get_livez"
        return _probe_response(None)

    @app.get(READY_PATH)
    def get_readyz() -> Response:
        g.operation = "get_readyz"
        stopping = request.environ.get(STOPPING_KEY, False)
        return _probe_response(STOPPING if stopping else readiness.find_obstacle())


def _probe_response(obstacle: str | None) -> Response:
    value = {"status": "failed", "reason": obstacle} if obstacle else {"status": "ok"}
    return json_response(value, 503 if obstacle else 200, {"Cache-Control": "no-store"})
