"""The body of every error answer, RFC 9457; the store and the authorization service share it.

Statuses of domain errors and Flask's handlers do not live here.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

MEDIA_TYPE = "application/problem+json"


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
