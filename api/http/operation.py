"""Declare operations, build their request context, and route requests to them.

The decorated function becomes an `ApiOperation`. Its name is the operation's name in the
specification, and its docstring is the summary.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

from flask import Flask, Request, Response, request
from marshmallow import EXCLUDE, Schema
from werkzeug.exceptions import MethodNotAllowed

from api.http.addresses import external_base_url
from api.http.auth import B, Guard, Q, RequestContext, VerifyToken
from api.http.limits import ReadOnlyMode, client_key
from api.http.metrics import RequestMetrics
from api.http.paging import Cursors, add_paging_headers, next_page_url
from api.http.waiting import (
    LongPolling,
    ServerSentEvents,
    WaitPreference,
    compute_wait_s,
    parse_prefer,
)
from api.schemas.common import NoParameters
from api.schemas.loading import request_schema
from auth.authorization import StoreAuthorizer
from config import Settings
from pipelines.fixity import FixityReportCache
from pipelines.idempotency import IdempotentRequest
from pipelines.subscriptions import Seal
from storage import json_codec
from storage.encryption import instance_id
from storage.errors import Invalid
from storage.json_codec import MemoryBudget
from storage.model import Job
from storage.rate_limits import RateLimiter
from storage.stores import Stores


class JobQueue(Protocol):
    """The part of `workers.messages.MessageSender` that requests use."""

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        """Notify the workers of jobs that a write recorded; never raises."""

    def ping(self) -> None:
        """Raise when the queue cannot be reached."""


@dataclass(frozen=True)
class Services:
    """Settings, stores and the services built from them; shared by all requests."""

    settings: Settings
    stores: Stores
    rates: RateLimiter | None
    memory: MemoryBudget
    """For large request bodies and documents."""
    cursors: Cursors
    waiting: LongPolling
    streams: ServerSentEvents
    verify: VerifyToken
    seal: Seal
    job_queue: JobQueue
    metrics: RequestMetrics
    read_only: ReadOnlyMode
    integrity: FixityReportCache
    access: StoreAuthorizer
    guard: Guard

    @property
    def instance(self) -> str:
        """The id of this store; `ops status` compares it."""
        return instance_id(self.settings.secret_key.encode())

    def base(self, request: Request) -> str:
        """Return the base of absolute URLs: the configured URL, else the request's own."""
        return external_base_url(self.settings, request)


SMALL_BODY_BYTES = 1024 * 1024
"""Default limit of JSON bodies; only manifests need more. Open operations read bodies of anonymous
callers, and parsed JSON takes many times its size in memory."""

PATH_PARAMETER = re.compile(r"{(\w+)}")

MAX_IDEMPOTENCY_KEY = 255
"""Maximum length of an Idempotency-Key in characters."""


