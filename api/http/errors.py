"""Error responses (RFC 9457), request ids, and the table of errors to statuses.

Every error response is a problem with the request's id; stack traces go to the log only.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from flask import Flask, Response, current_app, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from storage.errors import (
    AlreadyExists,
    ClaimLost,
    ConflictError,
    DamagedObjectError,
    DomainError,
    Forbidden,
    Invalid,
    NotAcceptable,
    NotFoundError,
    QuotaExceeded,
    RangeNotSatisfiable,
    SourceChanged,
    TimeLimitExceeded,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unprocessable,
    UnsupportedMediaType,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"
REQUEST_ID_HEADER = "X-Request-Id"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def problem_body(
    status: int,
    code: str,
    detail: str,
    errors: Mapping[str, Sequence[str]] | None = None,
    request_id: str = "",
    quota: Mapping[str, str | int] | None = None,
) -> dict[str, Any]:
    """Return the members of a problem, with `errors` and `quota` if there are any."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": _PHRASES.get(status, "Error"),
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
    }
    if errors:
        body["errors"] = {where: list(messages) for where, messages in errors.items()}
    if quota:
        body["quota"] = dict(quota)
    return body


DRS_PATHS = ("/ga4gh/drs/", "/v1/ga4gh/drs/")
"""Where errors have the form that GA4GH DRS asks for."""

log = logging.getLogger(__name__)

STATUS_BY_ERROR: Mapping[type[DomainError], int] = {
    Invalid: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFoundError: 404,
    NotAcceptable: 406,
    ConflictError: 409,
    AlreadyExists: 409,
    TooLarge: 413,
    UnsupportedMediaType: 415,
    RangeNotSatisfiable: 416,
    Unprocessable: 422,
    SourceChanged: 422,
    TooManyRequests: 429,
    ClaimLost: 500,
    DamagedObjectError: 500,
    DomainError: 500,
    Unavailable: 503,
    TimeLimitExceeded: 504,
}

HTTP_CODES: Mapping[int, str] = {
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
}
"""Codes of errors that the framework raises; the others are illegal_arguments."""

RETRY_AFTER_S: Mapping[int, int] = {409: 2, 429: 5, 500: 5, 503: 5, 504: 5}
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
UNEXPECTED_DETAIL = "Internal error: the log has the reason under this request id."


ErrorPage = Callable[[int, str], Response]
"""Builds an HTML page from a status and a message."""
ERROR_PAGE_KEY = "store.error_page"


def register_errors(app: Flask, page: ErrorPage | None = None) -> None:
    """Answer every error of this application as a problem; browsers get `page`, if it is given."""
    app.extensions[ERROR_PAGE_KEY] = page
    app.register_error_handler(DomainError, _handle_domain_error)
    app.register_error_handler(HTTPException, _handle_http_error)
    app.register_error_handler(Exception, _handle_unexpected_error)


def http_status(error: DomainError) -> int:
    """Return the status of the error's class, or of its nearest base class."""
    return next(STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_BY_ERROR)


def _handle_domain_error(error: DomainError) -> Response:
    status = http_status(error)
    if status >= 500:
        # A damaged object is no bug, so the log needs no stack trace.
        cause = None if isinstance(error, DamagedObjectError) else error
        log.warning("%s: %s", type(error).__name__, error.detail, exc_info=cause)
    quota = error.quota if isinstance(error, QuotaExceeded) else None
    response = error_response(status, error.code, error.detail, error.errors, quota)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return add_retry_after(response, error.code, error.retry_after_s)


def _handle_http_error(error: HTTPException) -> Response:
    status = error.code or 500
    if status < 400:
        return Response(status=status, headers=error.get_headers(request.environ))
    code = HTTP_CODES.get(status, "internal_error" if status >= 500 else "illegal_arguments")
    response = error_response(status, code, error.description or "")
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return add_retry_after(response, code, None)


def _handle_unexpected_error(error: Exception) -> Response:
    log.error("unexpected error", exc_info=error)
    response = error_response(500, "internal_error", UNEXPECTED_DETAIL)
    return add_retry_after(response, "internal_error", None)


def error_response(
    status: int,
    code: str,
    detail: str,
    errors: Mapping[str, list[str]] | None = None,
    quota: Mapping[str, str | int] | None = None,
) -> Response:
    """Return a problem, or an error of DRS below its paths.

    It is a page if the client prefers HTML or the operation documents one.
    """
    page: ErrorPage | None = current_app.extensions.get(ERROR_PAGE_KEY)
    if request.path.startswith(DRS_PATHS):
        body = {"msg": detail, "status_code": status}
        return Response(orjson.dumps(body), status, mimetype="application/json")
    if page is not None and (status in g.get("pages", ()) or _prefers_html()):
        response = page(status, detail)
    else:
        body = problem_body(status, code, detail, errors, g.get("request_id", ""), quota)
        response = Response(orjson.dumps(body), status, mimetype=PROBLEM_MEDIA_TYPE)
    if page is not None:
        response.vary.add("Accept")
    return response


def _prefers_html() -> bool:
    """Return whether the client prefers HTML to JSON, as browsers do."""
    kinds = (PROBLEM_MEDIA_TYPE, "application/json", "text/html")
    return request.accept_mimetypes.best_match(kinds) == "text/html"


def add_retry_after(response: Response, code: str, seconds: int | None) -> Response:
    """Add a Retry-After header if a repeated request may succeed."""
    wait_s = compute_retry_after_s(response.status_code, code, seconds, request.method)
    if wait_s is not None:
        response.headers["Retry-After"] = str(wait_s)
    return response


def compute_retry_after_s(status: int, code: str, seconds: int | None, method: str) -> int | None:
    """Return the seconds until a repeated request may succeed; None if it cannot."""
    pending = status != 409 or code == "file_pending"
    repeatable = status != 500 or method in IDEMPOTENT
    if status not in RETRY_AFTER_S or not pending or not repeatable:
        return None
    return seconds or RETRY_AFTER_S[status]
