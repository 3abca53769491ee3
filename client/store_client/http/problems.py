"""Turn error responses into exceptions: one line with the reason, and a hint.

Error bodies are problem documents, OAuth errors, XML of an object storage, or pages of a proxy.
"""

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from store_client.atomic_files import parse_json_object
from store_client.errors import Conflict, NotAllowed, NotFound, Refused, StoreError, Unreachable
from store_client.http.urls import next_link, retry_after, strip_query

if TYPE_CHECKING:
    import httpx

MAX_TEXT = 500
"""Longest text of a server that is shown."""
_INLINE = 3
"""Fields that the message itself names; more become lines of their own."""

ERROR_TYPES: Mapping[int, type[Refused]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: NotFound,
}

HINTS_BY_STATUS = {
    400: "see `store COMMAND --help`",
    401: "log in: store login",
    403: "ask the operators of the store for permission; `store whoami` shows the current user",
    404: "check the name or uuid; new objects may not be in each replica yet",
    405: "the store may have changed: store clear-cache",
    407: "a proxy requires a password: see HTTPS_PROXY",
    408: "try again",
    413: "send less at once",
    416: "the content is shorter than the requested range",
    429: "make fewer requests, or try later",
    431: "an argument is too long",
}

HINTS_BY_CODE = {
    "file_pending": "the file is being verified; try again soon",
    "file_already_exists": "that version has other content; create one: store create-version",
    "bundle_already_exists": "that version has other content; create one: store create-version",
    "collection_already_exists": "that version exists; create one: store create-version",
    "bundle_tombstone_already_exists": "it was deleted and cannot be created again",
    "collection_tombstone_already_exists": "it was deleted and cannot be created again",
    "quota_exceeded": "delete what is not needed, or ask the operators of the store for more",
    "area_locked": "its owner can unlock it",
    "read_only": "the store is read-only at present; try again later",
    "read_only_mirror": "this store is a copy of another one; write to that one",
    "illegal_version": "create one: store create-version",
    "metadata_invalid": "correct the metadata; `store validate` shows what is wrong",
    "checksum_mismatch": "the source changed or was damaged in transit: upload it again",
}


def error_from_response(answer: "httpx.Response") -> StoreError:
    """The error for a response with a status of 400 or more."""
    status, problem = answer.status_code, _parse_problem(answer)
    details = _list_errors(problem)
    listed = "; ".join(details) if len(details) <= _INLINE else ""
    message = _error_message(status, problem, answer, listed)
    hint = _error_hint(status, problem, answer)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unreachable(message, hint=hint)
    kind = ERROR_TYPES.get(status, Refused)
    following = next_link(answer.headers) or ""
    return kind(
        message,
        hint=hint,
        details=() if listed else details,
        status=status,
        problem=problem,
        next_url=following,
    )


def _parse_problem(answer: "httpx.Response") -> dict[str, Any]:
    """Parse a problem document, or another error body; {} if unknown."""
    found = parse_json_object(answer.content)
    if found is None:
        return _parse_xml_error(answer)
    if isinstance(found.get("error"), str) and "title" not in found:
        said = {"title": found["error"], "detail": found.get("error_description", "")}
        return {**found, **said, "code": found["error"]}
    return found


def _parse_xml_error(answer: "httpx.Response") -> dict[str, Any]:
    code = re.search(r"<Code>([^<]{1,100})</Code>", answer.text)
    detail = re.search(r"<Message>([^<]{1,500})</Message>", answer.text)
    if "xml" not in answer.headers.get("Content-Type", "") or not code:
        return {}
    return {"title": code[1], "detail": detail[1] if detail else "", "code": code[1]}


def _list_errors(problem: Mapping[str, Any]) -> list[str]:
    """One line for each field, or file and JSON pointer, that a problem names."""
    errors = problem.get("errors")
    return [
        _single_line(f"{name}: {' '.join(map(str, why)) if isinstance(why, list) else why}")
        for name, why in (errors.items() if isinstance(errors, dict) else ())
    ]


def _error_message(
    status: int, problem: Mapping[str, Any], answer: "httpx.Response", listed: str
) -> str:
    title, detail = problem.get("title"), problem.get("detail")
    if not title and not detail:
        html = answer.headers.get("Content-Type", "").startswith("text/html")
        page = ", with an HTML page, which is not from a store" if html else ""
        return f"{status} {status_phrase(status)} from {strip_query(str(answer.url))}{page}"
    said = ": ".join(str(part).rstrip(".") for part in (title, detail) if part)
    return _single_line(f"{said} ({listed})" if listed else said)


def _error_hint(status: int, problem: Mapping[str, Any], answer: "httpx.Response") -> str:
    hint = HINTS_BY_CODE.get(str(problem.get("code", ""))) or HINTS_BY_STATUS.get(status, "")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        hint = hint or "try again later; if it persists, tell the operators of the store"
        if request_id := answer.headers.get("X-Request-Id"):
            hint = f"{hint} (request {_single_line(request_id)})"
    wait = retry_after(answer.headers)
    return hint if wait is None else f"{hint}; not before {math.ceil(wait)} s from now".lstrip("; ")


def _single_line(text: str) -> str:
    """One line without control characters."""
    flat = " ".join(text.split())
    clean = "".join(letter for letter in flat if letter.isprintable())
    return clean if len(clean) <= MAX_TEXT else f"{clean[:MAX_TEXT]}…"


def status_phrase(status: int) -> str:
    """The name of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
