"""Declare operations, and the context that their views get.

The decorated function becomes an `Operation`. Its name is the operation's name in the
specification, and its docstring is the summary.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Protocol, TypeVar

from flask import Request, Response
from marshmallow import Schema

from api.http.auth import B, Q, RequestContext, StoreGuard, VerifyToken
from api.http.limits import FairSemaphore, ReadOnlyMode, client_key
from api.http.metrics import RequestMetrics
from api.http.paging import Cursors, add_paging_headers, next_page_url
from api.http.waiting import LongPolling, ServerSentEvents, compute_wait_s, parse_prefer
from api.schemas.fields import NoParameters, lenient_schema, request_schema
from auth.authorization import StoreAuthorizer
from config import Settings
from pipelines.backlog import BacklogReport
from pipelines.delivery_log import Unseal
from pipelines.fixity import FixityReport
from pipelines.idempotency import IdempotentRequest
from pipelines.report_cache import ReportCache
from pipelines.subscriptions import Seal
from storage import json_codec
from storage.catalog import Catalog
from storage.encryption import instance_id
from storage.errors import Invalid
from storage.json_codec import MemoryBudget
from storage.model import Job
from storage.rate_limits import RateLimiter
from storage.stores import Stores

C = TypeVar("C", bound="StoreContext[Any, Any]")
R = TypeVar("R")


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
    archives: FairSemaphore
    verify: VerifyToken
    seal: Seal
    unseal: Unseal
    job_queue: JobQueue
    metrics: RequestMetrics
    read_only: ReadOnlyMode
    integrity: ReportCache[FixityReport]
    backlog: ReportCache[BacklogReport]
    access: StoreAuthorizer
    guard: StoreGuard

    @property
    def instance(self) -> str:
        """The id of this store; `ops status` compares it."""
        return instance_id(self.settings.secret_key.encode())

    def base(self, request: Request) -> str:
        """Return the configured external URL, else the request's own if its Host is trusted."""
        if self.settings.external_url:
            return self.settings.external_url
        host = request.headers.get("Host", "").lower()
        if not is_trusted_host(host, self.settings.allowed_hosts):
            message = "Host: must be loopback, or listed in STORE_ALLOWED_HOSTS"
            raise Invalid(message, errors={"Host": [message]})
        return f"{request.scheme}://{host}"


_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?", re.ASCII)


def is_trusted_host(host: str, allowed: Collection[str]) -> bool:
    """Return whether a lower-case Host header is loopback or allowed, with or without its port."""
    parts = _HOST.fullmatch(host)
    if parts is None:
        return False
    name, names = parts["name"], {one.lower() for one in allowed}
    if name == "localhost" or name.endswith(".localhost") or host in names or name in names:
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


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

    def wait_s(self, default_s: float) -> float:
        """Return how many seconds this request may wait for work."""
        preference = parse_prefer(self.request.headers.get("Prefer"))
        cap_s = self.services.settings.wait_cap_s
        return compute_wait_s(preference, default_s=default_s, cap_s=cap_s)

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


def read_stale(view: Callable[[C], R], context: C) -> R:
    """Return the answer of a view that may read a standby of the catalog.

    `Cache-Control: no-cache` asks for what is current. Permissions are always current, since the
    guard and the caches of the services have the catalog itself.
    """
    services, stores = context.services, context.stores
    if stores.catalog.standby is None or context.request.cache_control.no_cache:
        return view(context)

    def ask(catalog: Catalog) -> R:
        lagging = replace(services, stores=replace(stores, catalog=catalog))
        return view(replace(context, services=lagging))

    answer: R = stores.catalog.read_stale(ask, is_complete=_is_complete)
    return answer


def _is_complete(answer: Any) -> bool:
    """Return whether nothing was missing; other answers tell what is absent or not ready."""
    return isinstance(answer, Response) and answer.status_code in (200, 206)


@dataclass(frozen=True)
class ResponseDoc:
    """One documented response: what it means, its body and its headers."""

    description: str
    schema: type[Schema] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    page: bool = False
    """Whether the body is an HTML page."""
    media_types: tuple[str, ...] = ()
    """Types of a body of bytes."""


@dataclass(frozen=True, eq=False)
class Operation:
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
    upload_files: bool = False
    """The body is a multipart form of files, streamed by the view."""
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
    may_lag: bool = False
    """Whether its answer may be read from a standby of the catalog, which is a little behind."""

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
) -> Callable[[View], Operation]:
    """Declare the decorated view as an operation; `more` are further members of `Operation`.

    The default of `name` is the view's, that of `summary` its docstring.
    """

    def declare(view: View) -> Operation:
        return Operation(
            name=name or getattr(view, "__name__", ""),
            method=method,
            path=path,
            tag=tag,
            summary=summary or (view.__doc__ or "").strip(),
            view=view,
            query=lenient_schema(query),
            body=request_schema(body)() if body else None,
            responses=responses,
            **more,
        )

    return declare


def operations_of(*modules: ModuleType) -> tuple[Operation, ...]:
    """Return the operations that these modules declare, in the order of their definitions."""
    return tuple(
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, Operation) and one.view.__module__ == module.__name__
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
