"""Documents on their way into the tables: prepared outside of the lock, written inside of it."""

import json
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from storage.protocols import IndexedDocument
from storage.query.analysis import Flat, flatten

COMPRESSION_LEVEL = 3
ROWS_AT_ONCE = 10_000

Places = int | bytes


class RefusedError(Exception):
    """A document that cannot be indexed; its message is the reason."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document as rows without numbers; `flat` and `body` are None for one that is not live."""

    uuid: str
    version: str
    change: int
    flat: Flat | None
    body: bytes | None


def prepare(document: IndexedDocument, *, field_limit: int) -> Prepared:
    """Everything that needs no lock: flattening, analysis, compression. Raises RefusedError."""
    if document.document is None:
        return Prepared(document.uuid, document.version, document.change, None, None)
    body = encoded(document.document)
    flat = flatten(document.document)
    fields = sum(1 for _ in flat.paths())
    if fields > field_limit:
        raise RefusedError(f"has {fields} fields, more than {field_limit}")
    for path in flat.strings:
        flat.words(path)
    compressed = zlib.compress(body, COMPRESSION_LEVEL)
    return Prepared(document.uuid, document.version, document.change, flat, compressed)


def encoded(document: Mapping[str, Any]) -> bytes:
    """The document as JSON, its integers exact whatever their size."""
    try:
        return orjson.dumps(document)
    except TypeError:
        # Integers beyond 64 bits; half surrogate pairs come here too, and are refused.
        return _encoded_slowly(document)


def _encoded_slowly(document: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RefusedError(f"is not proper JSON: {error}") from error


def fill(connection: sqlite3.Connection, documents: Sequence[Prepared]) -> None:
    """Write what is newer than what is there. Within a writing transaction."""
    numbered = [
        (number, document.flat)
        for document in documents
        if (number := _replace(connection, document)) is not None and document.flat is not None
    ]
    if numbered:
        _fill_leaves(connection, numbered)


def _replace(connection: sqlite3.Connection, document: Prepared) -> int | None:
    """Give the document a number, the one it had being dropped; None if it is not newer."""
    name = (document.uuid, document.version)
    found = connection.execute(
        "SELECT id, change FROM doc WHERE uuid = ? AND version = ?", name
    ).fetchone()
    if found is not None:
        if found[1] >= document.change:
            return None
        connection.execute("DELETE FROM doc WHERE id = ?", found[:1])
        connection.execute("DELETE FROM body WHERE doc = ?", found[:1])
    row = (*name, document.change, document.body is not None)
    number = connection.execute(
        "INSERT INTO doc (uuid, version, change, live) VALUES (?, ?, ?, ?)", row
    ).lastrowid
    if document.body is not None:
        connection.execute("INSERT INTO body VALUES (?, ?)", (number, document.body))
    return number


def _fill_leaves(connection: sqlite3.Connection, numbered: Sequence[tuple[int, Flat]]) -> None:
    paths = _path_numbers(connection, {key for _, flat in numbered for key in _path_keys(flat)})
    terms = _term_numbers(connection, {key for n, flat in numbered for key in _terms(flat, paths)})
    postings = sorted(
        (terms[field, word], number, places)
        for number, flat in numbered
        for (field, word), places in _terms(flat, paths).items()
    )
    connection.executemany("INSERT INTO posting VALUES (?, ?, ?)", postings)
    connection.executemany("INSERT INTO present VALUES (?, ?, ?)", _present(numbered, paths))
    connection.executemany("INSERT INTO number VALUES (?, ?, ?)", _numbers(numbered, paths))


PathKey = tuple[str, str]


def _path_keys(flat: Flat) -> Iterator[PathKey]:
    yield from ((name, "string") for name in flat.strings)
    yield from ((name, "number") for name in flat.numbers)
    yield from ((name, "boolean") for name in flat.booleans)
    yield from ((name, "object") for name in flat.parents())


def _path_numbers(connection: sqlite3.Connection, wanted: set[PathKey]) -> dict[PathKey, int]:
    keys = sorted(wanted)
    connection.executemany("INSERT OR IGNORE INTO path (name, kind) VALUES (?, ?)", keys)
    find = "SELECT id FROM path WHERE name = ? AND kind = ?"
    return {key: connection.execute(find, key).fetchone()[0] for key in keys}


def _terms(flat: Flat, paths: Mapping[PathKey, int]) -> dict[tuple[int, str], Places]:
    """Every word and whole string of a document with its places."""
    found: dict[tuple[int, str], Places] = {}
    for name in flat.strings:
        field = 2 * paths[name, "string"]
        for word, places in flat.words(name).items():
            found[field, word] = places[0] if len(places) == 1 else array("I", places).tobytes()
        for whole in flat.wholes(name):
            found[field + 1, whole] = 0
    return found


def _term_numbers(
    connection: sqlite3.Connection, wanted: set[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    """The number of each term, new ones numbered on from the last."""
    keys = sorted(wanted)
    numbers = _known_terms(connection, keys)
    (last,) = connection.execute("SELECT value FROM counter WHERE name = 'term'").fetchone()
    new = [(*key, last + at) for at, key in enumerate((k for k in keys if k not in numbers), 1)]
    connection.executemany("INSERT INTO term VALUES (?, ?, ?)", new)
    connection.execute("UPDATE counter SET value = ? WHERE name = 'term'", (last + len(new),))
    numbers.update(((field, word), number) for field, word, number in new)
    return numbers


def _known_terms(
    connection: sqlite3.Connection, keys: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for start in range(0, len(keys), ROWS_AT_ONCE):
        chunk = keys[start : start + ROWS_AT_ONCE]
        marks = ",".join(["(?,?)"] * len(chunk))
        rows = connection.execute(
            f"WITH wanted (field, word) AS (VALUES {marks})"
            " SELECT term.field, term.word, term.id FROM wanted CROSS JOIN term"
            " ON term.field = wanted.field AND term.word = wanted.word",
            [part for key in chunk for part in key],
        )
        found.update(((field, word), number) for field, word, number in rows)
    return found


def _present(
    numbered: Iterable[tuple[int, Flat]], paths: Mapping[PathKey, int]
) -> list[tuple[int, int, bool]]:
    """Which strings and objects a document has; numbers are found by their values."""
    strings = [
        (paths[name, "string"], number, bool(flat.wholes(name)))
        for number, flat in numbered
        for name in flat.strings
    ]
    objects = [
        (paths[name, "object"], number, False)
        for number, flat in numbered
        for name in flat.parents()
    ]
    return sorted(strings + objects)


def _numbers(
    numbered: Iterable[tuple[int, Flat]], paths: Mapping[PathKey, int]
) -> list[tuple[int, float, int]]:
    """Numbers, and booleans as 0 and 1, each once for a document."""
    found = {
        (paths[name, kind], float(value), number)
        for number, flat in numbered
        for kind, leaves in (("number", flat.numbers), ("boolean", flat.booleans))
        for name, values in leaves.items()
        for value in values
    }
    return sorted(found)
