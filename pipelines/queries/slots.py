"""Slots: what is asked of one term in one way, by the value that is asked for.

Of a thousand questions that differ only in that value, those that a document satisfies are found
without looking at the others.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from pipelines.queries.terms import HEAVY, Check, Sight

Asked = TypeVar("Asked", bound=Hashable)

MAX_TEXT = 4_096
"""Characters of a text in which parts are looked for, one after the other."""


class Slots(Generic[Asked]):
    """Questions by value; whether a value passes is tried on each distinct one."""

    def __init__(self, passes: Callable[[Sight, Any], bool]) -> None:
        self._by: dict[Hashable, dict[Asked, None]] = {}
        self._passes = passes

    def add(self, value: Hashable, asked: Asked) -> None:
        """File a question under a value."""
        if value not in self._by:
            self._by[value] = {}
            self._opened(value)
        self._by[value][asked] = None

    def remove(self, value: Hashable, asked: Asked) -> None:
        """Take it out again."""
        slot = self._by[value]
        del slot[asked]
        if not slot:
            del self._by[value]
            self._closed(value)

    def __len__(self) -> int:
        return len(self._by)

    def sharing(self, value: Hashable) -> int:
        """How many are filed under a value."""
        return len(self._by.get(value, ()))

    def all(self) -> Iterator[Mapping[Asked, None]]:
        """Every slot."""
        yield from self._by.values()

    def found(self, sight: Sight) -> Iterator[Mapping[Asked, None]]:
        """The slots whose values pass the check on what was seen."""
        for value in self._holding(sight):
            slot = self._by.get(value)
            if slot is not None:
                yield slot

    def _opened(self, value: Hashable) -> None: ...

    def _closed(self, value: Hashable) -> None: ...

    def _holding(self, sight: Sight) -> Iterable[Hashable]:
        return [value for value in self._by if self._passes(sight, value)]


class _Equal(Slots[Asked]):
    def _holding(self, sight: Sight) -> Iterable[Hashable]:
        return sight.slots


class _Ordered(Slots[Asked]):
    """Thresholds in order, numbers and texts apart."""

    def __init__(self, passes: Callable[[Sight, Any], bool], check: Check) -> None:
        super().__init__(passes)
        self._check = check
        self._numbers: list[Any] = []
        self._texts: list[Any] = []

    def _opened(self, value: Hashable) -> None:
        insort(self._of(value), value)

    def _closed(self, value: Hashable) -> None:
        values = self._of(value)
        del values[bisect_left(values, value)]

    def _of(self, value: Hashable) -> list[Any]:
        return self._texts if isinstance(value, str) else self._numbers

    def _holding(self, sight: Sight) -> Iterable[Hashable]:
        return self._passed(self._numbers, sight.numbers) + self._passed(self._texts, sight.texts)

    def _passed(self, thresholds: list[Any], values: list[Any]) -> list[Any]:
        if not thresholds or not values:
            return []
        match self._check:
            case Check.GT:
                return thresholds[: bisect_left(thresholds, max(values))]
            case Check.GE:
                return thresholds[: bisect_right(thresholds, max(values))]
            case Check.LT:
                return thresholds[bisect_right(thresholds, min(values)) :]
            case _:
                return thresholds[bisect_left(thresholds, min(values)) :]


class _AtAnEnd(Slots[Asked]):
    """Beginnings or ends of texts, looked up by each length that there is."""

    def __init__(
        self, passes: Callable[[Sight, Any], bool], cut: Callable[[str, int], str]
    ) -> None:
        super().__init__(passes)
        self._cut = cut
        self._lengths: Counter[int] = Counter()

    def _opened(self, value: Hashable) -> None:
        self._lengths[len(str(value))] += 1

    def _closed(self, value: Hashable) -> None:
        self._lengths[len(str(value))] -= 1
        self._lengths += Counter()

    def _holding(self, sight: Sight) -> Iterable[Hashable]:
        # What is heavy is asked anyhow: the sort of the value is a condition beside this one.
        texts = [] if HEAVY in sight.sorts else sight.texts
        return {
            self._cut(text, length)
            for text in texts
            for length in self._lengths
            if length <= len(text)
        }


class _Having(Slots[Asked]):
    """Elements of lists, found by value, and parts of texts, looked for one by one."""

    def _holding(self, sight: Sight) -> Iterable[Hashable]:
        if HEAVY in sight.sorts:
            return []
        found: set[Hashable] = set()
        for value in sight.values:
            if isinstance(value, list):
                found.update(one for one in value if not isinstance(one, list | dict))
        parts = [one for one in self._by if isinstance(one, str)]
        for text in sight.texts:
            short = len(text) <= MAX_TEXT
            found.update(part for part in parts if not short or part in text)
        return found


def slots(check: Check, passes: Callable[[Sight, Any], bool]) -> Slots[Any]:
    """An empty set of them, for a check and how it is tried on one value."""
    match check:
        case Check.EQUAL:
            return _Equal(passes)
        case Check.GT | Check.GE | Check.LT | Check.LE:
            return _Ordered(passes, check)
        case Check.STARTS:
            return _AtAnEnd(passes, lambda text, length: text[:length])
        case Check.ENDS:
            return _AtAnEnd(passes, lambda text, length: text[len(text) - length :])
        case Check.HAS:
            return _Having(passes)
        case _:
            return Slots(passes)