@dataclass(frozen=True)
class StoreContext(RequestContext[Services, Q, B]):
    """One request to the storage API, loaded and authorized."""

    @property
    def stores(self) -> Stores:
        """The open stores."""
        return self.services.stores

    @property
    def uuid(self) -> str:
        """The uuid in the path."""
        return self.path["uuid"]

    @property
    def client(self) -> str:
        """The key of the rate limit that this request counts against."""
        return client_key(self.request, self.services.settings.proxies, self.principal)

    @property
    def prefer(self) -> WaitPreference:
        """The request's `Prefer` header."""
        return parse_prefer(self.request.headers.get("Prefer"))

    def wait_s(self, default_s: float) -> float:
        """Return how many seconds this request may wait for work."""
        cap_s = self.services.settings.wait_cap_s
        return compute_wait_s(self.prefer, default_s=default_s, cap_s=cap_s)

    def parse_idempotency_key(self, digest: str) -> IdempotentRequest | None:
        """Return the request's Idempotency-Key with the digest of its content, None without one."""
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return None
        if not 0 < len(key) <= MAX_IDEMPOTENCY_KEY or not key.isascii() or not key.isprintable():
            rule = f"Must have 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters."
            raise Invalid(f"Idempotency-Key: {rule}", errors={"Idempotency-Key": [rule]})
        return IdempotentRequest(self.caller.email, key, digest)

    def send(self, jobs: Iterable[Job]) -> None:
        """Send the jobs that a write recorded to the workers."""
        self.services.job_queue.send(jobs, self.request_id)

    def open_cursor(
        self, scope: Sequence[str], token: str | None, parameter: str = "search_after"
    ) -> list[str] | None:
        """Return the position in a page token, None without a token; Invalid if it is forged."""
        if token is None:
            return None
        return self.services.cursors.open(scope, token, parameter=parameter)

    def page_response(
        self,
        content: Any,
        key: str,
        *,
        scope: Sequence[str],
        last: Sequence[str] | None,
        parameter: str = "search_after",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return one page of the list `key`; if more follow, the next one begins after `last`."""
        url = None
        if last is not None:
            token = self.services.cursors.seal(scope, last)
            url = next_page_url(self.request, self.base, {parameter: token})
        return add_paging_headers(json_response(content, headers=headers), key, url)


View = Callable[[Any], Response]
"""Takes the application's own `RequestContext`."""


@dataclass(frozen=True)
class ResponseDoc:
    """One documented response: what it means, its body and its headers."""

    description: str
    schema: type[Schema] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    page: bool = False
    """Whether the body is an HTML page."""


@dataclass(frozen=True, eq=False)
class ApiOperation:
    """The declaration of an operation, and its view."""

    name: str
    method: str
    path: str
    tag: str
    summary: str
    view: View
    query: Schema
    body: Schema | None
    responses: Mapping[int, ResponseDoc]
    description: str = ""
    errors: tuple[int, ...] = ()
    paged: str = ""
    """Name of the response member that holds a page's items."""
    form: type[Schema] | None = None
    """The body is a form or JSON, read by the view."""
    upload: bool = False
    """The body is bytes, streamed by the view."""
    body_optional: bool = False
    max_body_bytes: int | None = SMALL_BODY_BYTES
    """Largest JSON body in bytes; None for the limit of the settings."""
    decode: Callable[[bytes], Any] | None = None
    """Decodes a large body in one typed pass; returns None for an invalid body, for which the
    general reader then reports the errors."""
    aliases: tuple[str, ...] = ()
    """Further, undocumented paths."""
    query_from_body: tuple[str, ...] = ()
    """Query parameters that are taken from the body if the query lacks them."""
    body_from_query: tuple[str, ...] = ()
    """Body members that are taken from the query if the body lacks them."""
    once: bool = False
    """Whether a body with a repeated member is refused."""
    identified: bool = True
    """Whether the `Authorization` header holds a bearer token; else only the view reads it."""
    counted: bool = True
    """Whether its requests count against the rate limit."""
    while_read_only: bool = False
    """Whether an operation that is no GET is served while the store is read-only, because it
    changes nothing, or nothing that a backup holds."""
    acts: bool = False
    """Whether it is a GET with side effects, for which HEAD is refused."""

    @property
    def path_parameters(self) -> list[str]:
        """Names of the path parameters, in order."""
        return PATH_PARAMETER.findall(self.path)

    @property
    def writes(self) -> bool:
        """Whether it is refused while the store is read-only."""
        return not self.while_read_only and self.method not in ("GET", "HEAD")


def operation(
    method: str,
    path: str,
    *,
    tag: str,
    responses: Mapping[int, ResponseDoc],
    query: type[object] = NoParameters,
    body: type[object] | None = None,
    name: str = "",
    summary: str = "",
    **more: Any,
) -> Callable[[View], ApiOperation]:
    """Declare the decorated view as an operation; `more` are further members of `ApiOperation`.

    The default of `name` is the view's, that of `summary` its docstring.
    """

    def declare(view: View) -> ApiOperation:
        return ApiOperation(
            name=name or getattr(view, "__name__", ""),
            method=method,
            path=path,
            tag=tag,
            summary=summary or (view.__doc__ or "").strip(),
            view=view,
            query=request_schema(query)(unknown=EXCLUDE),
            body=request_schema(body)() if body else None,
            responses=responses,
            **more,
        )

    return declare


def operations_of(*modules: ModuleType) -> tuple[ApiOperation, ...]:
    """Return the operations that these modules declare, in the order of their definitions."""
    return tuple(
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, ApiOperation) and one.view.__module__ == module.__name__
    )


