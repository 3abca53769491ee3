"""Route requests to operations: identify, load, authorize, then call the view.

Errors come in this order: 401 for a bad token, 429, 503 while read-only, 400 for query and body,
403, and the errors of the view.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from flask import Flask, Request, Response, g, request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import MethodNotAllowed, RequestEntityTooLarge

from api.http.auth import Guard, RequestContext, VerifyToken, identify_caller
from api.http.limits import ReadOnlyMode, check_rate_limit, reserve_memory
from api.http.loading import MISSING_FIELD, load_body, load_path, load_query, read_json
from api.http.operation import PATH_PARAMETER, SMALL_BODY_BYTES, Operation, read_stale
from api.http.responses import apply_etag
from config import Settings
from storage.errors import Invalid, TooLarge, Unauthorized
from storage.json_codec import MemoryBudget
from storage.model import Principal
from storage.rate_limits import RateLimiter


class RequestServices(Protocol):
    """The part of an application's services that every request needs."""

    @property
    def settings(self) -> Settings: ...
    @property
    def verify(self) -> VerifyToken: ...
    @property
    def rates(self) -> RateLimiter | None: ...
    @property
    def read_only(self) -> ReadOnlyMode: ...
    @property
    def guard(self) -> Guard: ...
    @property
    def memory(self) -> MemoryBudget: ...

    def base(self, request: Request) -> str:
        """Return the base of absolute URLs, without `/v1`; Invalid for an untrusted Host."""


MakeContext = Callable[..., RequestContext[Any, Any, Any]]
"""The application's own subclass of `RequestContext`."""


def make_view(
    operation: Operation, services: RequestServices, context_type: MakeContext
) -> Callable[..., Response]:
    """Return the Flask view of an operation."""
    requirement = services.guard.wants(operation.name)
    private = requirement is not None
    pages = {status for status, response in operation.responses.items() if response.page}
    parameters = operation.path_parameters
    writes = operation.writes
    answer = partial(read_stale, operation.view) if operation.may_lag else operation.view

    def view(**path: str) -> Response:
        g.operation, g.pages = operation.name, pages
        authorization = request.headers.get("Authorization") if operation.identified else None
        principal = identify_and_count(services, authorization, counted=operation.counted)
        g.principal = principal.email if principal else None
        # Refuse what needs no body, before reading it.
        if operation.identified and principal is None and requirement is not None:
            raise Unauthorized(f"{operation.name} needs {requirement}")
        if writes:
            services.read_only.require_writable()
        base = services.base(request)
        if in_query := [name for name in parameters if name not in path]:
            path |= _read_path_parameters(in_query)
        normal = load_path(path)
        query, body = _load_query_and_body(operation, services, principal)
        context = context_type(
            services, operation.name, request, g.request_id, normal, query, body, principal, base
        )
        context = services.guard.require(operation.name, context)
        return apply_etag(request, answer(context), private=private)

    return view


def _read_path_parameters(names: list[str]) -> dict[str, str]:
    """Return the path parameters that an alias has in its query."""
    missing = [name for name in names if name not in request.args]
    if missing:
        errors = {name: [MISSING_FIELD] for name in missing}
        raise Invalid(f"Missing query parameter '{missing[0]}'", errors=errors)
    return {name: request.args[name] for name in names}


def identify_and_count(
    services: RequestServices, authorization: str | None, *, counted: bool = True
) -> Principal | None:
    """Identify the caller and check the rate limit; a bad token counts against the address."""
    principal, refusal = None, None
    try:
        principal = identify_caller(services.verify, authorization)
    except Unauthorized as error:
        refusal = error
    if counted:
        check_rate_limit(services.rates, services.settings, request, principal)
    if refusal is not None:
        raise refusal
    return principal


def _load_query_and_body(
    operation: Operation, services: RequestServices, principal: Principal | None
) -> tuple[Any, Any]:
    """Load the query before the body, unless the body may hold parameters that it lacks."""
    if operation.body is None:
        return load_query(operation.query, request.args), None
    args, raw = request.args, None
    if any(name not in args for name in operation.query_from_body):
        args, raw = _merge_query_from_body(operation, services, principal)
    query = load_query(operation.query, args)
    value = _read_body(operation, services, principal) if raw is None else raw
    if operation.query_from_body or operation.body_from_query:
        value = _merge_body_with_query(operation, value)
    return query, load_body(operation.body, value)


def _read_body(operation: Operation, services: RequestServices, principal: Principal | None) -> Any:
    settings, length = services.settings, request.content_length
    limit = min(operation.max_body_bytes or settings.max_body_bytes, settings.max_body_bytes)
    is_chunked = length is None and "Transfer-Encoding" in request.headers
    # The guard may be a remote call, so it is called only before a large body is read.
    is_large = is_chunked or (length or 0) > SMALL_BODY_BYTES
    if is_large and not services.guard.may(principal, operation.name):
        # The request will be refused anyway; a small body is read to report its errors.
        limit = min(limit, SMALL_BODY_BYTES)
    try:
        return read_json(
            request,
            max_bytes=limit,
            max_depth=settings.max_json_depth,
            once=operation.once,
            decode=operation.decode,
            reserve=partial(reserve_memory, services.memory),
        )
    except (TooLarge, RequestEntityTooLarge):
        services.guard.refuse(principal, operation.name, request)
        raise


