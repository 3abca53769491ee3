"""Encode and decode JSON exactly, estimate its parsed size, and build JSON pointers.

orjson is fast, but reads an integer beyond 64 bits as a float and refuses to write one. Only texts
and values with such integers use the slower standard library.

Small values amplify: 20 MB of `{"":1}` become 600 MB of Python objects. The estimate counts the
characters that make values; it is an upper bound, within a factor of about three. Since limits per
text do not bound a process that parses many at once, a thread reserves the memory of a value before
it parses the text, and waits while others hold too much.
"""

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

import orjson

from config import process
from storage.errors import TooLarge, Unavailable

MAX_DIGITS = 4300
"""Digits of an integer that Python reads and writes: it refuses more, since that is quadratic."""

_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGER = b"0" * 19
"""An integer without such a run of digits fits into 64 bits."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NestedTooDeep(ValueError):
    """A text is nested deeper than the standard library reads or writes."""


MakeObject = Callable[[list[tuple[str, Any]]], Any]


def encode(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode as compact UTF-8. Raises ValueError for what JSON cannot express."""
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
    is_long = _LONG_INTEGER in text.translate(_DIGITS_AS_ZEROS)
    return decode_exactly(text.decode()) if is_long else orjson.loads(text)


def decode_exactly(text: str, *, members: MakeObject | None = None) -> Any:
    """Decode with the standard library; `members` makes objects from names and values."""
    try:
        value = json.loads(
            text,
            parse_float=_parse_finite_float,
            parse_constant=_reject_constant,
            object_pairs_hook=members,
        )
        if _SURROGATE.search(text):
            _check_surrogates(value)
    except RecursionError as error:
        raise NestedTooDeep("nested too deep") from error
    except ValueError as error:
        if type(error) is ValueError and "integer string" in str(error):
            raise ValueError(f"an integer has more than {MAX_DIGITS} digits") from error
        raise
    return value


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"the number {text[:40]} is beyond what a double can hold")
    return number


def _reject_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities, which Python's parser accepts."""
    raise ValueError(f"{name} is not a JSON number")


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("half of a surrogate pair stands alone") from error


MB = 1024 * 1024
MAX_PARSED_BYTES = 256 * MB
"""Of one metadata file, and of all metadata files of a document."""
MAX_PARSED_FACTOR = 50
"""Times its length that a text may take once it is parsed, at the most: of `[{},{},…]`."""
PRECISE_FROM_BYTES = 32 * MB
"""From here on the estimate leaves texts out, which takes longer."""

_SIGN_COSTS = ((b"{", 130), (b"[", 80), (b":", 65), (b'"', 25), (b",", 12))
"""Bytes of an object, a list, a member, half a text and a place in a list, measured on CPython."""
_NUMBER_COST, _DIGIT_COST = 33, 7
"""Bytes of a number: no more than the first for each value, nor than the second for each digit."""
_JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_JSON_STRINGS = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"){1,4096}', re.DOTALL)
"""So many texts and what is between them: leaving out all at once would take much memory itself."""
_NONZERO_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


def estimate_parsed_size(text: bytes) -> int:
    """Estimate the memory of a text's value in bytes; the text need not be JSON."""
    size = estimate_roughly(text)
    if size <= PRECISE_FROM_BYTES:
        return size
    size = position = 0
    while found := _JSON_STRINGS.match(text, position):
        bare = _JSON_STRING.sub(b'""', found[0])
        size += len(found[0]) - len(bare) + estimate_roughly(bare)
        position = found.end()
    return size + estimate_roughly(text[position:])


def estimate_roughly(text: bytes) -> int:
    """Estimate in a hundredth of the time; separators within strings count as values."""
    # Twice as fast as leaving the digits out.
    digits = text.translate(_NONZERO_AS_ZEROS).count(b"0")
    numbers = min(_NUMBER_COST * (text.count(b",") + 1), _DIGIT_COST * digits)
    return len(text) + numbers + sum(text.count(sign) * cost for sign, cost in _SIGN_COSTS)


def check_parsed_size(size: int, most: int) -> None:
    """Raise TooLarge for a value of more than `most` bytes of memory."""
    if size > most:
        raise TooLarge(
            f"Too many small values: they would take {size // MB} MB of memory"
            f" (at most {most // MB} MB)"
        )


BUDGET_BYTES = 640 * MB
SMALL_BYTES = 4 * MB
"""Reservations up to this size are free and never wait."""
RELEASE_FROM_BYTES = 32 * MB
"""After a reservation of this size the process returns free memory to the system."""
RESERVE_TIMEOUT_S = 5.0
"""Short, since a waiting worker thread could run another job."""
RETRY_AFTER_S = 5


class MemoryBudget:
    """A weighted semaphore over bytes: first come, first served."""

    def __init__(
        self,
        total: int = BUDGET_BYTES,
        *,
        timeout_s: float = RESERVE_TIMEOUT_S,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`waiting` is entered around a wait, for example to let another request run."""
        self._total, self._timeout_s, self._waiting = total, timeout_s, waiting
        self._used = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Hold `size` bytes during the block; Unavailable if others hold too much for too long.

        A value larger than the budget waits until it is alone. A thread must not nest reservations:
        two such threads would block each other until one times out.
        """
        if size <= SMALL_BYTES:
            yield
            return
        weight = min(size, self._total)
        self._acquire(weight)
        try:
            yield
        finally:
            self._release(weight)

    def _acquire(self, weight: int) -> None:
        ticket = object()
        with self._changed:
            if not self._queue and self._used + weight <= self._total:
                self._used += weight
                return
            self._queue.append(ticket)
        with self._waiting():
            if not self._wait_for_turn(ticket, weight):
                message = "Too many large JSON documents are being read: try again later."
                raise Unavailable(message, retry_after_s=RETRY_AFTER_S)

    def _wait_for_turn(self, ticket: object, weight: int) -> bool:
        """Wait for this ticket's turn; return whether it came in time."""
        with self._changed:
            is_granted = self._changed.wait_for(
                lambda: self._queue[0] is ticket and self._used + weight <= self._total,
                self._timeout_s,
            )
            self._queue.remove(ticket)
            self._used += weight if is_granted else 0
            self._changed.notify_all()
        return is_granted

    def _release(self, weight: int) -> None:
        if weight >= RELEASE_FROM_BYTES:
            process.release_memory()
        with self._changed:
            self._used -= weight
            self._changed.notify_all()


MAX_STEP_LENGTH = 200
"""Characters of one name."""


def pointer_step(name: object) -> str:
    """Return one step of a JSON pointer: a slash and the name, truncated if long."""
    text = str(name)
    shown = text if len(text) <= MAX_STEP_LENGTH else f"{text[:MAX_STEP_LENGTH]}…"
    return "/" + shown.replace("~", "~0").replace("/", "~1")
