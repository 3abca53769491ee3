"""JSON text to values and back, exact for integers of any size.

orjson is fast, but reads an integer beyond 64 bits as a float and refuses to write one. Texts and
values with such integers take the slower way through the standard library; all others do not.
"""

import json
import re
from typing import Any, NoReturn

import orjson

MAX_DIGITS = 4300
"""Digits of an integer that Python reads and writes: it refuses more, since that is quadratic."""

_LONG = re.compile(rb"[0-9]{19}")
"""An integer without such a run of digits fits into 64 bits."""
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")


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
    return _decode_exactly(text) if _LONG.search(text) else orjson.loads(text)


def _decode_exactly(text: bytes) -> Any:
    content = text.decode()
    try:
        value = json.loads(content, parse_float=finite_float, parse_constant=refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except ValueError as error:
        if type(error) is ValueError and "digits" in str(error):
            raise ValueError(f"an integer has more than {MAX_DIGITS} digits") from error
        raise
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def finite_float(text: str) -> float:
    """The double of a JSON number. Raises ValueError where it overflows."""
    number = float(text)
    if number - number != 0:
        raise ValueError(f"the number {text[:40]} is beyond what a double can hold")
    return number


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities, which Python's reader would accept."""
    raise ValueError(f"{name} is not a JSON number")
