"""Conditions: what a JMESPath expression needs of a document before it can be anything but false.

Read from the syntax tree alone. Nothing that could fail is passed over: `&&` goes from left to
right, so a conjunct counts only if whatever stands before it does not fail, in its type or in its
steps; the keys that hold where it might fail (its *doubts*) are added to every later clause.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pipelines.queries import jmes
from pipelines.queries.sharing import name
from pipelines.queries.terms import (
    ALL,
    ARRAY,
    NULL,
    NUMBER,
    STRING,
    Check,
    Each,
    Key,
    Node,
    Part,
    Path,
    Sorts,
    Term,
    is_nan,
    is_plain,
    known,
    present,
    slot,
)

Clause = frozenset[Key]
"""Holds when one of its keys does."""
Doubts = frozenset[Key]

MAX_CLAUSES, MAX_KEYS, MAX_DOUBTS = 8, 32, 8
"""What is kept of one expression; more would cost memory and save nothing."""
MAX_NODES = 100
"""Of an expression whose steps may depend on the document."""
MAX_PART = 64
"""Characters of a text that is looked for in others: a list of texts costs one step for each."""

_ORDERS: Mapping[str, Check] = {"gt": Check.GT, "gte": Check.GE, "lt": Check.LT, "lte": Check.LE}
_MIRRORED = {"gt": "lt", "gte": "lte", "lt": "gt", "lte": "gte"}
_FUNCTIONS: Mapping[str, Check] = {
    "contains": Check.HAS,
    "starts_with": Check.STARTS,
    "ends_with": Check.ENDS,
}
_SEQUENCES = frozenset({"subexpression", "index_expression", "pipe"})
_LISTS = frozenset({"projection", "filter_projection", "value_projection", "flatten"})
"""What yields a list, or null."""
_OF_NULL = frozenset({"multi_select_list", "multi_select_dict", "slice"})
"""What yields null of null, whatever is in it."""
_LEAVES = frozenset({"field", "index", "literal", "current", "identity"})
_JOINING = frozenset(
    {
        "and_expression",
        "or_expression",
        "not_expression",
        "multi_select_list",
        "multi_select_dict",
        "key_val_pair",
    }
)
"""What cannot fail if its parts cannot, each of which sees the same."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where a clause does not hold, the expression is false, without an error and within its steps;
    if `complete`, it is true wherever all of them hold."""

    clauses: tuple[Clause, ...] = ()
    complete: bool = False


def conditions(tree: Node, *, rich: bool = False) -> Conditions:
    """The conditions of an expression, as many as are worth keeping.

    `rich` ones may need steps that depend on the document; the expression has to be marked, and of
    at most MAX_NODES.
    """
    found = _Reading(rich).needs(tree, ())
    distinct = dict.fromkeys(found.clauses)
    kept = tuple(clause for clause in distinct if len(clause) <= MAX_KEYS)[:MAX_CLAUSES]
    return Conditions(kept, complete=found.complete and len(kept) == len(distinct))


class _Reading:
    """One reading of an expression. A part sees what lies at a path of the document (`at`), None if
    that is no path; a path through lists stands for a part that is evaluated for each element."""

    def __init__(self, rich: bool) -> None:
        self._rich = rich

    def needs(self, node: Node, at: Path) -> Conditions:
        """The conditions of a part: where a clause holds for no element, it is false for all."""
        read = _NEEDS.get(node["type"])
        return read(self, node, at) if read else _present(_nulled_by(node, at))

    def compared(self, node: Node, at: Path) -> Conditions:
        """One side has to have a value that compares with the literal on the other."""
        for one, other, asked in _sides(node):
            if asked == "ne" or other["type"] != "literal":
                continue
            value, term = other["value"], self._term(one, at)
            if term is not None and asked == "eq" and _is_scalar(other):
                clause = frozenset({Key(term, Check.EQUAL, slot(value))})
                return Conditions((clause,), complete=is_plain(term))
            if term is not None and asked != "eq" and _is_ordered(other):
                return Conditions(
                    (frozenset({Key(term, _ORDERS[asked], value), _odd(term, value)}),)
                )
            if asked != "eq" or value is not None:
                return _present(_nulled_by(one, at))
        return Conditions()

    def both(self, node: Node, at: Path) -> Conditions:
        """Those of the left, and those of the right where the left cannot fail."""
        left, right = node["children"]
        first, doubts = self.needs(left, at), self.doubts(left, at)
        if doubts is None:
            return Conditions(first.clauses)
        second = self.needs(right, at)
        return Conditions(
            first.clauses + _doubted(second.clauses, doubts),
            complete=first.complete and second.complete and not doubts,
        )

    def either(self, node: Node, at: Path) -> Conditions:
        """One clause of each side makes one of both: if neither holds, both sides are false."""
        first, second = (self.needs(child, at) for child in node["children"])
        if not first.clauses or not second.clauses:
            return Conditions()
        whole = len(first.clauses) == len(second.clauses) == 1
        complete = whole and first.complete and second.complete
        return Conditions((_rarest(first.clauses) | _rarest(second.clauses),), complete=complete)

    def sequence(self, node: Node, at: Path) -> Conditions:
        """What is false stays false in what only goes on from it."""
        first, *rest = node["children"]
        onward = _path(first, at)
        if node["type"] == "pipe" and onward is not None:
            return self.needs(rest[0], onward)
        found = _present(_nulled_by(node, at))
        if onward is None and all(map(_keeps_false, rest)):
            return Conditions(found.clauses + self.needs(first, at).clauses)
        return found

    def filtered(self, node: Node, at: Path) -> Conditions:
        """Some element has to satisfy the filter."""
        base, _, condition = node["children"]
        return self._of_elements(base, condition, self._elements(base, at), at)

    def projected(self, node: Node, at: Path) -> Conditions:
        """Some element has to yield anything."""
        base, right = node["children"]
        found = self.needs(base, at).clauses
        elements, doubts = self._elements_of(node, at), self.doubts(base, at)
        if not self._rich or elements is None or doubts is None:
            return Conditions(found or _present(_nulled_by(node, at)).clauses)
        there = _present(_nulled_by(right, elements)).clauses
        return Conditions(found + _doubted(there, doubts))

    def flattened(self, node: Node, at: Path) -> Conditions:
        """Some list among the elements has to have an element of its own."""
        (base,) = node["children"]
        if base["type"] == "projection" and base["children"][1]["type"] in _LISTS:
            inner, right = base["children"]
            return self._of_elements(inner, right, self._elements(inner, at), at)
        return self.needs(base, at)

    def called(self, node: Node, at: Path) -> Conditions:
        """A text or list has to have what it is asked for."""
        asked = self._asked(node, at)
        if asked is None:
            return Conditions()
        term, sorts, value = asked
        key = Key(term, _FUNCTIONS[node["value"]], value)
        return Conditions((frozenset({key, Key(term, Check.UNLIKE, sorts)}),))

    def _of_elements(self, base: Node, part: Node, elements: Path | None, at: Path) -> Conditions:
        """The base may not be false, nor the part false for each of its elements."""
        found, doubts = self.needs(base, at).clauses, self.doubts(base, at)
        if not self._rich or elements is None or doubts is None:
            return Conditions(found)
        return Conditions(found + _doubted(self.needs(part, elements).clauses, doubts))

    def doubts(self, node: Node, at: Path | None) -> Doubts | None:
        """Where no such key holds, a part does not fail and takes few steps; None if only its
        evaluation could tell."""
        found = self._doubts(node, at)
        if found is not None and len(found) <= MAX_DOUBTS:
            return found
        part = self._part(node, at)
        return None if part is None else frozenset({known(part)})

    def _doubts(self, node: Node, at: Path | None) -> Doubts | None:
        kind = node["type"]
        if kind in _LEAVES:
            return frozenset()
        if kind in _JOINING:
            return _together(self.doubts(child, at) for child in node["children"])
        if kind in _SEQUENCES:
            return self._doubts_in_turn(node, at)
        if kind == "comparator":
            return self._doubts_of_comparing(node, at)
        if kind in _LISTS and self._rich:
            return self._doubts_of_list(node, at)
        asked = self._asked(node, at) if kind == "function_expression" else None
        return None if asked is None else frozenset({Key(asked[0], Check.UNLIKE, asked[1])})

    def _doubts_in_turn(self, node: Node, at: Path | None) -> Doubts | None:
        found: list[Doubts | None] = []
        for child in node["children"]:
            found.append(self.doubts(child, at))
            at = None if at is None else _path(child, at)
        return _together(found)

    def _doubts_of_comparing(self, node: Node, at: Path | None) -> Doubts | None:
        for one, other, asked in _sides(node):
            if _is_scalar(other) and (asked in ("eq", "ne") or not _is_ordered(other)):
                return self.doubts(one, at)
            if _is_ordered(other):
                term = self._term(one, at)
                return None if term is None else frozenset({_odd(term, other["value"])})
        # Two values of the document, or two lists, may take as many steps as they have elements.
        return None

    def _doubts_of_list(self, node: Node, at: Path | None) -> Doubts | None:
        elements = self._elements_of(node, at)
        if elements is None:
            return None
        base, *parts = node["children"]
        inside = [self.doubts(part, elements) for part in parts]
        return _together([frozenset({known(elements)}), self.doubts(base, at), *inside])

    def _asked(self, node: Node, at: Path | None) -> tuple[Term, Sorts, str | float | None] | None:
        """What a function asks of which term, if it is one that is understood, and the sorts that
        it takes."""
        if node["value"] not in _FUNCTIONS or len(node["children"]) != 2 or not self._rich:
            return None
        subject, other = node["children"]
        term = self._term(subject, at)
        if term is None or not _is_scalar(other):
            return None
        value, is_text = other["value"], isinstance(other["value"], str)
        if node["value"] != "contains":
            return (term, STRING, value) if is_text else None
        if is_text and len(value) > MAX_PART:
            return None
        return term, ARRAY | STRING if is_text else ARRAY, value

    def _term(self, node: Node, at: Path | None) -> Term | None:
        path = None if at is None else _path(node, at)
        return self._part(node, at) if path is None else path

    def _part(self, node: Node, at: Path | None) -> Part | None:
        if at != () or not self._rich or node["type"] in ("literal", "expref"):
            return None
        return Part(name(dict(node)), jmes.Expression("", node))

    def _elements(self, node: Node, at: Path | None) -> Path | None:
        """The path of the elements of a list that a part yields, or of more than these."""
        if node["type"] not in _LISTS:
            path = None if at is None else _path(node, at)
            return None if path is None else (*path, Each.ELEMENT)
        elements = self._elements_of(node, at)
        if elements is None or node["type"] == "flatten":
            return elements
        return _path(node["children"][1], elements)

    def _elements_of(self, node: Node, at: Path | None) -> Path | None:
        """The path of what a list is made from, element by element."""
        base = node["children"][0]
        if node["type"] == "value_projection":
            path = None if at is None else _path(base, at)
            return None if path is None else (*path, Each.MEMBER)
        elements = self._elements(base, at)
        if elements is None or node["type"] != "flatten":
            return elements
        return (*elements, Each.FLAT)


_NEEDS: Mapping[str, Callable[[_Reading, Node, Path], Conditions]] = {
    "comparator": _Reading.compared,
    "and_expression": _Reading.both,
    "or_expression": _Reading.either,
    "subexpression": _Reading.sequence,
    "index_expression": _Reading.sequence,
    "pipe": _Reading.sequence,
    "filter_projection": _Reading.filtered,
    "projection": _Reading.projected,
    "value_projection": _Reading.projected,
    "flatten": _Reading.flattened,
    "function_expression": _Reading.called,
}


def _present(path: Path | None) -> Conditions:
    """The top of a document is always there: to ask for it tells nothing."""
    return Conditions((frozenset({present(path)}),)) if path else Conditions()


def _sides(node: Node) -> list[tuple[Node, Node, str]]:
    """A comparison as it is, and the other way round."""
    left, right = node["children"]
    asked = node["value"]
    return [(left, right, asked), (right, left, _MIRRORED.get(asked, asked))]


def _is_scalar(node: Node) -> bool:
    """Whether it is a literal that is compared in one step; NaN equals nothing and is no key."""
    value = node.get("value")
    return node["type"] == "literal" and not isinstance(value, list | dict) and not is_nan(value)


def _is_ordered(node: Node) -> bool:
    """Whether it is a literal that others can be less than."""
    return _is_scalar(node) and type(node["value"]) in (int, float, str)


def _odd(term: Term, literal: str | float) -> Key:
    """Where something is there that cannot be ordered with the literal, to compare them fails."""
    return Key(term, Check.UNLIKE, ALL - (NUMBER if isinstance(literal, str) else STRING))


def _doubted(clauses: tuple[Clause, ...], doubts: Doubts) -> tuple[Clause, ...]:
    return tuple(clause | doubts for clause in clauses)


def _together(found: Iterable[Doubts | None]) -> Doubts | None:
    every = list(found)
    kept = [doubts for doubts in every if doubts is not None]
    return frozenset().union(*kept) if len(kept) == len(every) else None


def _rarest(clauses: Iterable[Clause]) -> Clause:
    return min(clauses, key=lambda clause: (looseness(clause), len(clause)))


def looseness(clause: Clause) -> int:
    """0 where a value has to be this one, more where it has to be less, or only to be there."""
    if any(key.check is Check.UNLIKE and key.value == NULL for key in clause):
        return 2
    return int(any(key.check in _LOOSE for key in clause))


_LOOSE = frozenset(_ORDERS.values())


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
    if node["type"] in _LISTS:
        return _nulled_by(node["children"][0], at)
    if node["type"] in _OF_NULL:
        return at
    if node["type"] not in _SEQUENCES:
        return None
    first, *rest = node["children"]
    passed_on = all(_nulled_by(child, ()) is not None for child in rest)
    return _nulled_by(first, at) if passed_on else None


def _keeps_false(node: Node) -> bool:
    """Whether a part is false, and does not fail, of whatever is false; some slices do, of []."""
    if node["type"] in ("field", "index", "current", "identity"):
        return True
    if node["type"] in _SEQUENCES:
        return all(map(_keeps_false, node["children"]))
    return node["type"] in _LISTS and _keeps_false(node["children"][0])
