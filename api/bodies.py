"""Reading request bodies: JSON within the bounds of the settings, and nothing else.

What the members mean is for `api/schemas` to say.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import orjson
from flask import Request
from werkzeug.exceptions import HTTPException

from storage.errors import Invalid, TooLarge, UnsupportedMediaType
from storage.protocols import BLOCK

_JSON = frozenset({"application/json", "text/json"})
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})


def read_json(request: Request, *, max_bytes: int, max_depth: int) -> Any:
    """The JSON value of the body, an empty object when there is none."""
    request.max_content_length = max_bytes
    _check_type(request)
    with _arriving():
        text = request.get_data(cache=True)
    if request.content_length is None and len(text) >= max_bytes:
        # A body of unannounced length is cut off at the limit, silently.
        raise TooLarge(f"The body has more than {max_bytes} bytes")
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _malformed(f"Malformed JSON: {_place(error)}") from error
    _check_depth(value, max_depth)
    return value


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """A body in blocks, as it arrives."""
    while block := _next(stream):
        yield block


def _next(stream: IO[bytes]) -> bytes:
    with _arriving():
        return stream.read(BLOCK)


@contextmanager
def _arriving() -> Iterator[None]:
    """A body that breaks its own framing is the client's fault, whatever the server raises then."""
    try:
        yield
    except HTTPException:
        raise
    except Exception as error:
        wrong = "The body broke off or is not framed as announced."
        raise Invalid(wrong, errors={"": [wrong]}) from error


def _check_type(request: Request) -> None:
    """A body that says nothing of its type is read as JSON."""
    given = request.mimetype
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if given and given not in _JSON and not given.endswith("+json"):
        raise UnsupportedMediaType(f"The body must be application/json, not {given[:100]}")
    if charset not in _CHARSETS:
        raise UnsupportedMediaType("JSON is sent in UTF-8")


def _place(error: json.JSONDecodeError) -> str:
    return f"{error.msg} at line {error.lineno}, column {error.colno}"


def _malformed(detail: str) -> Invalid:
    return Invalid(detail, errors={"": [detail]})


def _check_depth(value: Any, max_depth: int) -> None:
    """Level by level, so that only containers are visited and depth costs no stack."""
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > max_depth:
            raise _malformed(f"The body is nested deeper than {max_depth} levels")
        level = [
            item
            for holder in level
            for item in (holder.values() if type(holder) is dict else holder)
            if type(item) is dict or type(item) is list
        ]
