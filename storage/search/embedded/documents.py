"""Write documents into the tables of the embedded index."""

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.protocols import IndexedDocument
from storage.search.documents import (
    FlatDocument,
    check_field_count,
    compress_document,
    flatten_document,
)
from storage.search.embedded import fields
from storage.search.embedded.fields import PathKey

WordPlaces = int | bytes


TermRow = tuple[str, int, str, WordPlaces]
"""Path, 0 for a word or 1 for a whole string, the word or string, and its positions."""


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """A document as sorted rows without numbers; it is a stub if it has no body."""

    uuid: str
    version: str
    change: int
    body: bytes | None = None
    terms: Sequence[TermRow] = ()
    strings: Sequence[tuple[str, bool]] = ()
    numbers: Sequence[tuple[str, str, float]] = ()
    objects: Sequence[str] = ()

    def leaf_paths(self) -> set[PathKey]:
        """Return the paths with values."""
        texts = {(path, "string") for path, _ in self.strings}
        return texts | {(path, kind) for path, kind, _ in self.numbers}


def prepare_rows(document: IndexedDocument, *, field_limit: int) -> PreparedRows:
    """Flatten, analyse and compress, without a lock. Raises DocumentRefusedError."""
    name = (document.uuid, document.version, document.change)
    if document.document is None:
        return PreparedRows(*name)
    body = compress_document(document.document)
    flat = flatten_document(document.document)
    check_field_count(sum(1 for _ in flat.paths()), field_limit)
    wholes = {path: set(flat.keyword_values(path)) for path in flat.strings}
    return PreparedRows(
        *name,
        body=body,
        terms=sorted(_make_terms(flat, wholes)),
        strings=[(path, bool(found)) for path, found in wholes.items()],
        numbers=sorted(set(_make_numbers(flat))),
        objects=sorted(flat.parent_paths()),
    )


def _make_terms(flat: FlatDocument, wholes: Mapping[str, set[str]]) -> Iterator[TermRow]:
    for path, found in wholes.items():
        for word, places in flat.word_positions(path).items():
            yield path, 0, word, places[0] if len(places) == 1 else array("I", places).tobytes()
        for whole in found:
            yield path, 1, whole, 0


def _make_numbers(flat: FlatDocument) -> Iterator[tuple[str, str, float]]:
    """Iterate over numbers, and booleans as 0 and 1."""
    for path, numbers in flat.numbers.items():
        yield from ((path, "number", number) for number in numbers)
    for path, booleans in flat.booleans.items():
        yield from ((path, "boolean", float(boolean)) for boolean in booleans)


def write_rows(connection: sqlite3.Connection, documents: Sequence[PreparedRows]) -> None:
    """Write documents newer than the stored ones. Call it within a write transaction."""
    fields.prepare_counts(connection)
    newest: dict[tuple[str, str], PreparedRows] = {}
    for document in documents:
        known = newest.setdefault((document.uuid, document.version), document)
        if document.change > known.change:
            newest[document.uuid, document.version] = document
    numbered = [
        (number, document)
        for document in newest.values()
        if (number := _replace_document(connection, document)) is not None
    ]
    if numbered:
        _write_leaves(connection, numbered)
    fields.finish_counts(connection)


def _replace_document(connection: sqlite3.Connection, document: PreparedRows) -> int | None:
    """Insert the document under a new number, deleting an older one; None if it is not newer."""
    name = (document.uuid, document.version)
    found = connection.execute(
        "SELECT id, change FROM doc WHERE uuid = ? AND version = ?", name
    ).fetchone()
    if found is not None:
        if found[1] >= document.change:
            return None
        fields.subtract_documents(connection, found[:1])
        connection.execute("DELETE FROM doc WHERE id = ?", found[:1])
        connection.execute("DELETE FROM body WHERE doc = ?", found[:1])
    row = (*name, document.change, document.body is not None)
    number = connection.execute(
        "INSERT INTO doc (uuid, version, change, live) VALUES (?, ?, ?, ?)", row
    ).lastrowid
    if document.body is not None:
        connection.execute("INSERT INTO body VALUES (?, ?)", (number, document.body))
    return number


