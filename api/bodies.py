"""Reading request bodies: JSON within the bounds of the settings, and nothing else.

What the members mean is for `api/schemas` to say.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, Any

from flask import Request
from werkzeug.exceptions import HTTPException, RequestTimeout

from storage import json_codec, pointers
from storage.errors import Invalid, TooLarge, UnsupportedMediaType
from storage.json_size import MB, check_size, rough_size
from storage.protocols import BLOCK

REPORTED = 20
"""Faults of one kind that an answer names."""
SLOW = "The body came too slowly."
PARSED_BYTES, PARSED_TIMES = 64 * MB, 10
"""Memory that a body may take once it is parsed: so many bytes, or so many times its own length. A
manifest takes up to nine times, small values that are made to cost forty times."""
TYPED_TIMES = 9
"""The same of a body that is decoded in one typed pass, with all that is made of it."""
SHOWN = 1_000
"""Characters of a pointer that an answer names."""
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
    """The JSON value of the body, an empty object when there is none. Integers are exact whatever
    their size. With `once` Invalid names members that are given more than once. `decode` is tried
    first. `reserve` is called with the memory that the value may take before it is made."""
    request.max_content_length = max_bytes
    _check_type(request)
    with arriving():
        text = request.get_data(cache=True)
    if request.content_length is None and len(text) >= max_bytes:
        # A body of unannounced length is cut off at the limit, silently.
        raise TooLarge(f"The body has more than {max_bytes} bytes")
    if not text:
        return {}
    if decode is not None:
        # Types bound depth and memory: nothing need be estimated first, nor looked at afterwards.
        reserve(TYPED_TIMES * len(text))
        if (typed := decode(text)) is not None:
            return typed
    value = _parse(text, reserve)
    _check_depth(value, max_depth)
    if once:
        _check_once(text)
    return value


def _parse(text: bytes, reserve: Callable[[int], None]) -> Any:
    size = rough_size(text)
    check_size(size, max(PARSED_BYTES, PARSED_TIMES * len(text)))
    reserve(size)
    try:
        return json_codec.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed(f"Malformed JSON: {_place(error)}") from error
    except ValueError as error:
        raise _malformed(f"Malformed JSON: {str(error)[:200]}") from error


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """A body in blocks, as it arrives."""
    while block := _next(stream):
        yield block


def _next(stream: IO[bytes]) -> bytes:
    with arriving():
        return stream.read(BLOCK)


@contextmanager
def arriving() -> Iterator[None]:
    """A body that is too slow or breaks its own framing is the client's fault, whatever the server
    raises then."""
    try:
        yield
    except TimeoutError as error:
        raise RequestTimeout(SLOW) from error
    except HTTPException as error:
        if isinstance(error.__context__, TimeoutError):
            raise RequestTimeout(SLOW) from error
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
    objects, lists = _containers([[value]])
    depth = 0
    while objects or lists:
        depth += 1
        if depth > max_depth:
            raise _malformed(f"The body is nested deeper than {max_depth} levels")
        objects, lists = _containers([*map(dict.values, objects), *lists])


def _containers(holders: list[Iterable[Any]]) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """The objects and the lists among the values of some holders; most levels have none."""
    kinds = {*map(type, chain.from_iterable(holders))}
    objects = (
        [one for one in chain.from_iterable(holders) if type(one) is dict] if dict in kinds else []
    )
    lists = (
        [one for one in chain.from_iterable(holders) if type(one) is list] if list in kinds else []
    )
    return objects, lists


REPEATED = "It is given more than once."


class _Repeated:
    """Where an object has several values for one name."""


_Where = tuple[Any, str | int]
"""The place of a value: that of what holds it, or None, and its name there. Spelled only when it is
told: thousands of values may lie below one long name."""


def _check_once(text: bytes) -> None:
    """By a reader that sees them: the other one takes the last, which may not be meant."""
    value = json.loads(text, object_pairs_hook=_marked, parse_int=str, parse_float=str)
    _refuse_repeated(list(_members(None, value)))


def _marked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        found |= {name: _Repeated() for name, times in counted.items() if times > 1}
    return found


def _refuse_repeated(level: list[tuple[_Where, Any]]) -> None:
    """Invalid, with the places of repeated members, if there are any."""
    errors: dict[str, list[str]] = {}
    while level:
        wrong = (where for where, item in level if isinstance(item, _Repeated))
        errors |= {_pointer(where): [REPEATED] for where in islice(wrong, REPORTED)}
        level = [inner for where, holder in level for inner in _members(where, holder)]
    if errors:
        where = next(iter(errors))
        shown = dict(list(errors.items())[:REPORTED])
        raise Invalid(f"Bad body member '{where[:200]}': {REPEATED}", errors=shown)


def _members(where: _Where | None, holder: Any) -> Iterable[tuple[_Where, Any]]:
    if isinstance(holder, dict):
        return (((where, name), item) for name, item in holder.items())
    if isinstance(holder, list):
        return (((where, place), item) for place, item in enumerate(holder))
    return ()


def _pointer(where: _Where) -> str:
    """A JSON Pointer, cut off where it is longer than anybody reads."""
    steps: list[str] = []
    step: _Where | None = where
    while step is not None:
        step, name = step
        steps.append(pointers.step(name))
    return "".join(reversed(steps))[:SHOWN]
