"""Composition of the storage API: its operations, its definition, its pages, its errors."""

from collections.abc import Callable, Iterable

from flask import Flask, Response, request
from werkzeug.exceptions import MethodNotAllowed

from api import problems
from api.conventions import register_conventions
from api.dispatch import endpoint
from api.health import register_service
from api.metrics import Metrics
from api.objects import register_objects
from api.operation import PATH_PARAMETER, Operation
from api.operations import OPERATIONS
from api.paging import Cursors
from api.readonly import ReadOnly
from api.reference import register_reference
from api.replication import get_replication
from api.services import Chains, Services, Verify
from api.slots import Slots
from api.streaming import Streams
from api.throttle import register_limits
from api.waiting import Waiting
from config.settings import Settings
from pipelines.notifying.subscriptions import SEALING
from storage.sealing import Sealer, derive
from storage.stores import Stores

PREFIX = "/v1"
METHODS = {"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"}


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
        waiting=Waiting(stores.notices, _waits(settings)),
        streams=Streams(stores.notices, _streams(settings)),
        verify=verify,
        seal=Sealer(derive(secret, SEALING)).seal,
        chains=chains,
        metrics=Metrics(several_processes=settings.api_processes > 1),
        read_only=ReadOnly(stores.catalog, always=settings.read_only),
    )
    app = Flask(__name__, static_folder=None)
    register_conventions(
        app,
        origins=settings.cors_origins,
        request_ids=request_ids,
        count=services.metrics.count,
    )
    register_limits(app)
    register_service(app, services)
    # A rule for GET answers HEAD too, so operations that are HEAD themselves come first.
    for operation in sorted(OPERATIONS, key=lambda one: one.method != "HEAD"):
        _route(app, operation, services)
    _close(app, OPERATIONS)
    # Beside `/health`, where operators look for it.
    app.add_url_rule("/replication", "replication", endpoint(get_replication, services))
    register_objects(app, services)
    register_reference(app, services, OPERATIONS)
    return app


def _waits(settings: Settings) -> Slots:
    return Slots("waiting requests", settings.api_threads // 2, settings.client_waits)


def _streams(settings: Settings) -> Slots:
    most = min(settings.feed_streams, settings.api_threads // 4)
    return Slots("streams", most, settings.client_streams)


def _route(app: Flask, operation: Operation, services: Services) -> None:
    """One rule for each path; HEAD only where it is an operation of its own."""
    view = endpoint(operation, services)
    for path in (operation.path, *operation.aliases):
        rule = PREFIX + path.replace("{filename}", "<path:filename>")
        rule = rule.replace("{", "<").replace("}", ">")
        # What a path without parameters allows is said by `_refuse_others`.
        options = None if PATH_PARAMETER.search(path) else False
        app.add_url_rule(
            rule,
            f"{operation.name} {path}",
            view,
            methods=[operation.method],
            provide_automatic_options=options,
        )


def _close(app: Flask, operations: Iterable[Operation]) -> None:
    """Let nobody take the words of a path for a name: `DELETE /bundles/all` deletes no bundle."""
    methods: dict[str, set[str]] = {}
    for operation in operations:
        for path in (operation.path, *operation.aliases):
            methods.setdefault(path, set()).add(operation.method)
    for path, known in methods.items():
        if not PATH_PARAMETER.search(path):
            _refuse_others(app, path, known | ({"HEAD"} if "GET" in known else set()))


def _refuse_others(app: Flask, path: str, known: set[str]) -> None:
    """Answer what a path does not know itself, before a path with parameters takes it."""
    allowed = sorted({*known, "OPTIONS"})

    def refuse() -> Response:
        if request.method == "OPTIONS":
            return Response(headers={"Allow": ", ".join(allowed)}, mimetype="text/plain")
        raise MethodNotAllowed(valid_methods=allowed)

    methods = [*METHODS - known, "OPTIONS"]
    app.add_url_rule(PREFIX + path, f"other methods {path}", refuse, methods=methods)
