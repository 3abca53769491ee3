"""Count documents by field in the embedded index.

The counts are kept as documents are written. A release without them may have written, too: then the
number of the last document differs from that at which they were counted, and the next write counts
everything again.
"""

import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from storage import json_codec
from storage.protocols import IndexedField
from storage.search.documents import MAX_LISTED_NAME, flatten_document

PathKey = tuple[str, str]
"""Name and kind of a path."""

COUNT_TABLES = """
CREATE TABLE IF NOT EXISTS path_count (path INTEGER PRIMARY KEY, documents INTEGER NOT NULL)
"""
COUNTED = "counted"
"""Row of `counter`: the number of the last document when the counts were right."""
COUNT_OF_PATH = """
CASE kind WHEN 'string' THEN
    (SELECT count(*) FROM present v JOIN doc d ON d.id = v.doc AND d.live = 1
    WHERE v.path = path.id)
ELSE (SELECT count(DISTINCT v.doc) FROM number v JOIN doc d ON d.id = v.doc AND d.live = 1
    WHERE v.path = path.id)
END
"""
LEAF_KINDS = "kind IN ('boolean', 'number', 'string')"


def last_document(connection: sqlite3.Connection) -> int:
    """Return the number of the last document, which every change of the index increases."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'doc'").fetchone()
    return int(found[0]) if found else 0


def are_counts_current(connection: sqlite3.Connection) -> bool:
    """Return whether the counts are those of the documents."""
    found = connection.execute("SELECT value FROM counter WHERE name = ?", (COUNTED,)).fetchone()
    return found is not None and int(found[0]) == last_document(connection)


def prepare_counts(connection: sqlite3.Connection) -> None:
    """Make the counts current before a write."""
    if are_counts_current(connection):
        return
    connection.execute(COUNT_TABLES)
    connection.execute("DELETE FROM path_count")
    connection.execute(
        f"INSERT INTO path_count SELECT id, {COUNT_OF_PATH} FROM path WHERE {LEAF_KINDS}"
    )


def finish_counts(connection: sqlite3.Connection) -> None:
    """Record after a write that the counts are current."""
    row = (COUNTED, last_document(connection))
    connection.execute("INSERT OR REPLACE INTO counter VALUES (?, ?)", row)


def add_counts(connection: sqlite3.Connection, changes: Mapping[int, int]) -> None:
    """Add to the counts by path."""
    connection.executemany(
        "INSERT INTO path_count VALUES (?, ?)"
        " ON CONFLICT (path) DO UPDATE SET documents = documents + excluded.documents",
        sorted(changes.items()),
    )


def subtract_documents(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Subtract live documents from the counts, before they are deleted or hidden."""
    removed: Counter[PathKey] = Counter()
    for number in numbers:
        row = connection.execute("SELECT json FROM body WHERE doc = ?", (number,)).fetchone()
        if row is not None:
            removed.update(_list_leaf_paths(json_codec.decode(zlib.decompress(row[0]))))
    connection.executemany(
        "UPDATE path_count SET documents = documents - ?"
        " WHERE path = (SELECT id FROM path WHERE name = ? AND kind = ?)",
        [(count, *key) for key, count in sorted(removed.items())],
    )


def _list_leaf_paths(document: Mapping[str, Any]) -> Iterable[PathKey]:
    flat = flatten_document(document)
    yield from ((path, "string") for path in flat.strings)
    yield from ((path, "number") for path in flat.numbers)
    yield from ((path, "boolean") for path in flat.booleans)


def list_fields(
    connection: sqlite3.Connection,
    low: tuple[str, str],
    high: str | None,
    size: int,
) -> Sequence[IndexedField]:
    """List fields by name and kind, after `low` and before the name `high`."""
    below = "" if high is None else "AND name < ?"
    # Counting while reading is slow, but right: an earlier release wrote last.
    count = (
        "(SELECT documents FROM path_count WHERE path = path.id)"
        if are_counts_current(connection)
        else COUNT_OF_PATH
    )
    rows = connection.execute(
        f"SELECT name, kind, {count} AS documents FROM path"
        f" WHERE (name, kind) > (?, ?) {below} AND {LEAF_KINDS} AND length(name) <= ?"
        " AND documents > 0 ORDER BY name, kind LIMIT ?",
        (*low, *([] if high is None else [high]), MAX_LISTED_NAME, size),
    )
    return [IndexedField(*row) for row in rows]
