"""Conditions: what a JMESPath expression needs of a document before it can be anything but false.

Read from the syntax tree alone. A key says that a plain path has a value, or any but null. Nothing
that could fail is passed over: `&&` goes from left to right, so a conjunct counts only if whatever
stands before it cannot fail on any document, in its type or in its steps.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

Node = Mapping[str, Any]
Path = tuple[str | int, ...]
"""Members by name and elements by number, from the top of the document."""


class Sort(Enum):
    """Values that are no key of a dictionary by themselves, or would be mistaken for another."""

    PRESENT = "any value but null"
    TRUE = "true, which Python takes for 1"
    FALSE = "false, which Python takes for 0"
    OTHER = "a list or an object"


class Key(NamedTuple):
    """The value at the path is this one: as `slot` tells it, or PRESENT."""

    path: Path
    value: Hashable


Clause = frozenset[Key]
"""Holds when one of its keys does."""

MAX_CLAUSES, MAX_KEYS = 8, 32
"""What is kept of one expression; more would cost memory and save nothing."""

_SEQUENCES = frozenset({"subexpression", "index_expression", "pipe"})
_PROJECTIONS = frozenset({"projection", "filter_projection", "value_projection", "flatten"})
_OF_NULL = frozenset({"multi_select_list", "multi_select_dict", "slice"})
"""What yields null of null, whatever is in it."""
_HARMLESS = _SEQUENCES | {
    "field",
    "index",
    "literal",
    "current",
    "identity",
    "and_expression",
    "or_expression",
    "not_expression",
    "multi_select_list",
    "multi_select_dict",
    "key_val_pair",
}
"""What cannot fail if its parts cannot, and visits each of them once."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where a clause does not hold, the expression is false, without an error and within its steps;
    if `complete`, it is true wherever all of them hold."""

    clauses: tuple[Clause, ...] = ()
    complete: bool = False


def slot(value: Any) -> Hashable:
    """The value as a key: equal exactly where JMESPath's `==` finds scalars equal."""
    if isinstance(value, bool):
        return Sort.TRUE if value else Sort.FALSE
    return Sort.OTHER if isinstance(value, list | dict) else value


def conditions(tree: Node) -> Conditions:
    """The conditions of an expression, as many as are worth keeping."""
    found = _found(tree, ())
    kept = tuple(clause for clause in found.clauses if len(clause) <= MAX_KEYS)[:MAX_CLAUSES]
    return Conditions(kept, complete=found.complete and len(kept) == len(found.clauses))


def _found(node: Node, at: Path) -> Conditions:
    """The conditions of a part that sees what lies at a path of the document."""
    if node["type"] == "comparator":
        return _compared(node, at)
    if node["type"] == "and_expression":
        return _both(node, at)
    if node["type"] == "or_expression":
        return _either(node, at)
    if node["type"] == "pipe":
        first, second = node["children"]
        onward = _path(first, at)
        if onward is not None:
            return _found(second, onward)
    return _present(_nulled_by(node, at))


def _present(path: Path | None) -> Conditions:
    """The top of a document is always there: to ask for it tells nothing."""
    return Conditions((frozenset({Key(path, Sort.PRESENT)}),)) if path else Conditions()


def _compared(node: Node, at: Path) -> Conditions:
    left, right = node["children"]
    for one, other in ((left, right), (right, left)):
        if node["value"] == "ne" or other["type"] != "literal":
            continue
        path = _path(one, at)
        if node["value"] == "eq" and path is not None and _is_scalar(other):
            return Conditions((frozenset({Key(path, slot(other["value"]))}),), complete=True)
        if node["value"] != "eq" or other["value"] is not None:
            return _present(_nulled_by(one, at))
    return Conditions()


def _is_scalar(node: Node) -> bool:
    """Whether it is a literal that is compared in one step; NaN equals nothing and is no key."""
    if node["type"] != "literal" or isinstance(node["value"], list | dict):
        return False
    return not (isinstance(node["value"], float) and math.isnan(node["value"]))


def _both(node: Node, at: Path) -> Conditions:
    left, right = node["children"]
    first = _found(left, at)
    if not _is_harmless(left):
        return Conditions(first.clauses)
    second = _found(right, at)
    return Conditions(first.clauses + second.clauses, complete=first.complete and second.complete)


def _either(node: Node, at: Path) -> Conditions:
    """One clause of each side makes one of both: if neither holds, both sides are false."""
    first, second = (_found(child, at) for child in node["children"])
    if not first.clauses or not second.clauses:
        return Conditions()
    whole = len(first.clauses) == len(second.clauses) == 1
    complete = whole and first.complete and second.complete
    return Conditions((_rarest(first.clauses) | _rarest(second.clauses),), complete=complete)


def _rarest(clauses: Iterable[Clause]) -> Clause:
    return min(clauses, key=lambda clause: (is_loose(clause), len(clause)))


def is_loose(clause: Clause) -> bool:
    """Whether a path has only to be there, which most documents satisfy."""
    return any(key.value is Sort.PRESENT for key in clause)


def _path(node: Node, at: Path) -> Path | None:
    """The path of a part that only goes from member to member; None for any other."""
    if node["type"] in ("current", "identity"):
        return at
    if node["type"] in ("field", "index"):
        return (*at, node["value"])
    if node["type"] not in _SEQUENCES:
        return None
    onward: Path | None = at
    for child in node["children"]:
        onward = None if onward is None else _path(child, onward)
    return onward


def _nulled_by(node: Node, at: Path) -> Path | None:
    """A path where null makes the part null, whatever else it says, or None."""
    plain = _path(node, at)
    if plain is not None:
        return plain
    if node["type"] in _PROJECTIONS:
        return _nulled_by(node["children"][0], at)
    if node["type"] in _OF_NULL:
        return at
    if node["type"] not in _SEQUENCES:
        return None
    first, *rest = node["children"]
    passed_on = all(_nulled_by(child, ()) is not None for child in rest)
    return _nulled_by(first, at) if passed_on else None


def _is_harmless(node: Node) -> bool:
    """Whether a part can be evaluated on any document in about as many steps as it has nodes."""
    if node["type"] == "comparator":
        # Two values of the document, or two lists, may take as many steps as they have elements.
        cheap = node["value"] in ("eq", "ne") and any(map(_is_scalar, node["children"]))
        return cheap and all(map(_is_harmless, node["children"]))
    if node["type"] == "literal":
        return True
    return node["type"] in _HARMLESS and all(map(_is_harmless, node["children"]))
