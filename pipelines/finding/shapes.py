"""Shapes: which documents can lie in one index, since every path has leaves of one kind there.

A descriptor's documents share its first shape as long as they agree. One that contradicts goes to
the next; when there are no more, what contradicts is withheld. Pure: the catalog keeps the shapes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.query.analysis import kinds, parents

MAX_SHAPES = 4
FIELDS_PER_SHAPE = 10_000

# Any document may come to report errors, also after its shape was chosen.
OF_ERRORS = {
    "errors": "object",
    "errors.file": "string",
    "errors.path": "string",
    "errors.reason": "string",
}

Kinds = Mapping[str, str]
"""Dotted path → string, number, boolean or object."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The shape of that number, which then has these kinds; `dropped` paths are to be withheld."""

    name: str
    number: int
    kinds: Kinds
    dropped: frozenset[str]


def descriptor_of(document: Mapping[str, Any]) -> str:
    """The schema versions that a document is made of."""
    return str(document["shape_descriptor"])


def choose(descriptor: str, document: Mapping[str, Any], known: Sequence[Kinds]) -> Choice:
    """The first shape of a descriptor that the document fits, a new one, or that it fits best."""
    own = OF_ERRORS | kinds(document)
    for number, shape in enumerate([*known, {}][:MAX_SHAPES]):
        merged = {**shape, **own}
        if not conflicts(own, shape) and (not shape or len(merged) <= FIELDS_PER_SHAPE):
            return Choice(_name(descriptor, number), number, merged, frozenset())
    number = min(range(len(known)), key=lambda at: (len(conflicts(own, known[at])), at))
    return _forced(descriptor, own, known, number)


def conflicts(own: Kinds, shape: Kinds) -> frozenset[str]:
    """Paths that have another kind in the shape."""
    return frozenset(path for path, kind in own.items() if shape.get(path, kind) != kind)


def _forced(descriptor: str, own: Kinds, known: Sequence[Kinds], number: int) -> Choice:
    """This shape after all, without what contradicts it and what lies below that."""
    dropped = conflicts(own, known[number])
    kept = {path: kind for path, kind in own.items() if not _is_below(path, dropped)}
    topmost = frozenset(path for path in dropped if not _is_below_another(path, dropped))
    return Choice(_name(descriptor, number), number, {**known[number], **kept}, topmost)


def _is_below(path: str, dropped: frozenset[str]) -> bool:
    return path in dropped or _is_below_another(path, dropped)


def _is_below_another(path: str, dropped: frozenset[str]) -> bool:
    return any(parent in dropped for parent in parents(path))


def _name(descriptor: str, number: int) -> str:
    return f"{descriptor}#{number + 1}"
