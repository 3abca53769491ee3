"""Flask view of an operation: identify, load, authorize, then call the view.

Errors come in this order: 401 for a bad token, 429, 503 while read-only, 400 for query and body,
403, and the errors of the view.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flask import Response, g, request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import RequestEntityTooLarge

from api.http.auth import RequestContext, RequestServices, identify_caller
from api.http.bodies import read_json
from api.http.conditional import apply_etag
from api.http.limits import check_rate_limit, reserve_memory
from api.http.operation import SMALL_BODY_BYTES, ApiOperation
from api.schemas.loading import MISSING_FIELD, load_body, load_path, load_query
from storage.errors import Invalid, TooLarge, Unauthorized, Unavailable
from storage.model import Principal

READ_ONLY_RETRY_S = 60

MakeContext = Callable[..., RequestContext[Any, Any, Any]]
"""The application's own subclass of `RequestContext`."""


def make_view(
    operation: ApiOperation, services: RequestServices, context_type: MakeContext
) -> Callable[..., Response]:
    """Return the Flask view of an operation."""
    requirement = services.guard.wants(operation.name)
    private = requirement is not None
    pages = {status for status, response in operation.responses.items() if response.page}

    def view(**path: str) -> Response:
        g.operation, g.pages = operation.name, pages
        context = _build_context(operation, services, context_type, path, requirement)
        return apply_etag(request, operation.view(context), private=private)

    return view


def _build_context(
    operation: ApiOperation,
    services: RequestServices,
    context_type: MakeContext,
    path: Mapping[str, str],
    requirement: str | None,
) -> RequestContext[Any, Any, Any]:
    principal = _identify_and_count(operation, services)
    g.principal = principal.email if principal else None
    _check_before_body(operation, services, principal, requirement)
    base = services.base(request)
    normal = load_path(_merge_path_parameters(operation, path))
    query, body = _load_query_and_body(operation, services, principal)
    context = context_type(
        services, operation.name, request, g.request_id, normal, query, body, principal, base
    )
    return services.guard.require(operation.name, context)


def _merge_path_parameters(operation: ApiOperation, path: Mapping[str, str]) -> Mapping[str, str]:
    """Add the path parameters that an alias has in its query."""
    in_query = [name for name in operation.path_parameters if name not in path]
    missing = [name for name in in_query if name not in request.args]
    if missing:
        errors = {name: [MISSING_FIELD] for name in missing}
        raise Invalid(f"Missing query parameter '{missing[0]}'", errors=errors)
    return {**path, **{name: request.args[name] for name in in_query}}


def _identify_and_count(operation: ApiOperation, services: RequestServices) -> Principal | None:
    """Identify the caller and check the rate limit; a bad token counts against the address."""
    authorization = request.headers.get("Authorization") if operation.identified else None
    try:
        principal = identify_caller(services.verify, authorization)
    except Unauthorized:
        _count_request(operation, services, None)
        raise
    _count_request(operation, services, principal)
    return principal


def _count_request(
    operation: ApiOperation, services: RequestServices, principal: Principal | None
) -> None:
    if operation.counted:
        check_rate_limit(services.rates, services.settings, request, principal)


def _check_before_body(
    operation: ApiOperation,
    services: RequestServices,
    principal: Principal | None,
    requirement: str | None,
) -> None:
    """Refuse what needs no body, before reading it."""
    if operation.identified and principal is None and requirement is not None:
        raise Unauthorized(f"{operation.name} needs {requirement}")
    if operation.writes and (reason := services.read_only.reason()):
        raise Unavailable(reason, code="read_only", retry_after_s=READ_ONLY_RETRY_S)


def _load_query_and_body(
    operation: ApiOperation, services: RequestServices, principal: Principal | None
) -> tuple[Any, Any]:
    """Load the query before the body, unless the body may hold parameters that it lacks."""
    if operation.body is None:
        return load_query(operation.query, request.args), None
    args, raw = request.args, None
    if any(name not in args for name in operation.query_from_body):
        args, raw = _merge_query_from_body(operation, services, principal)
    query = load_query(operation.query, args)
    value = _read_body(operation, services, principal) if raw is None else raw
    return query, load_body(operation.body, _merge_body_with_query(operation, value))


def _read_body(
    operation: ApiOperation, services: RequestServices, principal: Principal | None
) -> Any:
    settings = services.settings
    limit = min(operation.max_body_bytes or settings.max_body_bytes, settings.max_body_bytes)
    if _may_be_large() and not services.guard.may(principal, operation.name):
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


def _may_be_large() -> bool:
    """Return whether to ask the guard before reading the body: that may be a remote call."""
    if request.content_length is None:
        return "Transfer-Encoding" in request.headers
    return request.content_length > SMALL_BODY_BYTES


def _merge_query_from_body(
    operation: ApiOperation, services: RequestServices, principal: Principal | None
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


def _merge_body_with_query(operation: ApiOperation, value: Any) -> Any:
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
