"""Terms: what expressions ask a document about, and checks of what is found there.

A path stands for every value that it leads to: one, or where it goes through lists, one for each
element. A part of an expression stands for what it yields. A key is a term and a check; it holds if
any of the values passes, and also if the values are not known.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any, NamedTuple

from pipelines.queries import jmes
from pipelines.queries.sharing import Shared

Node = Mapping[str, Any]


class Each(Enum):
    """Steps of a path that lead to any number of values."""

    ELEMENT = auto()  # those of a list, and none of what is no list
    MEMBER = auto()  # those of an object, and none of what is no object
    FLAT = auto()  # those of a list; what is no list itself


Path = tuple[str | int | Each, ...]
"""Members by name and elements by number, from the top of the document."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an expression that sees the document itself, named by what it says."""

    name: bytes
    expression: jmes.Expression = field(compare=False)


Term = Path | Part


class Sort(Enum):
    """Values that are no key of a dictionary by themselves, or would be mistaken for another."""

    TRUE = auto()  # Python takes it for 1
    FALSE = auto()  # and this one for 0
    OTHER = auto()  # a list or an object


Sorts = frozenset[str]
NULL, NUMBER, STRING, ARRAY = (frozenset({name}) for name in ("null", "number", "string", "array"))
ALL: Sorts = NULL | NUMBER | STRING | ARRAY | {"boolean", "object"}
HEAVY = "heavy"
"""What is too large to be looked at here is of this sort, too."""


class Check(Enum):
    """What a value is asked for, given another value."""

    EQUAL = auto()  # the slots are the same
    GT = auto()
    GE = auto()
    LT = auto()
    LE = auto()
    STARTS = auto()
    ENDS = auto()
    HAS = auto()  # a list has the element, a text the part
    UNLIKE = auto()  # the value is of none of these sorts


class Key(NamedTuple):
    """Some value of the term passes the check; `value` is a slot where that is EQUAL."""

    term: Term
    check: Check
    value: Hashable


def present(term: Term) -> Key:
    """There is any value but null."""
    return Key(term, Check.UNLIKE, NULL)


def known(term: Term) -> Key:
    """Holds only if the term's values are not known."""
    return Key(term, Check.UNLIKE, ALL)


def slot(value: Any) -> Hashable:
    """The value as a key: equal exactly where JMESPath's `==` finds scalars equal."""
    if isinstance(value, bool):
        return Sort.TRUE if value else Sort.FALSE
    return Sort.OTHER if isinstance(value, list | dict) else value


class Sight:
    """The values of one term in one document."""

    def __init__(self, values: list[Any], limit: int) -> None:
        self.values, self._limit = values, limit

    @cached_property
    def sorts(self) -> Sorts:
        """Of which sorts they are."""
        found = {_SORTS.get(type(value), HEAVY) for value in self.values}
        if sum(map(jmes.size, self.values)) > self._limit:
            found.add(HEAVY)
        return frozenset(found)

    @cached_property
    def numbers(self) -> list[Any]:
        """Those of them that can be ordered as numbers."""
        return [one for one in self.values if type(one) in (int, float) and one == one]

    @cached_property
    def texts(self) -> list[str]:
        """Those of them that are text."""
        return [one for one in self.values if isinstance(one, str)]

    def comparable(self, value: Hashable) -> list[Any]:
        """Those of them that can be compared with this one."""
        return self.texts if isinstance(value, str) else self.numbers

    @cached_property
    def slots(self) -> frozenset[Hashable]:
        """Their slots."""
        return frozenset(map(slot, self.values))


_SORTS: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _has(value: Any, part: Any) -> bool:
    if isinstance(value, str):
        return isinstance(part, str) and part in value
    return isinstance(value, list) and part in value


CHECKS: Mapping[Check, Callable[[Sight, Any], bool]] = {
    Check.EQUAL: lambda sight, value: value in sight.slots,
    Check.GT: lambda sight, value: any(one > value for one in sight.comparable(value)),
    Check.GE: lambda sight, value: any(one >= value for one in sight.comparable(value)),
    Check.LT: lambda sight, value: any(one < value for one in sight.comparable(value)),
    Check.LE: lambda sight, value: any(one <= value for one in sight.comparable(value)),
    Check.STARTS: lambda sight, value: any(one.startswith(value) for one in sight.texts),
    Check.ENDS: lambda sight, value: any(one.endswith(value) for one in sight.texts),
    Check.HAS: lambda sight, value: any(_has(one, value) for one in sight.values),
    Check.UNLIKE: lambda sight, value: not sight.sorts <= value,
}


class Look:
    """One document, in which each term is looked for at most once.

    Whatever takes more steps than `limit`, or more than are left of all, is not known.
    """

    def __init__(
        self, document: Any, *, limit: int, of_all: int, shared: Shared | None = None
    ) -> None:
        self._document, self._shared = document, shared
        self._limit, self._left = limit, of_all
        self._seen: dict[Term, Sight | None] = {}

    def see(self, term: Term) -> Sight | None:
        """The values of a term; None if they are not known."""
        try:
            return self._seen[term]
        except KeyError:
            pass
        values = self._part(term) if isinstance(term, Part) else self._walk(term)
        found = self._seen[term] = None if values is None else Sight(values, self._limit)
        return found

    def holds(self, key: Key) -> bool:
        """Whether a key holds."""
        sight = self.see(key.term)
        return sight is None or CHECKS[key.check](sight, key.value)

    def _part(self, part: Part) -> list[Any] | None:
        allowed = min(self._limit, self._left)
        if allowed <= 0:
            return None
        budget = jmes.Budget(allowed)
        try:
            return [part.expression.search(self._document, budget, self._shared)]
        except jmes.Failed:
            return None
        finally:
            self._left -= allowed - max(0, budget.left)

    def _walk(self, path: Path) -> list[Any] | None:
        value = self._document
        for number, step in enumerate(path):
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, dict) else None
            elif isinstance(step, int):
                value = _element(value, step)
            else:
                return self._walk_each([value], path[number:])
        return [value]

    def _walk_each(self, values: list[Any], path: Path) -> list[Any] | None:
        """The rest of a path, from the first step that leads to any number of values."""
        steps = 0
        for step in path:
            if isinstance(step, str):
                values = [one.get(step) if isinstance(one, dict) else None for one in values]
            elif isinstance(step, int):
                values = [_element(one, step) for one in values]
            else:
                steps += len(values) + sum(len(one) for one in values if isinstance(one, _MANY))
                if steps > min(self._limit, self._left):
                    self._left -= len(values)
                    return None
                values = [each for one in values for each in _SPREAD[step](one)]
        self._left -= steps
        return values


_MANY = (list, dict)
_SPREAD: Mapping[Each, Callable[[Any], Any]] = {
    Each.ELEMENT: lambda value: value if isinstance(value, list) else (),
    Each.MEMBER: lambda value: value.values() if isinstance(value, dict) else (),
    Each.FLAT: lambda value: value if isinstance(value, list) else (value,),
}


def _leads_to_many(path: Path) -> bool:
    return any(isinstance(step, Each) for step in path)


def _element(value: Any, number: int) -> Any:
    if not isinstance(value, list):
        return None
    return value[number] if -len(value) <= number < len(value) else None


def is_plain(term: Term) -> bool:
    """Whether it is a path to one value, which nothing prevents from being known."""
    return not isinstance(term, Part) and not _leads_to_many(term)


def is_nan(value: Any) -> bool:
    """Whether it is the number that equals nothing and is no key."""
    return isinstance(value, float) and math.isnan(value)
