"""Flatten documents into typed leaves, compress them, order facets, and encode page tokens.

A string is text and, under `<path>.keyword`, a whole value; a number is a double. If one path of a
document holds leaves of several kinds, all count as strings; if it holds objects and leaves, only
the objects count.
"""

import base64
import binascii
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from typing import Any, Literal, TypeVar

from storage import json_codec
from storage.errors import Invalid, NotFoundError, Unavailable
from storage.protocols import FacetCount, FacetValue, IndexedDocument, IndexRefusal
from storage.search.words import split_words

KEYWORD_SUFFIX = ".keyword"
MAX_KEYWORD_BYTES = 8191
"""Longer strings are searchable by their words only (interface 3)."""

MAX_LISTED_NAME = 1_000
"""Characters of a field's name; longer ones are searchable, but not listed."""

VALUE_GAP = 100
"""Positions between two values of one path, so that no phrase spans both."""

LeafKind = Literal["string", "number", "boolean", "object"]
WordPositions = Mapping[str, list[int]]
P = TypeVar("P")


@dataclass(frozen=True)
class FlatDocument:
    """The leaves of one document."""

    id: str
    strings: Mapping[str, list[str]]
    numbers: Mapping[str, list[float]]
    booleans: Mapping[str, list[bool]]
    objects: frozenset[str] = frozenset()
    _word_positions: dict[str, WordPositions] = field(
        default_factory=dict, repr=False, compare=False
    )

    def word_positions(self, path: str) -> WordPositions:
        """Return the positions of every word of a text; analysed once."""
        found = self._word_positions.get(path)
        if found is None:
            found = self._word_positions[path] = find_positions(self.strings.get(path, []))
        return found

    def keyword_values(self, path: str) -> list[str]:
        """Return the strings of a path that are short enough for keywords."""
        return [text for text in self.strings.get(path, []) if is_keyword_length(text)]

    def parent_paths(self) -> set[str]:
        """Return every path that has leaves below it."""
        return {parent for path in self.paths() for parent in parent_paths(path)}

    @cached_property
    def existing_names(self) -> set[str]:
        """All names under which the document's leaves exist."""
        wholes = {path + KEYWORD_SUFFIX for path in self.strings if self.keyword_values(path)}
        return {*self.paths(), *self.parent_paths(), *wholes}

    def paths(self) -> Iterator[str]:
        """Iterate over all paths with leaves."""
        yield from self.strings
        yield from self.numbers
        yield from self.booleans


def is_keyword_length(text: str) -> bool:
    """Return whether a string is short enough to be a keyword."""
    # No character takes more than four bytes, none less than one.
    if not MAX_KEYWORD_BYTES // 4 < len(text) <= MAX_KEYWORD_BYTES:
        return len(text) <= MAX_KEYWORD_BYTES
    return len(text.encode()) <= MAX_KEYWORD_BYTES


def find_positions(texts: list[str]) -> WordPositions:
    """Return the positions of each word, with a gap between two texts."""
    found: dict[str, list[int]] = {}
    at = 0
    for text in texts:
        for word in split_words(text):
            found.setdefault(word, []).append(at)
            at += 1
        at += VALUE_GAP
    return found


def flatten_document(document: Mapping[str, Any]) -> FlatDocument:
    """Return the typed leaves of a document, without unsearchable paths."""
    leaves, objects = _collect_leaves(document, unsearchable_paths(document))
    strings: dict[str, list[str]] = {}
    numbers: dict[str, list[float]] = {}
    booleans: dict[str, list[bool]] = {}
    for path, values in leaves.items():
        if path in objects:
            continue
        kinds = {_leaf_kind(value) for value in values}
        kind = kinds.pop() if len(kinds) == 1 else "string"
        if kind == "string":
            strings[path] = [format_leaf(value) for value in values]
        elif kind == "boolean":
            booleans[path] = values
        elif kind == "number" and (doubles := _to_doubles(values)):
            numbers[path] = doubles
    info = document.get("bundle_info")
    ident = f"{info.get('uuid')}.{info.get('version')}" if isinstance(info, Mapping) else ""
    return FlatDocument(ident, strings, numbers, booleans, frozenset(objects))