NumberedRows = Sequence[tuple[int, PreparedRows]]


def _write_leaves(connection: sqlite3.Connection, numbered: NumberedRows) -> None:
    paths = _number_paths(connection, [each for _, each in numbered])
    texts = {name: 2 * number for (name, kind), number in paths.items() if kind == "string"}
    wanted = {(texts[t[0]] + t[1], t[2]) for _, each in numbered for t in each.terms}
    terms = _number_terms(connection, wanted)
    postings = [
        (terms[texts[path] + view, word], number, places)
        for number, each in numbered
        for path, view, word, places in each.terms
    ]
    # In the order of the table, so that neighbours share a page.
    connection.executemany("INSERT INTO posting VALUES (?, ?, ?)", sorted(postings))
    # Strings and objects only: numbers are found by their values.
    present = []
    for number, each in numbered:
        present += [(paths[path, "string"], number, whole) for path, whole in each.strings]
        present += [(paths[path, "object"], number, False) for path in each.objects]
    connection.executemany("INSERT INTO present VALUES (?, ?, ?)", sorted(present))
    values = [
        (paths[path, kind], value, number)
        for number, each in numbered
        for path, kind, value in each.numbers
    ]
    connection.executemany("INSERT INTO number VALUES (?, ?, ?)", values)
    leaves = Counter(paths[key] for _, each in numbered for key in each.leaf_paths())
    fields.add_counts(connection, leaves)


def _number_paths(
    connection: sqlite3.Connection, documents: Sequence[PreparedRows]
) -> dict[PathKey, int]:
    """Return the number of each path; insert new ones."""
    wanted: set[PathKey] = set()
    for each in documents:
        wanted.update((path, "string") for path, _ in each.strings)
        wanted.update((path, kind) for path, kind, _ in each.numbers)
        wanted.update((path, "object") for path in each.objects)
    keys = sorted(wanted)
    connection.executemany("INSERT OR IGNORE INTO path (name, kind) VALUES (?, ?)", keys)
    find = "SELECT id FROM path WHERE name = ? AND kind = ?"
    return {key: connection.execute(find, key).fetchone()[0] for key in keys}


def _number_terms(
    connection: sqlite3.Connection, wanted: set[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    """Return the number of each term; number new ones from the last."""
    (last,) = connection.execute("SELECT value FROM counter WHERE name = 'term'").fetchone()
    numbers: dict[tuple[int, str], int] = {}
    new = []
    for key in sorted(wanted):
        found = connection.execute(
            "SELECT id FROM term WHERE field = ? AND word = ?", key
        ).fetchone()
        if found is None:
            last += 1
            new.append((*key, last))
        numbers[key] = last if found is None else found[0]
    connection.executemany("INSERT INTO term VALUES (?, ?, ?)", new)
    connection.execute("UPDATE counter SET value = ? WHERE name = 'term'", (last,))
    return numbers


def copy_stubs(connection: sqlite3.Connection, old: Path) -> None:
    """Copy the stubs of another generation, so that no late write revives a deleted document."""
    connection.execute("ATTACH DATABASE ? AS old", (str(old),))
    try:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            fields.prepare_counts(connection)
            hidden = connection.execute(
                "SELECT d.id FROM doc d JOIN old.doc o ON o.uuid = d.uuid AND o.version = d.version"
                " WHERE o.live = 0 AND d.live = 1 AND o.change > d.change"
            ).fetchall()
            fields.subtract_documents(connection, [number for (number,) in hidden])
            connection.execute(
                "INSERT INTO doc (uuid, version, change, live)"
                " SELECT uuid, version, change, 0 FROM old.doc WHERE live = 0"
                " ON CONFLICT (uuid, version) DO UPDATE SET change = excluded.change, live = 0"
                " WHERE excluded.change > doc.change"
            )
            fields.finish_counts(connection)
    finally:
        connection.execute("DETACH DATABASE old")
