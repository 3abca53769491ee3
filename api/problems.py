"""Problems: the bodies of errors (RFC 9457), and the request id by which an operator finds each.

Statuses of domain errors and the handlers of errors live in `api/errors.py`.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, request

MEDIA_TYPE = "application/problem+json"
REQUEST_ID_HEADER = "X-Request-Id"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def problem(
    status: int,
    code: str,
    detail: str,
    errors: Mapping[str, Sequence[str]] | None = None,
    request_id: str = "",
) -> dict[str, Any]:
    """`type title status code detail request_id`, and `errors` when there are any."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": _title(status),
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
    }
    if errors:
        body["errors"] = {where: list(messages) for where, messages in errors.items()}
    return body


def _title(status: int) -> str:
    """The status's own phrase, as RFC 9457 wants it beside `about:blank`."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def new_request_id() -> str:
    """A request id that nobody else has."""
    return uuid.uuid4().hex


def number_requests(app: Flask, request_ids: Callable[[], str] = new_request_id) -> None:
    """Give every request of this application an id, and every answer the same one."""

    @app.before_request
    def number() -> None:
        g.request_id = _acceptable(request.headers.get(REQUEST_ID_HEADER)) or request_ids()

    @app.after_request
    def sign(response: Response) -> Response:
        response.headers[REQUEST_ID_HEADER] = g.get("request_id", "")
        return response


def _acceptable(given: str | None) -> str | None:
    """The caller's own id, when it is safe to put into a log line and a header."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else None