def unsearchable_paths(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the paths in the document's own `errors`: stored, but not searchable."""
    errors = document.get("errors")
    reported = errors if isinstance(errors, list) else []
    return frozenset(
        error["path"]
        for error in reported
        if isinstance(error, Mapping) and isinstance(error.get("path"), str)
    )


def _collect_leaves(
    document: Mapping[str, Any], excluded: frozenset[str]
) -> tuple[dict[str, list[Any]], set[str]]:
    """Return leaves by path in document order, and the paths of objects."""
    leaves: dict[str, list[Any]] = {}
    objects: set[str] = set()
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            _note_object(path, objects)
            below = [(f"{path}.{key}" if path else str(key), child) for key, child in value.items()]
            waiting.extend(
                item for item in reversed(below) if not _is_unsearchable(item[0], excluded)
            )
        elif isinstance(value, list | tuple):
            waiting.extend((path, child) for child in reversed(value))
        elif value is not None and path in leaves:
            leaves[path].append(value)
        elif value is not None and is_field_name(path):
            leaves[path] = [value]
            _note_object(path.rpartition(".")[0], objects)
    return leaves, objects


def _is_unsearchable(path: str, excluded: frozenset[str]) -> bool:
    return bool(excluded) and any(name in excluded for name in (path, *parent_paths(path)))


def _note_object(path: str, objects: set[str]) -> None:
    """Add an object's path and its parents: a dot inside a key makes objects, too."""
    while path and path not in objects:
        objects.add(path)
        path = path.rpartition(".")[0]


def is_field_name(path: str) -> bool:
    """Return whether a path can be a field: none of its parts may be blank."""
    return all(part and not part.isspace() for part in path.split("."))


def _leaf_kind(value: Any) -> LeafKind:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"


def format_leaf(value: Any) -> str:
    """Return a leaf as text, numbers and booleans as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _to_doubles(values: list[Any]) -> list[float]:
    """Convert numbers to doubles; skip those beyond a double's range."""
    doubles = []
    for value in values:
        try:
            double = float(value)
        except OverflowError:
            continue
        if math.isfinite(double):
            doubles.append(double)
    return doubles


def find_path_kinds(document: Mapping[str, Any]) -> dict[str, LeafKind]:
    """Return the kind of every path of a document, objects included; a shape is made of these."""
    flat = flatten_document(document)
    found: dict[str, LeafKind] = dict.fromkeys(flat.strings, "string")
    found.update(dict.fromkeys(flat.numbers, "number"))
    found.update(dict.fromkeys(flat.booleans, "boolean"))
    found.update(dict.fromkeys(flat.objects, "object"))
    return found


def parent_paths(path: str) -> Iterator[str]:
    """Iterate over the paths above this one, nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


COMPRESSION_LEVEL = 3


class DocumentRefusedError(Exception):
    """A document that cannot be indexed; its message is the reason."""


def prepare_each(
    documents: Sequence[IndexedDocument], prepare: Callable[[IndexedDocument], P]
) -> tuple[list[P], list[IndexRefusal]]:
    """Return the prepared documents, and those refused."""
    prepared: list[P] = []
    refusals: list[IndexRefusal] = []
    for document in documents:
        try:
            prepared.append(prepare(document))
        except DocumentRefusedError as error:
            refusals.append(IndexRefusal(document.uuid, document.version, str(error)))
    return prepared, refusals


def compress_document(document: Mapping[str, Any]) -> bytes:
    """Return the document as compressed JSON; DocumentRefusedError if it is not JSON."""
    try:
        text = json_codec.encode(document)
    except ValueError as error:
        raise DocumentRefusedError(f"is not valid JSON: {error}") from error
    return zlib.compress(text, COMPRESSION_LEVEL)


def decompress_within(data: bytes, limit: int | None) -> bytes | None:
    """Return the JSON text; None if it has more than `limit` bytes, which are not unpacked."""
    if limit is None:
        return zlib.decompress(data)
    text = zlib.decompressobj().decompress(data, limit + 1)
    return text if len(text) <= limit else None


def check_field_count(count: int, most: int) -> None:
    """Raise DocumentRefusedError for a document of too many fields."""
    if count > most:
        raise DocumentRefusedError(f"has {count} fields, more than {most}")


def make_version_error() -> Unavailable:
    """Return the error of an index that another analysis or layout made."""
    return Unavailable("the search index has another format: rebuild it")


def make_not_building_error(generation: str) -> NotFoundError:
    """Return the error of a generation that cannot be finished."""
    return NotFoundError(f"generation '{generation}' is not being built")


KIND_ORDER = ("boolean", "number", "string")
"""Kinds of values in the order of ties."""
# A larger double may stand for several integers.
MAX_EXACT_INTEGER = 2**53


def order_counts(counts: Mapping[str, Mapping[FacetValue, int]], size: int) -> Sequence[FacetCount]:
    """Return the most frequent values of counts by kind; ties by kind, then value."""
    found = (
        (-count, rank, value)
        for rank, kind in enumerate(KIND_ORDER)
        for value, count in counts.get(kind, {}).items()
    )
    # No two have the same kind and value, so values of one kind only are compared.
    return [
        FacetCount(_convert_value(KIND_ORDER[rank], value), -negative)
        for negative, rank, value in nsmallest(size, found)
    ]


def _convert_value(kind: str, value: FacetValue) -> FacetValue:
    """Return a boolean for the index's 0 and 1, an integer for a double without a fraction."""
    if kind == "boolean":
        return bool(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
        return int(value)
    return value


def encode_page_token(version: str, uuid: str) -> str:
    """Return the position after a hit, newest version first, then by uuid."""
    return base64.urlsafe_b64encode(f"{version} {uuid}".encode()).decode().rstrip("=")


def decode_page_token(token: str) -> tuple[str, str]:
    """Return version and uuid of a page token; Invalid if it is malformed."""
    try:
        padded = token + "=" * (-len(token) % 4)
        version, blank, uuid = base64.urlsafe_b64decode(padded).decode().partition(" ")
    except (binascii.Error, ValueError) as error:
        raise Invalid("page token: is not valid for a search", code="illegal_token") from error
    if not blank:
        raise Invalid("page token: is not valid for a search", code="illegal_token")
    return version, uuid
