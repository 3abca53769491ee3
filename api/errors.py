"""Errors as answers: the one table from domain errors to statuses, and Flask's handlers.

Every answer is a problem (RFC 9457) with the request's id; a stack trace goes to the log only.
"""

import logging
from collections.abc import Callable, Mapping

import orjson
from flask import Flask, Response, current_app, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from api.problems import MEDIA_TYPE, problem
from storage.errors import (
    AlreadyExists,
    Conflict,
    Damaged,
    Forbidden,
    Invalid,
    Lost,
    NotAcceptable,
    NotFound,
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    TimedOut,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    Unprocessable,
    UnsupportedMediaType,
)

log = logging.getLogger(__name__)

STATUS: Mapping[type[StoreError], int] = {
    Invalid: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    NotAcceptable: 406,
    Conflict: 409,
    AlreadyExists: 409,
    TooLarge: 413,
    UnsupportedMediaType: 415,
    RangeNotSatisfiable: 416,
    Unprocessable: 422,
    SourceChanged: 422,
    TooMany: 429,
    Lost: 500,
    Damaged: 500,
    StoreError: 500,
    Unavailable: 503,
    TimedOut: 504,
}

HTTP_CODES: Mapping[int, str] = {
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
}
"""Codes of what the framework itself refuses; any other is illegal_arguments."""

RETRY_AFTER_S: Mapping[int, int] = {409: 2, 429: 5, 500: 5, 503: 5, 504: 5}
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
UNEXPECTED = "The service failed; the request id finds the reason in its log."


ErrorPage = Callable[[int, str], Response]
"""Makes a page for a person, of a status and a sentence."""
PAGE = "store.error_page"


def register_errors(app: Flask, page: ErrorPage | None = None) -> None:
    """Answer every error of this application as a problem; browsers get a page, if there is one."""
    app.extensions[PAGE] = page
    app.register_error_handler(StoreError, _ours)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unexpected)


def status_of(error: StoreError) -> int:
    """The status of the error's class, or of the nearest class above it."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def _ours(error: StoreError) -> Response:
    status = status_of(error)
    if status >= 500:
        # Of a damaged object all is said by its name; others may have a cause that is ours.
        cause = None if isinstance(error, Damaged) else error
        log.warning("%s: %s", type(error).__name__, error.detail, exc_info=cause)
    response = answer(status, error.code, error.detail, error.errors)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return with_retry_after(response, error.code, error.retry_after_s)


def _http(error: HTTPException) -> Response:
    status = error.code or 500
    if status < 400:
        return Response(status=status, headers=error.get_headers(request.environ))
    code = HTTP_CODES.get(status, "internal_error" if status >= 500 else "illegal_arguments")
    response = answer(status, code, error.description or "")
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return with_retry_after(response, code, None)


def _unexpected(error: Exception) -> Response:
    log.error("unexpected error", exc_info=error)
    return with_retry_after(answer(500, "internal_error", UNEXPECTED), "internal_error", None)


def answer(
    status: int, code: str, detail: str, errors: Mapping[str, list[str]] | None = None
) -> Response:
    """A problem as a response, or as a page: for who asks for HTML, and where the operation
    documents a page."""
    page: ErrorPage | None = current_app.extensions.get(PAGE)
    if page is not None and (status in g.get("pages", ()) or _prefers_html()):
        response = page(status, detail)
    else:
        body = problem(status, code, detail, errors, request_id=g.get("request_id", ""))
        response = Response(orjson.dumps(body), status, mimetype=MEDIA_TYPE)
    if page is not None:
        response.vary.add("Accept")
    return response


def _prefers_html() -> bool:
    """Whether the client asks for HTML rather than JSON, as browsers do."""
    kinds = (MEDIA_TYPE, "application/json", "text/html")
    return request.accept_mimetypes.best_match(kinds) == "text/html"


def with_retry_after(response: Response, code: str, seconds: int | None) -> Response:
    """Say when to try again, where trying again makes sense."""
    wait_s = retry_after_s(response.status_code, code, seconds, request.method)
    if wait_s is not None:
        response.headers["Retry-After"] = str(wait_s)
    return response


def retry_after_s(status: int, code: str, seconds: int | None, method: str) -> int | None:
    """Seconds until a repeated request may succeed; None where repeating it is no use."""
    pending = status != 409 or code == "file_pending"
    repeatable = status != 500 or method in IDEMPOTENT
    if status not in RETRY_AFTER_S or not pending or not repeatable:
        return None
    return seconds or RETRY_AFTER_S[status]
