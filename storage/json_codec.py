"""JSON text to values and back, exact for integers of any size.

orjson is fast, but reads an integer beyond 64 bits as a float and refuses to write one. Texts and
values with such integers take the slower way through the standard library; all others do not.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

import orjson

MAX_DIGITS = 4300
"""Digits of an integer that Python reads and writes: it refuses more, since that is quadratic."""

_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
"""An integer without such a run of digits fits into 64 bits."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class TooDeep(ValueError):
    """A text is nested deeper than the standard library reads or writes."""


Members = Callable[[list[tuple[str, Any]]], Any]


def encode(value: Any, *, sort_keys: bool = False) -> bytes:
    """Compact UTF-8. Raises ValueError for what JSON cannot express."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    except TypeError:
        # An integer beyond 64 bits, or no JSON value at all.
        return _encode_exactly(value, sort_keys)


def _encode_exactly(value: Any, sort_keys: bool) -> bytes:
    try:
        return json.dumps(
            value,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            sort_keys=sort_keys,
        ).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def decode(text: bytes) -> Any:
    """The value of a UTF-8 text. Raises ValueError, a JSONDecodeError where a place is known.

    NaN, infinities, numbers that overflow a double, half surrogate pairs and integers of more than
    `MAX_DIGITS` digits are errors. Of a duplicate name the last value counts.
    """
    # A pattern of digits takes ten times as long on a manifest, which is full of them.
    is_long = _LONG in text.translate(_AS_ZEROS)
    return decode_exactly(text.decode()) if is_long else orjson.loads(text)


def decode_exactly(text: str, *, members: Members | None = None) -> Any:
    """The same by the standard library; `members` makes objects from their names and values."""
    try:
        value = json.loads(
            text,
            parse_float=_finite_float,
            parse_constant=_refuse_constant,
            object_pairs_hook=members,
        )
        if _SURROGATE.search(text):
            _check_surrogates(value)
    except RecursionError as error:
        raise TooDeep("nested too deep") from error
    except ValueError as error:
        if type(error) is ValueError and "integer string" in str(error):
            raise ValueError(f"an integer has more than {MAX_DIGITS} digits") from error
        raise
    return value


def _finite_float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"the number {text[:40]} is beyond what a double can hold")
    return number


def _refuse_constant(name: str) -> NoReturn:
    """NaN and infinities, which Python's reader would accept."""
    raise ValueError(f"{name} is not a JSON number")


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("half of a surrogate pair stands alone") from error
