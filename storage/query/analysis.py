"""A document as queries see it: typed leaves by dotted path, arrays flattened, texts as words.

A string is text and, under `<path>.keyword`, a whole value; a number is a double. Where one path of
a document holds leaves of several kinds they all count as strings, whatever their order; where it
holds objects and leaves, the objects count.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from storage.query.words import ANALYSIS, words

__all__ = ["ANALYSIS", "Flat", "Kind", "flatten", "kinds", "words"]

KEYWORD = ".keyword"
MAX_KEYWORD_BYTES = 8191
"""Longer strings are searchable by their words only (interface 3)."""

VALUE_GAP = 100
"""Positions between two values of one path, so that phrases do not run from one into the next."""

Kind = Literal["string", "number", "boolean", "object"]
Positions = Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class Flat:
    """The leaves of one document; `clashes` are paths whose leaves an object displaced."""

    id: str
    strings: Mapping[str, list[str]]
    numbers: Mapping[str, list[float]]
    booleans: Mapping[str, list[bool]]
    objects: frozenset[str] = frozenset()
    clashes: tuple[str, ...] = ()
    _analysed: dict[str, Positions] = field(default_factory=dict, repr=False, compare=False)

    def words(self, path: str) -> Positions:
        """Positions of every word of a text, analysed once."""
        found = self._analysed.get(path)
        if found is None:
            found = self._analysed[path] = positions(self.strings.get(path, []))
        return found

    def wholes(self, path: str) -> list[str]:
        """The strings of a path that are short enough to be found whole."""
        return [text for text in self.strings.get(path, []) if is_whole(text)]

    def parents(self) -> set[str]:
        """Every path that has leaves below it."""
        return {parent for path in self.paths() for parent in parents(path)}

    def paths(self) -> Iterator[str]:
        """Every path with leaves, of one kind each."""
        yield from self.strings
        yield from self.numbers
        yield from self.booleans


def is_whole(text: str) -> bool:
    """Whether a string is short enough to be a keyword."""
    # No character takes more than four bytes, none less than one.
    if not MAX_KEYWORD_BYTES // 4 < len(text) <= MAX_KEYWORD_BYTES:
        return len(text) <= MAX_KEYWORD_BYTES
    return len(text.encode()) <= MAX_KEYWORD_BYTES


def positions(texts: list[str]) -> Positions:
    """Where each word stands, the texts one behind the other with a gap between them."""
    found: dict[str, list[int]] = {}
    at = 0
    for text in texts:
        for word in words(text):
            found.setdefault(word, []).append(at)
            at += 1
        at += VALUE_GAP
    return found


def flatten(document: Mapping[str, Any]) -> Flat:
    """The typed leaves of a document, but the withheld ones; its id is that of its bundle."""
    leaves, objects = _collect(document, withheld_paths(document))
    clashes = tuple(sorted(path for path in leaves if path in objects))
    strings: dict[str, list[str]] = {}
    numbers: dict[str, list[float]] = {}
    booleans: dict[str, list[bool]] = {}
    for path, values in leaves.items():
        kind = "object" if path in objects else _common_kind(values)
        if kind == "string":
            strings[path] = [leaf_text(value) for value in values]
        elif kind == "boolean":
            booleans[path] = values
        elif kind == "number" and (doubles := _doubles(values)):
            numbers[path] = doubles
    return Flat(_id(document), strings, numbers, booleans, frozenset(objects), clashes)


def _id(document: Mapping[str, Any]) -> str:
    info = document.get("bundle_info")
    return f"{info.get('uuid')}.{info.get('version')}" if isinstance(info, Mapping) else ""


def withheld_paths(document: Mapping[str, Any]) -> frozenset[str]:
    """Paths that the document's own `errors` report: kept verbatim, and not searchable."""
    errors = document.get("errors")
    reported = errors if isinstance(errors, list) else []
    return frozenset(
        error["path"]
        for error in reported
        if isinstance(error, Mapping) and isinstance(error.get("path"), str)
    )


def _collect(
    document: Mapping[str, Any], withheld: frozenset[str]
) -> tuple[dict[str, list[Any]], set[str]]:
    """Leaves by path in document order, and the paths that objects have."""
    leaves: dict[str, list[Any]] = {}
    objects: set[str] = set()
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            _note_object(path, objects)
            below = [(f"{path}.{key}" if path else str(key), child) for key, child in value.items()]
            waiting.extend(item for item in reversed(below) if not _within(item[0], withheld))
        elif isinstance(value, list | tuple):
            waiting.extend((path, child) for child in reversed(value))
        elif value is not None and path in leaves:
            leaves[path].append(value)
        elif value is not None and is_name(path):
            leaves[path] = [value]
            _note_object(path.rpartition(".")[0], objects)
    return leaves, objects


def _within(path: str, withheld: frozenset[str]) -> bool:
    return bool(withheld) and any(name in withheld for name in (path, *parents(path)))


def _note_object(path: str, objects: set[str]) -> None:
    """A dot inside of a key makes objects, too."""
    while path and path not in objects:
        objects.add(path)
        path = path.rpartition(".")[0]


def is_name(path: str) -> bool:
    """Whether a path can be a field: none of its parts may be blank."""
    return all(part and not part.isspace() for part in path.split("."))


def _common_kind(values: list[Any]) -> Kind:
    found = {_kind(value) for value in values}
    return found.pop() if len(found) == 1 else "string"


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"


def leaf_text(value: Any) -> str:
    """A leaf as text, numbers and booleans as JSON spells them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _doubles(values: list[Any]) -> list[float]:
    """Numbers as doubles; one beyond a double's range is malformed and left out."""
    doubles = []
    for value in values:
        try:
            double = float(value)
        except OverflowError:
            continue
        if math.isfinite(double):
            doubles.append(double)
    return doubles


def kinds(document: Mapping[str, Any]) -> dict[str, Kind]:
    """The kind of every path of a document, its objects included; what a shape is made of."""
    flat = flatten(document)
    found: dict[str, Kind] = dict.fromkeys(flat.strings, "string")
    found.update(dict.fromkeys(flat.numbers, "number"))
    found.update(dict.fromkeys(flat.booleans, "boolean"))
    found.update(dict.fromkeys(flat.objects, "object"))
    return found


def parents(path: str) -> Iterator[str]:
    """The paths above this one, nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path
