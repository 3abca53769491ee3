"""From a request to a call: identify, load, authorize, then let the view do its one step.

Order of refusals: 401 for a bad token, 429, 503 while read-only, 400 for query and body, 403, and
whatever the view itself finds.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flask import Response, g, request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import RequestEntityTooLarge

from api.asking import Asked, Services, identify
from api.bodies import read_json
from api.conditional import conditional
from api.memory import reserve_memory
from api.operation import SMALL_BODY, Operation
from api.schemas.loading import MISSING, load_body, load_path, load_query
from api.throttle import throttle
from storage.errors import Invalid, TooLarge, Unauthorized, Unavailable
from storage.model import Principal

READ_ONLY_RETRY_S = 60

Calls = Callable[..., Asked[Any, Any, Any]]
"""Makes an application's own call of what a request holds."""


def endpoint(operation: Operation, services: Services, calls: Calls) -> Callable[..., Response]:
    """The Flask view of an operation, whose own view gets one of these calls."""
    wanted = services.guard.wants(operation.name)
    private = wanted is not None
    pages = {status for status, documented in operation.answers.items() if documented.page}

    def view(**path: str) -> Response:
        g.operation, g.pages = operation.name, pages
        answered = operation.view(_call(operation, services, calls, path, wanted))
        return conditional(request, answered, private=private)

    return view


def _call(
    operation: Operation,
    services: Services,
    calls: Calls,
    path: Mapping[str, str],
    wanted: str | None,
) -> Asked[Any, Any, Any]:
    principal = _counted(operation, services)
    g.principal = principal.email if principal else None
    _check_beforehand(operation, services, principal, wanted)
    base = services.base(request)
    normal = load_path(_named(operation, path))
    query, body = _loaded(operation, services, principal)
    call = calls(
        services, operation.name, request, g.request_id, normal, query, body, principal, base
    )
    return services.guard.require(operation.name, call)


def _named(operation: Operation, path: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters of the path, which an alias may have in its query."""
    missing = [name for name in operation.path_parameters if name not in path]
    lacking = [name for name in missing if name not in request.args]
    if lacking:
        errors = {name: [MISSING] for name in lacking}
        raise Invalid(f"Missing query parameter '{lacking[0]}'", errors=errors)
    return {**path, **{name: request.args[name] for name in missing}}


def _counted(operation: Operation, services: Services) -> Principal | None:
    """Who asks, unless too often; whose token is bad is counted by address."""
    authorization = request.headers.get("Authorization") if operation.identified else None
    try:
        principal = identify(services.verify, authorization)
    except Unauthorized:
        _count(operation, services, None)
        raise
    _count(operation, services, principal)
    return principal


def _count(operation: Operation, services: Services, principal: Principal | None) -> None:
    if operation.counted:
        throttle(services.rates, services.settings, request, principal)


def _check_beforehand(
    operation: Operation, services: Services, principal: Principal | None, wanted: str | None
) -> None:
    """What is refused whatever the request says, before a byte of its body is read."""
    if operation.identified and principal is None and wanted is not None:
        raise Unauthorized(f"{operation.name} needs {wanted}")
    if operation.writes and (reason := services.read_only.reason()):
        raise Unavailable(reason, code="read_only", retry_after_s=READ_ONLY_RETRY_S)


def _loaded(
    operation: Operation, services: Services, principal: Principal | None
) -> tuple[Any, Any]:
    """Query before body, unless the body may stand in for a parameter that the query lacks."""
    if operation.body is None:
        return load_query(operation.query, request.args), None
    args, raw = request.args, None
    if any(name not in args for name in operation.query_from_body):
        args, raw = _from_body(operation, services, principal)
    query = load_query(operation.query, args)
    given = _read(operation, services, principal) if raw is None else raw
    return query, load_body(operation.body, _completed(operation, given))


def _read(operation: Operation, services: Services, principal: Principal | None) -> Any:
    settings = services.settings
    most = min(operation.max_body_bytes or settings.max_body_bytes, settings.max_body_bytes)
    if _is_large() and not services.guard.may(principal, operation.name):
        # What is refused anyway need not be large to be told what else is wrong with it.
        most = min(most, SMALL_BODY)
    try:
        return read_json(
            request,
            max_bytes=most,
            max_depth=settings.max_json_depth,
            once=operation.once,
            decode=operation.decode,
            reserve=partial(reserve_memory, services.memory),
        )
    except (TooLarge, RequestEntityTooLarge):
        services.guard.refuse(principal, operation.name, request)
        raise


def _is_large() -> bool:
    """Whether the body is more than a small one, or may be: nothing else is worth a question to a
    service that is elsewhere."""
    announced = request.content_length
    return "Transfer-Encoding" in request.headers if announced is None else announced > SMALL_BODY


def _from_body(
    operation: Operation, services: Services, principal: Principal | None
) -> tuple[MultiDict[str, str], Any]:
    """The query with what only the body names, and the body."""
    try:
        raw = _read(operation, services, principal)
    except Invalid:
        # A parameter that is missing altogether is told before what is wrong with the body.
        load_query(operation.query, request.args)
        raise
    found = raw if isinstance(raw, dict) else {}
    lent = {
        name: found[name]
        for name in operation.query_from_body
        if isinstance(found.get(name), str) and name not in request.args
    }
    return MultiDict([*lent.items(), *request.args.items(multi=True)]), raw


def _completed(operation: Operation, given: Any) -> Any:
    """The body with the members that the query names, without those that belong to the query."""
    if not isinstance(given, dict):
        return given
    body = dict(given)
    for name in operation.query_from_body:
        if name in body:
            _check_same(name, body.pop(name), request.args.get(name))
    for name in operation.body_from_query:
        if name in request.args:
            _check_same(name, body.setdefault(name, request.args[name]), request.args[name])
    return body


def _check_same(name: str, in_body: Any, in_query: str | None) -> None:
    if in_query is not None and in_body != in_query:
        errors = {name: ["Given twice and different."]}
        raise Invalid(f"'{name}' is given twice and different", errors=errors)
