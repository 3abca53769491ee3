"""Documents on their way into the tables: prepared outside of the lock, written inside of it."""

import sqlite3
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.protocols import IndexedDocument
from storage.query.analysis import Flat, flatten
from storage.search.verbatim import count_fields, packed

ROWS_AT_ONCE = 10_000

Places = int | bytes


Term = tuple[str, int, str, Places]
"""A path, 0 for a word of a text or 1 for a whole string, the word or string, and its places."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document as rows without numbers, its terms in order; without a body it is not live."""

    uuid: str
    version: str
    change: int
    body: bytes | None = None
    terms: Sequence[Term] = ()
    strings: Sequence[tuple[str, bool]] = ()
    numbers: Sequence[tuple[str, str, float]] = ()
    objects: Sequence[str] = ()


def prepare(document: IndexedDocument, *, field_limit: int) -> Prepared:
    """Everything that needs no lock: flattening, analysis, compression. Raises RefusedError."""
    name = (document.uuid, document.version, document.change)
    if document.document is None:
        return Prepared(*name)
    body = packed(document.document)
    flat = flatten(document.document)
    count_fields(sum(1 for _ in flat.paths()), field_limit)
    wholes = {path: set(flat.wholes(path)) for path in flat.strings}
    return Prepared(
        *name,
        body=body,
        terms=sorted(_terms(flat, wholes)),
        strings=[(path, bool(found)) for path, found in wholes.items()],
        numbers=sorted(set(_numbers(flat))),
        objects=sorted(flat.parents()),
    )


def _terms(flat: Flat, wholes: Mapping[str, set[str]]) -> Iterator[Term]:
    for path, found in wholes.items():
        for word, places in flat.words(path).items():
            yield path, 0, word, places[0] if len(places) == 1 else array("I", places).tobytes()
        for whole in found:
            yield path, 1, whole, 0


def _numbers(flat: Flat) -> Iterator[tuple[str, str, float]]:
    """Numbers, and booleans as 0 and 1."""
    for path, numbers in flat.numbers.items():
        yield from ((path, "number", number) for number in numbers)
    for path, booleans in flat.booleans.items():
        yield from ((path, "boolean", float(boolean)) for boolean in booleans)


def fill(connection: sqlite3.Connection, documents: Sequence[Prepared]) -> None:
    """Write what is newer than what is there. Within a writing transaction."""
    numbered = [
        (number, document)
        for document in documents
        if (number := _replace(connection, document)) is not None
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


Numbered = Sequence[tuple[int, Prepared]]


def _fill_leaves(connection: sqlite3.Connection, numbered: Numbered) -> None:
    paths = _path_numbers(connection, {key for _, each in numbered for key in _path_keys(each)})
    fields = {name: 2 * number for (name, kind), number in paths.items() if kind == "string"}
    wanted = {(fields[t[0]] + t[1], t[2]) for _, each in numbered for t in each.terms}
    terms = _term_numbers(connection, wanted)
    postings = [
        (terms[fields[path] + view, word], number, places)
        for number, each in numbered
        for path, view, word, places in each.terms
    ]
    # In the order of the table: neighbours fall on one page.
    connection.executemany("INSERT INTO posting VALUES (?, ?, ?)", sorted(postings))
    connection.executemany("INSERT INTO present VALUES (?, ?, ?)", _present(numbered, paths))
    values = [
        (paths[path, kind], value, number)
        for number, each in numbered
        for path, kind, value in each.numbers
    ]
    connection.executemany("INSERT INTO number VALUES (?, ?, ?)", values)


PathKey = tuple[str, str]


def _path_keys(document: Prepared) -> Iterator[PathKey]:
    yield from ((path, "string") for path, _ in document.strings)
    yield from {(path, kind) for path, kind, _ in document.numbers}
    yield from ((path, "object") for path in document.objects)


def _path_numbers(connection: sqlite3.Connection, wanted: set[PathKey]) -> dict[PathKey, int]:
    keys = sorted(wanted)
    connection.executemany("INSERT OR IGNORE INTO path (name, kind) VALUES (?, ?)", keys)
    find = "SELECT id FROM path WHERE name = ? AND kind = ?"
    return {key: connection.execute(find, key).fetchone()[0] for key in keys}


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


def _present(numbered: Numbered, paths: Mapping[PathKey, int]) -> list[tuple[int, int, bool]]:
    """Which strings and objects a document has; numbers are found by their values."""
    rows = []
    for number, each in numbered:
        rows += [(paths[path, "string"], number, whole) for path, whole in each.strings]
        rows += [(paths[path, "object"], number, False) for path in each.objects]
    return sorted(rows)


def carry_stubs(connection: sqlite3.Connection, old: Path) -> None:
    """Take over the stubs of another generation, so that no late write revives what they hide."""
    connection.execute("ATTACH DATABASE ? AS old", (str(old),))
    try:
        connection.execute(
            "INSERT INTO doc (uuid, version, change, live)"
            " SELECT uuid, version, change, 0 FROM old.doc WHERE live = 0"
            " ON CONFLICT (uuid, version) DO UPDATE SET change = excluded.change, live = 0"
            " WHERE excluded.change > doc.change"
        )
    finally:
        connection.execute("DETACH DATABASE old")