def page_responses(
    schema: type[Schema], headers: Mapping[str, str] | None = None
) -> dict[int, ResponseDoc]:
    """Return the documented responses of a paged list."""
    headers = headers or {}
    return {
        200: ResponseDoc("The last page.", schema, headers),
        206: ResponseDoc("A page.", schema, headers),
    }


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response; an `orjson.Fragment` in `value` is passed through unparsed."""
    body = json_codec.encode(value)
    return Response(body, status, headers=dict(headers or {}), mimetype="application/json")


def omit_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items whose value is not None."""
    return {name: value for name, value in values.items() if value is not None}


def redirect(location: str, status: int, headers: Mapping[str, str]) -> Response:
    """Return an empty response with a `Location` header."""
    return Response(b"", status, headers={"Location": location, **headers}, mimetype="text/plain")


HTTP_METHODS = {"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"}


def register_operations(
    app: Flask,
    operations: Sequence[ApiOperation],
    view_of: Callable[[ApiOperation], Callable[..., Response]],
    prefix: str = "",
) -> None:
    """Add the URL rules of all operations; `view_of` returns an operation's Flask view."""
    # A rule for GET answers HEAD too, so operations that are HEAD themselves come first.
    for operation in sorted(operations, key=lambda one: one.method != "HEAD"):
        _add_rules(app, operation, view_of(operation), prefix)
    _refuse_unknown_methods(app, operations, prefix)


def _add_rules(
    app: Flask, operation: ApiOperation, view: Callable[..., Response], prefix: str
) -> None:
    for path in (operation.path, *operation.aliases):
        rule = prefix + path.replace("{filename}", "<path:filename>")
        rule = rule.replace("{", "<").replace("}", ">")
        # `_refuse_unknown_methods` answers OPTIONS on paths without parameters.
        options = None if PATH_PARAMETER.search(path) else False
        # Flask refuses dots in endpoint names.
        name = f"{operation.name} {path}".replace(".", "_")
        app.add_url_rule(
            rule, name, view, methods=[operation.method], provide_automatic_options=options
        )
        if operation.acts:
            disable_head(app, name)


def disable_head(app: Flask, endpoint: str) -> None:
    """Refuse HEAD on a GET with side effects, so that a link preview does not trigger them."""
    for rule in app.url_map.iter_rules(endpoint):
        (rule.methods or set()).discard("HEAD")


def _refuse_unknown_methods(app: Flask, operations: Iterable[ApiOperation], prefix: str) -> None:
    """Keep fixed paths from matching a path parameter: `DELETE /bundles/all` deletes no bundle."""
    methods: dict[str, set[str]] = {}
    for operation in operations:
        has_head = operation.method == "GET" and not operation.acts
        for path in (operation.path, *operation.aliases):
            methods.setdefault(path, set()).add(operation.method)
            if has_head:
                methods[path].add("HEAD")
    for path, served in methods.items():
        if not PATH_PARAMETER.search(path):
            _add_refusal_rule(app, prefix + path, served)


def _add_refusal_rule(app: Flask, path: str, served: set[str]) -> None:
    """Answer 405 to methods that a fixed path lacks, before a path with parameters matches."""
    allowed = sorted({*served, "OPTIONS"})

    def refuse() -> Response:
        if request.method == "OPTIONS":
            return Response(headers={"Allow": ", ".join(allowed)}, mimetype="text/plain")
        raise MethodNotAllowed(valid_methods=allowed)

    methods = [*HTTP_METHODS - served, "OPTIONS"]
    app.add_url_rule(path, f"other methods {path}".replace(".", "_"), refuse, methods=methods)
