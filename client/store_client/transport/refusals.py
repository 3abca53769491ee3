"""An answer that is an error, as one of ours: one line that says what happened, and what to do.

Bodies come as problem documents, as OAuth's errors, as XML of object storage, or as pages of some
proxy between.
"""

import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from store_client.errors import Conflict, NotAllowed, NotFound, Refused, StoreError, Unreachable
from store_client.transport.headers import retry_after
from store_client.transport.origins import shown

if TYPE_CHECKING:
    import httpx

LONGEST = 500
"""Characters of a server's text that are shown."""

KINDS: Mapping[int, type[Refused]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: NotFound,
}

HINTS = {
    400: "see `store COMMAND --help` for what is taken",
    401: "log in: store login",
    403: "ask the people who run the store for the right; `store whoami` says who you are",
    404: "check the name or uuid; what is new may not be in each replica yet",
    405: "the store may have changed: store clear-cache",
    407: "a proxy between wants a password: see HTTPS_PROXY",
    408: "try again",
    413: "send less at once",
    416: "the content is shorter than that",
    429: "ask less often, or later",
    431: "some argument is too long",
}

CODES = {
    "file_pending": "it is being verified; try again soon",
    "file_already_exists": "other content has that version: take another, `store create-version`",
    "bundle_already_exists": "other content has that version: take another, `store create-version`",
    "collection_already_exists": "that version is taken: take another, `store create-version`",
    "bundle_tombstone_already_exists": "it was deleted, and can not be written again",
    "collection_tombstone_already_exists": "it was deleted, and can not be written again",
    "area_locked": "its owner can unlock it",
    "read_only": "the store is closed for writing at present; try again later",
    "illegal_version": "make one: store create-version",
    "checksum_mismatch": "the source changed or was harmed on its way: upload it again",
}


def refusal(answer: "httpx.Response") -> StoreError:
    """The error that an answer with a status of 400 and more means; its body was read."""
    status, problem = answer.status_code, _problem(answer)
    message = _message(status, problem, answer)
    hint = _hint(status, problem, answer)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unreachable(message, hint=hint)
    kind = KINDS.get(status, Refused)
    return kind(message, hint=hint, status=status, problem=problem)


def _problem(answer: "httpx.Response") -> dict[str, Any]:
    """The document of a problem, or what is made of something else; {} when nothing is known."""
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError):
        return _of_xml(answer)
    if not isinstance(found, dict):
        return {}
    if isinstance(found.get("error"), str) and "title" not in found:
        said = {"title": found["error"], "detail": found.get("error_description", "")}
        return {**found, **said, "code": found["error"]}
    return found


def _of_xml(answer: "httpx.Response") -> dict[str, Any]:
    """Object storage says so."""
    code = re.search(r"<Code>([^<]{1,100})</Code>", answer.text)
    detail = re.search(r"<Message>([^<]{1,500})</Message>", answer.text)
    if "xml" not in answer.headers.get("Content-Type", "") or not code:
        return {}
    return {"title": code[1], "detail": detail[1] if detail else "", "code": code[1]}


def _message(status: int, problem: Mapping[str, Any], answer: "httpx.Response") -> str:
    title, detail = problem.get("title"), problem.get("detail")
    if not title and not detail:
        return _bare(status, answer)
    said = ": ".join(str(part).rstrip(".") for part in (title, detail) if part)
    return _line(f"{said}{_fields(problem.get('errors'))}")


def _bare(status: int, answer: "httpx.Response") -> str:
    """There is nothing in the body that is meant for a person."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    page = ", with a page that no store makes" if kind == "text/html" else ""
    return f"{status} {phrase(status)} from {shown(str(answer.url))}{page}"


def _fields(errors: object) -> str:
    """Which arguments are meant, and what is wrong with each."""
    if not isinstance(errors, dict) or not errors:
        return ""
    parts = [f"{name}: {_texts(said)}" for name, said in errors.items()]
    return f" ({'; '.join(parts)})"


def _texts(said: object) -> str:
    if isinstance(said, list):
        return " ".join(str(one) for one in said)
    return str(said)


def _hint(status: int, problem: Mapping[str, Any], answer: "httpx.Response") -> str:
    hint = CODES.get(str(problem.get("code", ""))) or HINTS.get(status, "")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        hint = hint or "try again later; if it stays, tell the people who run the store"
        if request_id := answer.headers.get("X-Request-Id"):
            hint = f"{hint} (request {_line(request_id)})"
    wait = retry_after(answer.headers)
    return hint if wait is None else f"{hint}; not before {math.ceil(wait)} s from now".lstrip("; ")


def _line(text: str) -> str:
    """One line without anything that moves the cursor."""
    flat = " ".join(text.split())
    clean = "".join(letter for letter in flat if letter.isprintable())
    return clean if len(clean) <= LONGEST else f"{clean[:LONGEST]}…"


def phrase(status: int) -> str:
    """The name of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