def _merge_query_from_body(
    operation: Operation, services: RequestServices, principal: Principal | None
) -> tuple[MultiDict[str, str], Any]:
    """Return the query with the parameters that only the body has, and the body."""
    try:
        raw = _read_body(operation, services, principal)
    except Invalid:
        # Errors of the query take precedence over those of the body.
        load_query(operation.query, request.args)
        raise
    members = raw if isinstance(raw, dict) else {}
    borrowed = {
        name: members[name]
        for name in operation.query_from_body
        if isinstance(members.get(name), str) and name not in request.args
    }
    return MultiDict([*borrowed.items(), *request.args.items(multi=True)]), raw


def _merge_body_with_query(operation: Operation, value: Any) -> Any:
    """Return the body plus the members that the query holds, minus the query's parameters."""
    if not isinstance(value, dict):
        return value
    body = dict(value)
    for name in operation.query_from_body:
        if name in body:
            _check_equal(name, body.pop(name), request.args.get(name))
    for name in operation.body_from_query:
        if name in request.args:
            _check_equal(name, body.setdefault(name, request.args[name]), request.args[name])
    return body


def _check_equal(name: str, in_body: Any, in_query: str | None) -> None:
    if in_query is not None and in_body != in_query:
        message = "Must be the same in the query and the body."
        raise Invalid(f"'{name}': {message}", errors={name: [message]})


HTTP_METHODS = {"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"}


def register_operations(
    app: Flask,
    operations: Sequence[Operation],
    view_of: Callable[[Operation], Callable[..., Response]],
    prefix: str = "",
) -> None:
    """Add the URL rules of all operations; `view_of` returns an operation's Flask view."""
    methods = _list_methods(operations)
    fixed = {path for path in methods if _is_fixed(path, methods)}
    # A rule for GET answers HEAD too, so operations that are HEAD themselves come first.
    for operation in sorted(operations, key=lambda one: one.method != "HEAD"):
        _add_rules(app, operation, view_of(operation), prefix, fixed)
    for path in fixed:
        _add_refusal_rule(app, prefix + path, methods[path])


def _add_rules(
    app: Flask,
    operation: Operation,
    view: Callable[..., Response],
    prefix: str,
    fixed: Collection[str],
) -> None:
    for path in (operation.path, *operation.aliases):
        rule = prefix + path.replace("{filename}", "<path:filename>")
        rule = rule.replace("{", "<").replace("}", ">")
        # A separate rule answers OPTIONS on fixed paths.
        options = False if path in fixed else None
        # Flask refuses dots in endpoint names.
        name = f"{operation.name} {path}".replace(".", "_")
        add_rule(app, operation.method, rule, name, view, acts=operation.acts, options=options)


def add_rule(
    app: Flask,
    method: str,
    path: str,
    endpoint: str,
    view: Callable[..., Response],
    *,
    acts: bool,
    options: bool | None = None,
) -> None:
    """Serve a path; if its GET `acts`, refuse HEAD, so that a link preview does not trigger it."""
    app.add_url_rule(path, endpoint, view, methods=[method], provide_automatic_options=options)
    if acts:
        for rule in app.url_map.iter_rules(endpoint):
            (rule.methods or set()).discard("HEAD")


def _list_methods(operations: Iterable[Operation]) -> dict[str, set[str]]:
    """Return the methods that are served, by path."""
    methods: dict[str, set[str]] = {}
    for operation in operations:
        has_head = operation.method == "GET" and not operation.acts
        for path in (operation.path, *operation.aliases):
            methods.setdefault(path, set()).add(operation.method)
            if has_head:
                methods[path].add("HEAD")
    return methods


def _is_fixed(path: str, others: Iterable[str]) -> bool:
    """Return whether other methods of a path must be refused by a separate rule.

    Otherwise they would match a path parameter: `DELETE /bundles/all` deletes no bundle.
    """
    return not PATH_PARAMETER.search(path) or any(_is_more_general(one, path) for one in others)


def _is_more_general(path: str, special: str) -> bool:
    """Return whether a path has a parameter where `special` has a fixed word, else the same."""
    ours, theirs = path.split("/"), special.split("/")
    if path == special or len(ours) != len(theirs):
        return False
    pairs = list(zip(ours, theirs, strict=True))
    return all(
        one == other or (one.startswith("{") and not other.startswith("{")) for one, other in pairs
    )


def _add_refusal_rule(app: Flask, path: str, served: set[str]) -> None:
    """Answer 405 to methods that a fixed path lacks, before a path with parameters matches."""
    allowed = sorted({*served, "OPTIONS"})

    def refuse(**_path: str) -> Response:
        if request.method == "OPTIONS":
            return Response(headers={"Allow": ", ".join(allowed)}, mimetype="text/plain")
        raise MethodNotAllowed(valid_methods=allowed)

    methods = [*HTTP_METHODS - served, "OPTIONS"]
    rule = path.replace("{", "<").replace("}", ">")
    app.add_url_rule(rule, f"other methods {path}".replace(".", "_"), refuse, methods=methods)
