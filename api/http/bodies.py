"""Read request bodies: bounded JSON, and streams in blocks."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, Any

from flask import Request
from werkzeug.exceptions import HTTPException, RequestTimeout

from storage import json_codec
from storage.errors import Invalid, TooLarge, UnsupportedMediaType
from storage.json_codec import MB, check_parsed_size, estimate_roughly
from storage.protocols import BLOCK

MAX_REPORTED = 20
"""Maximum number of repeated members in an error."""
TOO_SLOW = "The body arrived too slowly."
PARSED_BYTES, PARSED_TIMES = 64 * MB, 10
"""Memory that a parsed body may take: the larger of these bytes and this multiple of its length. A
manifest takes up to nine times its length, a malicious body of small values forty times."""
TYPED_TIMES = 9
"""The same for a body that is decoded in one typed pass, including what is built from it."""
MAX_POINTER_CHARS = 1_000
"""Maximum length of a JSON pointer in an error."""
_JSON = frozenset({"application/json", "text/json"})
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})


def read_json(
    request: Request,
    *,
    max_bytes: int,
    max_depth: int,
    once: bool = False,
    decode: Callable[[bytes], Any] | None = None,
    reserve: Callable[[int], None] = lambda _size: None,
) -> Any:
    """Return the JSON value of the body, with exact integers; an empty body is an empty object.

    `once` refuses repeated members. `decode` is tried first. `reserve` is called with the bytes of
    memory that the value may take, before it is parsed.
    """
    request.max_content_length = max_bytes
    _check_type(request)
    with translate_body_errors():
        text = request.get_data(cache=True)
    if request.content_length is None and len(text) >= max_bytes:
        # Without Content-Length, Werkzeug silently cuts the body off at the limit.
        raise TooLarge(f"The body has more than {max_bytes} bytes")
    if not text:
        return {}
    if decode is not None:
        # Types bound depth and memory, so no estimate or depth check is needed.
        reserve(TYPED_TIMES * len(text))
        if (typed := decode(text)) is not None:
            return typed
    value = _parse(text, reserve)
    _check_depth(value, max_depth)
    if once:
        _check_unique_members(text)
    return value


def _parse(text: bytes, reserve: Callable[[int], None]) -> Any:
    size = estimate_roughly(text)
    check_parsed_size(size, max(PARSED_BYTES, PARSED_TIMES * len(text)))
    reserve(size)
    try:
        return json_codec.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed_body(f"Malformed JSON: {_format_position(error)}") from error
    except ValueError as error:
        raise _malformed_body(f"Malformed JSON: {str(error)[:200]}") from error


def read_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a body as they arrive."""
    while True:
        with translate_body_errors():
            block = stream.read(BLOCK)
        if not block:
            return
        yield block


@contextmanager
def translate_body_errors() -> Iterator[None]:
    """Report a slow or badly framed body as the client's error, whatever the server raises."""
    try:
        yield
    except TimeoutError as error:
        raise RequestTimeout(TOO_SLOW) from error
    except HTTPException as error:
        if isinstance(error.__context__, TimeoutError):
            raise RequestTimeout(TOO_SLOW) from error
        raise
    except Exception as error:
        message = "The body is incomplete, or does not match Content-Length or chunked framing."
        raise Invalid(message, errors={"": [message]}) from error


def _check_type(request: Request) -> None:
    """Refuse other types than JSON; a body without a type is read as JSON."""
    media_type = request.mimetype
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if media_type and media_type not in _JSON and not media_type.endswith("+json"):
        raise UnsupportedMediaType(
            f"Content-Type: must be application/json (got {media_type[:100]})"
        )
    if charset not in _CHARSETS:
        raise UnsupportedMediaType(f"Content-Type: charset must be utf-8 (got {charset[:100]})")


def _format_position(error: json.JSONDecodeError) -> str:
    return f"{error.msg} at line {error.lineno}, column {error.colno}"


def _malformed_body(detail: str) -> Invalid:
    return Invalid(detail, errors={"": [detail]})


def _check_depth(value: Any, max_depth: int) -> None:
    """Refuse deep nesting; goes level by level, so that depth costs no stack."""
    objects, lists = _select_containers([[value]])
    depth = 0
    while objects or lists:
        depth += 1
        if depth > max_depth:
            raise _malformed_body(f"The body is nested deeper than {max_depth} levels")
        objects, lists = _select_containers([*map(dict.values, objects), *lists])


def _select_containers(
    holders: list[Iterable[Any]],
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Return the objects and the lists among the values of some containers."""
    values = chain.from_iterable
    # Most levels have no containers, which this check finds out fastest.
    types = {*map(type, values(holders))}
    objects = [value for value in values(holders) if type(value) is dict] if dict in types else []
    lists = [value for value in values(holders) if type(value) is list] if list in types else []
    return objects, lists


REPEATED_MEMBER = "Must not be given more than once."


class _RepeatedMember:
    """Marks a member that an object has several times."""


_MemberPath = tuple[Any, str | int]
"""The path of a value: its parent's path or None, and its name. It is formatted only for an error,
because thousands of values may lie below one long name."""


def _check_unique_members(text: bytes) -> None:
    """Refuse repeated members, of which the normal parser silently takes the last."""
    value = json.loads(text, object_pairs_hook=_mark_repeated, parse_int=str, parse_float=str)
    _refuse_repeated(list(_iterate_members(None, value)))


def _mark_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        members |= {name: _RepeatedMember() for name, count in counts.items() if count > 1}
    return members


def _refuse_repeated(level: list[tuple[_MemberPath, Any]]) -> None:
    """Raise Invalid with the pointers of repeated members, if there are any."""
    errors: dict[str, list[str]] = {}
    while level:
        paths = (path for path, value in level if isinstance(value, _RepeatedMember))
        errors |= {_format_pointer(path): [REPEATED_MEMBER] for path in islice(paths, MAX_REPORTED)}
        level = [member for path, value in level for member in _iterate_members(path, value)]
    if errors:
        first = next(iter(errors))
        reported = dict(list(errors.items())[:MAX_REPORTED])
        raise Invalid(f"Bad body member '{first[:200]}': {REPEATED_MEMBER}", errors=reported)


def _iterate_members(path: _MemberPath | None, value: Any) -> Iterable[tuple[_MemberPath, Any]]:
    if isinstance(value, dict):
        return (((path, name), member) for name, member in value.items())
    if isinstance(value, list):
        return (((path, index), item) for index, item in enumerate(value))
    return ()


def _format_pointer(path: _MemberPath) -> str:
    """Return a JSON Pointer, cut off at MAX_POINTER_CHARS."""
    steps: list[str] = []
    rest: _MemberPath | None = path
    while rest is not None:
        rest, name = rest
        steps.append(json_codec.pointer_step(name))
    return "".join(reversed(steps))[:MAX_POINTER_CHARS]
