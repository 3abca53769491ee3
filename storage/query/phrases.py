"""Whether the words of a phrase stand close enough to each other, by their positions."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from storage.errors import TimedOut

MAX_STEPS = 1_000_000
"""Words that are looked up in one text: thousands of one word, in a text that has thousands of it
but never enough in a row, would take hours."""


class Pays(Protocol):
    """Whatever steps are taken off from; it raises when there are not enough."""

    def pay(self, steps: int, /) -> None: ...


class Allowance:
    """Steps that are left; TimedOut when there are not enough."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def pay(self, steps: int, /) -> None:
        """Take steps off."""
        self._left -= steps
        if self._left < 0:
            raise TimedOut("The query takes more steps on one document than allowed.")


def in_phrase(
    words: Sequence[str],
    slop: int,
    positions: Mapping[str, Sequence[int]],
    pay: Callable[[int], None] | None = None,
) -> bool:
    """Whether each word has a place of its own such that all are within `slop` of the phrase.

    TimedOut when that takes more steps than can be paid for.
    """
    pay = pay or Allowance(MAX_STEPS).pay
    if not words or not all(positions.get(word, ()) for word in words):
        return False
    start: int | None = -len(words)
    while start is not None:
        met, start = _fitting(words, slop, positions, start)
        if met == len(words):
            return True
        pay(met + 1)
    return False


def _fitting(
    words: Sequence[str], slop: int, positions: Mapping[str, Sequence[int]], start: int
) -> tuple[int, int | None]:
    """How many words, in order, find a place within `start .. start + slop` of their offset, each
    at the first that no equal word took; and the least start at which more may, if any does.

    A word's place only moves on as the start does, so no start before that is worth a try.
    """
    free: dict[str, int] = {}
    for offset, word in enumerate(words):
        places = positions[word]
        at = bisect_left(places, start + offset, free.get(word, 0))
        if at == len(places):
            return offset, None
        shift = places[at] - offset
        if shift > start + slop:
            return offset, shift - slop
        free[word] = at + 1
    return len(words), None
