"""What every answer of both services has, whatever the operation: an id, a type, an origin, a size.

One call has an application keep to all of it; statuses and codes of errors are in `api/errors.py`.
"""

import logging
import time
from collections.abc import Callable

from flask import Flask, Response, g, request

from api.compression import register_compression
from api.cors import OriginsOf, register_cors
from api.errors import ErrorPage, register_errors
from api.memory import register_memory
from api.problems import number_requests
from config.logs import bound

log = logging.getLogger("api.requests")

Count = Callable[[str, int, float], None]
"""Told of every request: its operation, its status, its seconds."""


def register_conventions(
    app: Flask,
    *,
    origins_of: OriginsOf,
    request_ids: Callable[[], str],
    count: Count,
    page: ErrorPage | None = None,
) -> None:
    """What is registered first sees an answer last: it is compressed after all has been said."""
    app.url_map.merge_slashes = False
    number_requests(app, request_ids)
    _observe_requests(app, count)
    register_memory(app)
    register_compression(app)
    register_cors(app, origins_of)
    register_errors(app, page)


def uncounted(_operation: str, _status: int, _seconds: float) -> None:
    """For an application without figures."""


def _observe_requests(app: Flask, count: Count) -> None:
    """Say of every request, in log and figures, how it went."""

    @app.before_request
    def begin() -> None:
        g.began = time.perf_counter()
        g.log_lines = bound(request_id=g.request_id)
        g.log_lines.__enter__()

    @app.after_request
    def finish(response: Response) -> Response:
        response.headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        _tell(count, response.status_code, time.perf_counter() - g.began)
        return response

    @app.teardown_request
    def unbind(_error: BaseException | None) -> None:
        if "log_lines" in g:
            g.pop("log_lines").__exit__(None, None, None)


def _tell(count: Count, status: int, seconds: float) -> None:
    """One line a request: its path without the query, which may hold a signature."""
    count(g.get("operation", "none"), status, seconds)
    log.info(
        "request",
        extra={
            "method": request.method,
            "path": request.path,
            "status": status,
            "seconds": round(seconds, 4),
            "principal": g.get("principal"),
        },
    )
