"""Index stored JMESPath queries by an equality that a matching document must satisfy.

`find_clauses` reads necessary conditions from a syntax tree: `a.b == 'x' && length(c) > `1`` can
only match where `a.b` is `x`. A clause is a set of such equalities, of which at least one must
hold. Where none holds, the expression is false: it does not fail, and it needs at most
STEPS_PER_NODE steps a node for each element that its path visits. So an expression that would
fail is always evaluated, and its owner learns why.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, TypeVar

from pipelines.queries.bounded_jmespath import MAX_SOURCE_BYTES, JmespathExpression

MAX_NODES = 100
"""Nodes of the largest expression that is indexed."""
MAX_CLAUSES, MAX_EQUALITIES = 8, 32
"""Clauses per expression, and equalities per clause; more cost memory and save nothing."""
STEPS_PER_NODE = 3
_COMPARED_TEXT_STEPS = MAX_SOURCE_BYTES // 64
MIN_STEPS = STEPS_PER_NODE * MAX_NODES + _COMPARED_TEXT_STEPS
"""Steps that any indexed expression needs to be false; with fewer, all must be evaluated."""
PATH_STEPS, ALL_PATHS_STEPS = 1_000, 250_000
"""List elements visited per path and per document; the queries of longer paths are candidates."""

Node = Mapping[str, Any]
Query = TypeVar("Query", bound=Hashable)


class PathStep(Enum):
    """Steps of a path that lead to any number of values."""

    ELEMENT = auto()  # the elements of a list; nothing for other values
    FLAT = auto()  # the elements of a list; other values themselves


Path = tuple[str | int | PathStep, ...]
"""Member names, list positions and steps, from the top of the document."""


class Equality(NamedTuple):
    """Some value at the path has this key."""

    path: Path
    key: Hashable


Clause = frozenset[Equality]

_LISTS = frozenset({"projection", "filter_projection", "flatten"})
"""Nodes that yield a list or null."""
_SEQUENCES = frozenset({"subexpression", "index_expression", "pipe"})
_JOINS = frozenset(
    {"and_expression", "or_expression", "not_expression"}
    | {"multi_select_list", "multi_select_dict", "key_val_pair"}
)
"""Nodes that fail only if one of their children fails."""


def find_clauses(expression: JmespathExpression) -> tuple[Clause, ...]:
    """Return clauses that all hold for every document that the expression matches or fails on."""
    if expression.nodes > MAX_NODES:
        return ()
    clauses = dict.fromkeys(_find_clauses(expression.tree, ()))
    return tuple(clause for clause in clauses if len(clause) <= MAX_EQUALITIES)[:MAX_CLAUSES]


def value_key(value: Any) -> Hashable:
    """Return a key that is equal exactly for scalars that are equal in JMESPath."""
    # Python takes True for 1. The keys of lists and objects equal no literal's key.
    return (type(value),) if isinstance(value, list | dict) else (isinstance(value, bool), value)


def _find_clauses(node: Node, at: Path) -> list[Clause]:
    """Return the clauses of a node that is evaluated for each value at a path."""
    kind = node["type"]
    if kind == "comparator":
        return _compare(node, at)
    if kind == "and_expression":
        left, right = node["children"]
        clauses = _find_clauses(left, at)
        return clauses + _find_clauses(right, at) if _is_safe(left) else clauses
    if kind == "or_expression":
        sides = [_find_clauses(child, at) for child in node["children"]]
        return [frozenset().union(*(min(side, key=len) for side in sides))] if all(sides) else []
    if kind in _SEQUENCES:
        return _find_sequence_clauses(node, at)
    if kind == "filter_projection":
        base, _, condition = node["children"]
        return _find_clauses(base, at) + _find_element_clauses(base, condition, at)
    if kind == "flatten" and _is_list_of_lists(node["children"][0]):
        base, inner = node["children"][0]["children"]
        return _find_clauses(base, at) + _find_element_clauses(base, inner, at)
    if kind in _LISTS:
        return _find_clauses(node["children"][0], at)
    return []


def _compare(node: Node, at: Path) -> list[Clause]:
    left, right = node["children"]
    if left["type"] == "literal":
        left, right = right, left
    path = _extend_path(left, at)
    if node["value"] != "eq" or path is None or not _is_scalar_literal(right):
        return []
    return [frozenset({Equality(path, value_key(right["value"]))})]


def _find_sequence_clauses(node: Node, at: Path) -> list[Clause]:
    """Follow the leading path; the first other child decides if the rest keeps false values."""
    for number, child in enumerate(node["children"], 1):
        path = _extend_path(child, at)
        if path is None:
            rest = node["children"][number:]
            return _find_clauses(child, at) if all(map(_keeps_false, rest)) else []
        at = path
    return []


def _find_element_clauses(base: Node, part: Node, at: Path) -> list[Clause]:
    """Return the clauses of a part that must be true for some element of a list."""
    path = _find_element_path(base, at)
    return _find_clauses(part, path) if path is not None and _is_safe(base, lists=True) else []


def _is_list_of_lists(node: Node) -> bool:
    return node["type"] == "projection" and node["children"][1]["type"] in _LISTS


def _find_element_path(node: Node, at: Path) -> Path | None:
    """Return a path to at least all elements of the list that a node yields."""
    if node["type"] not in _LISTS:
        path = _extend_path(node, at)
        return None if path is None else (*path, PathStep.ELEMENT)
    path = _find_element_path(node["children"][0], at)
    if path is None:
        return None
    return (
        (*path, PathStep.FLAT)
        if node["type"] == "flatten"
        else _extend_path(node["children"][1], path)
    )


def _extend_path(node: Node, at: Path) -> Path | None:
    """Return the path of a node that only selects members and positions, else None."""
    if node["type"] in ("current", "identity"):
        return at
    if node["type"] in ("field", "index"):
        return (*at, node["value"])
    if node["type"] not in _SEQUENCES:
        return None
    path: Path | None = at
    for child in node["children"]:
        path = None if path is None else _extend_path(child, path)
    return path


def _is_safe(node: Node, *, lists: bool = False) -> bool:
    """Whether a node never fails, in steps bounded by its size (and by its `lists`)."""
    kind = node["type"]
    if kind in ("field", "index", "literal", "current", "identity"):
        return True
    if kind == "comparator":
        literals = any(map(_is_scalar_literal, node["children"]))
        if not literals or node["value"] not in ("eq", "ne"):
            return False
    elif kind not in _JOINS and kind not in _SEQUENCES and not (lists and kind in _LISTS):
        return False
    return all(_is_safe(child, lists=lists) for child in node["children"])


def _is_scalar_literal(node: Node) -> bool:
    value = node.get("value")
    if node["type"] != "literal" or isinstance(value, list | dict):
        return False
    return not (isinstance(value, float) and math.isnan(value))


def _keeps_false(node: Node) -> bool:
    """Whether a node yields a false value, without failing, for every false value."""
    if node["type"] in _SEQUENCES:
        return all(map(_keeps_false, node["children"]))
    if node["type"] in _LISTS:
        return _keeps_false(node["children"][0])
    return node["type"] in ("field", "index", "current", "identity")


class EqualityIndex(Generic[Query]):
    """Queries by the equalities of one of their clauses; callers serialize access."""

    def __init__(self) -> None:
        self._paths: dict[Path, dict[Hashable, dict[Query, None]]] = {}
        self._clauses: dict[Query, Clause] = {}
        self._unindexed: dict[Query, None] = {}

    def add(self, query: Query, clauses: tuple[Clause, ...]) -> None:
        """File a query under the clause that it shares with the fewest others."""
        if not clauses:
            self._unindexed[query] = None
            return
        clause = min(clauses, key=lambda each: sum(map(self._count_queries, each)))
        self._clauses[query] = clause
        for path, key in clause:
            self._paths.setdefault(path, {}).setdefault(key, {})[query] = None

    def _count_queries(self, equality: Equality) -> int:
        return len(self._paths.get(equality.path, {}).get(equality.key, ()))

    def remove(self, query: Query) -> None:
        """Remove a query."""
        self._unindexed.pop(query, None)
        for path, key in self._clauses.pop(query, ()):
            keys = self._paths[path]
            del keys[key][query]
            if not keys[key]:
                del keys[key]
            if not keys:
                del self._paths[path]

    def find_candidates(self, document: Any, *, steps: int) -> dict[Query, None]:
        """Return every query that may match or fail within so many steps per evaluation."""
        if steps < MIN_STEPS:
            return {**dict.fromkeys(self._clauses), **self._unindexed}
        reader = _PathReader(document, min(PATH_STEPS, steps // (2 * MIN_STEPS)))
        found = dict(self._unindexed)
        for path, queries in self._paths.items():
            values = reader.read(path)
            keys = queries.keys() if values is None else set(map(value_key, values))
            for key in keys:
                found.update(queries.get(key, {}))
        return found


class _PathReader:
    """Reads the values at paths of one document, within limits."""

    def __init__(self, document: Any, path_steps: int) -> None:
        self._document = document
        self._path_steps, self._left = path_steps, ALL_PATHS_STEPS

    def read(self, path: Path) -> list[Any] | None:
        """Return all values at a path, null for absent ones; None if that takes too many steps."""
        values, steps = [self._document], 0
        for step in path:
            if isinstance(step, str):
                values = [each.get(step) if isinstance(each, dict) else None for each in values]
            elif isinstance(step, int):
                values = [_element_at(each, step) for each in values]
            else:
                steps += len(values) + sum(len(each) for each in values if isinstance(each, list))
                if steps > min(self._path_steps, self._left):
                    self._left -= len(values)
                    return None
                expand = _EXPANSIONS[step]
                values = [element for each in values for element in expand(each)]
        self._left -= steps
        return values


_EXPANSIONS: Mapping[PathStep, Callable[[Any], list[Any]]] = {
    PathStep.ELEMENT: lambda value: value if isinstance(value, list) else [],
    PathStep.FLAT: lambda value: value if isinstance(value, list) else [value],
}


def _element_at(value: Any, position: int) -> Any:
    if not isinstance(value, list) or not -len(value) <= position < len(value):
        return None
    return value[position]
