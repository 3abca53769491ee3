"""Composition of the storage API: its operations, its definition, its pages, its errors."""

import logging
import time
from collections.abc import Callable

from flask import Flask, Response, g, request

from api import problems
from api.compression import register_compression
from api.cors import register_cors
from api.dispatch import endpoint
from api.errors import register_errors
from api.health import register_service
from api.metrics import Metrics
from api.objects import register_objects
from api.operation import Operation
from api.operations import OPERATIONS
from api.paging import Cursors
from api.readonly import ReadOnly
from api.reference import register_reference
from api.replication import get_replication
from api.services import Chains, Services, Verify
from api.streaming import Streams
from api.throttle import register_limits
from api.waiting import Waiting
from config.logs import bound
from config.settings import Settings
from pipelines.subscriptions import SEALING
from storage.sealing import Sealer, derive
from storage.stores import Stores

log = logging.getLogger("api.requests")

PREFIX = "/v1"


def create_app(
    settings: Settings,
    stores: Stores,
    *,
    chains: Chains,
    verify: Verify,
    request_ids: Callable[[], str] = problems.new_request_id,
) -> Flask:
    """The application on open stores."""
    secret = settings.secret_key.encode()
    services = Services(
        settings=settings,
        stores=stores,
        cursors=Cursors(derive(secret, b"page pointers")),
        waiting=Waiting(stores.notices, settings.api_threads // 2),
        streams=Streams(stores.notices, min(settings.feed_streams, settings.api_threads // 4)),
        verify=verify,
        seal=Sealer(derive(secret, SEALING)).seal,
        chains=chains,
        metrics=Metrics(several_processes=settings.api_processes > 1),
        read_only=ReadOnly(stores.catalog, always=settings.read_only),
    )
    app = Flask(__name__, static_folder=None)
    app.url_map.merge_slashes = False
    problems.number_requests(app, request_ids)
    _observe_requests(app, services.metrics)
    # What is registered first sees an answer last: it is compressed after all has been said.
    register_compression(app)
    register_cors(app, settings.cors_origins)
    register_limits(app)
    register_service(app, services)
    # A rule for GET answers HEAD too, so operations that are HEAD themselves come first.
    for operation in sorted(OPERATIONS, key=lambda one: one.method != "HEAD"):
        _route(app, operation, services)
    # Beside `/health`, where operators look for it.
    app.add_url_rule("/replication", "replication", endpoint(get_replication, services))
    register_objects(app, stores)
    register_reference(app, services, OPERATIONS)
    register_errors(app)
    return app


def _route(app: Flask, operation: Operation, services: Services) -> None:
    """One rule for each path; HEAD only where it is an operation of its own."""
    view = endpoint(operation, services)
    for path in (operation.path, *operation.aliases):
        rule = PREFIX + path.replace("{filename}", "<path:filename>")
        rule = rule.replace("{", "<").replace("}", ">")
        app.add_url_rule(rule, f"{operation.name} {path}", view, methods=[operation.method])


def _observe_requests(app: Flask, metrics: Metrics) -> None:
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
        _tell(metrics, response.status_code, time.perf_counter() - g.began)
        return response

    @app.teardown_request
    def unbind(_error: BaseException | None) -> None:
        if "log_lines" in g:
            g.pop("log_lines").__exit__(None, None, None)


def _tell(metrics: Metrics, status: int, seconds: float) -> None:
    """One line a request: its path without the query, which may hold a signature."""
    metrics.count(g.get("operation", "none"), status, seconds)
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
