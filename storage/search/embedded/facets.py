"""Count documents by value of a field in the embedded index.

The tables lead from values to documents. Facets need the other direction: a column has the
documents of one field, sorted, beside their values. Columns are read once and kept in memory.
Documents never change under their number and new ones have higher numbers, so a column only grows.
"""

import sqlite3
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count, islice
from operator import itemgetter

from storage.protocols import FacetCount, FacetValue
from storage.search.documents import KEYWORD_SUFFIX
from storage.search.embedded.fields import last_document
from storage.search.facets import order_counts

MAX_CACHED_ENTRIES = 8_000_000
"""Entries of all columns in memory, of 16 bytes each."""
ENTRIES_PER_NAME = 14
"""A different string, and its count, takes as much memory as so many entries."""
MAX_CACHED_RESULTS = 200
# Looking one document up costs as much as passing over so many.
LOOKUP_COST = 12
EVERY_DOCUMENT_SQL = "SELECT id FROM doc WHERE live = 1 AND id > ?"

ColumnKey = tuple[str, int, str]
"""File, number of the path, and kind."""


@dataclass(frozen=True, slots=True)
class Column:
    """Documents up to number `last`, sorted, and beside each the value, or the term of a string."""

    last: int = 0
    documents: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[int] | array[float]" = field(default_factory=lambda: array("d"))
    names: Mapping[int, str] = field(default_factory=dict)
    last_term: int = 0
    places: "array[int] | None" = None
    """By document the place of its only value, or -1; None if a document has several values."""

    def entries(self) -> int:
        """Return the size in entries of the cache."""
        places = len(self.places or ()) // 4
        return 1 + len(self.documents) + places + ENTRIES_PER_NAME * len(self.names)


@dataclass(frozen=True, slots=True)
class LiveDocuments:
    """Which documents up to number `last` are live, a byte each.

    Of two with one `epoch` the later has what the earlier has: none was withdrawn between them.
    """

    epoch: int
    last: int = 0
    count: int = 0
    mask: bytearray = field(default_factory=lambda: bytearray(1))


@dataclass(frozen=True, slots=True)
class Hits:
    """The documents to count; `numbers` None stands for all live ones."""

    total: int
    numbers: Sequence[int] | None


class FacetCache:
    """Columns and results of one index, shared by the threads of a process."""

    def __init__(self, max_entries: int = MAX_CACHED_ENTRIES) -> None:
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._columns: OrderedDict[ColumnKey, Column] = OrderedDict()
        self._live: dict[str, LiveDocuments] = {}
        self._epochs = count()
        self._totals: dict[ColumnKey, tuple[LiveDocuments, Counter[FacetValue]]] = {}
        self._results: OrderedDict[tuple[object, ...], Sequence[FacetCount]] = OrderedDict()

    def count(
        self, connection: sqlite3.Connection, fields: Sequence[str], hits: Hits, size: int
    ) -> dict[str, Sequence[FacetCount]]:
        """Count the hits by value of each field."""
        (file,) = connection.execute(
            "SELECT file FROM pragma_database_list WHERE name = 'main'"
        ).fetchone()
        last = last_document(connection)
        counter = _FacetCounter(self, connection, file, last, hits)
        if hits.numbers is not None:
            return {name: counter.count_field(name, size) for name in fields}
        found = {}
        for name in fields:
            key = (file, last, name, size)
            with self._lock:
                counts = self._results.get(key)
            if counts is None:
                counts = counter.count_field(name, size)
                with self._lock:
                    self._results[key] = counts
                    if len(self._results) > MAX_CACHED_RESULTS:
                        self._results.popitem(last=False)
            found[name] = counts
        return found

    def get_column(self, connection: sqlite3.Connection, key: ColumnKey, last: int) -> Column:
        """Return a column that includes documents up to number `last`."""
        with self._lock:
            column = self._columns.get(key) or Column()
            if column.last < last:
                column = _extend_column(connection, column, key, last)
                self._columns[key] = column
            self._columns.move_to_end(key)
            while self.entries() > self._max_entries:
                dropped, _ = self._columns.popitem(last=False)
                self._totals.pop(dropped, None)
            return column

    def entries(self) -> int:
        """Return the size of the columns in memory."""
        return sum(map(Column.entries, self._columns.values()))

    def get_live(
        self, connection: sqlite3.Connection, file: str, last: int, total: int
    ) -> LiveDocuments:
        """Return the live documents in the connection's snapshot."""
        with self._lock:
            known = self._live.get(file)
            if known is not None and known.last == last and known.count == total:
                return known
            fresh = LiveDocuments(next(self._epochs))
            start = known if known is not None and known.last < last else fresh
            live = _extend_live(connection, start, last)
            if live.count != total:
                # Documents were replaced or withdrawn meanwhile.
                live = _extend_live(connection, fresh, last)
            if known is None or live.last >= known.last:
                self._live = {file: live}
            return live

    def count_live(
        self, key: ColumnKey, column: Column, live: LiveDocuments
    ) -> Mapping[FacetValue, int]:
        """Count the live documents of a column; only those that are new since the last time."""
        with self._lock:
            known, counts = self._totals.get(key, (live, Counter[FacetValue]()))
        start = 0
        if known is not live and known.epoch == live.epoch and known.last < live.last:
            start = bisect_right(column.documents, known.last)
        elif known is live and counts:
            return counts
        counts = counts.copy() if start else Counter()
        end = bisect_right(column.documents, live.last)
        documents, values = column.documents[start:end], column.values[start:end]
        counts.update(compress(values, map(live.mask.__getitem__, documents)))
        with self._lock:
            if key in self._columns:
                self._totals[key] = (live, counts)
        return counts


@dataclass(slots=True)
class _FacetCounter:
    """Counts the hits of one request."""

    cache: FacetCache
    connection: sqlite3.Connection
    file: str
    last: int
    hits: Hits
    mask: bytearray | None = None
    live: LiveDocuments | None = None

    def count_field(self, name: str, size: int) -> Sequence[FacetCount]:
        path = name.removesuffix(KEYWORD_SUFFIX)
        counts: dict[str, Mapping[FacetValue, int]] = {}
        for number, kind in self.connection.execute(
            "SELECT id, kind FROM path WHERE name = ? AND kind != 'object'", (path,)
        ).fetchall():
            if kind == "string" or path == name:
                key = (self.file, number, kind)
                column = self.cache.get_column(self.connection, key, self.last)
                counted = self._count_column(key, column)
                counts[kind] = _name_counts(counted, column, size) if column.names else counted
        return order_counts(counts, size)

    def _count_column(self, key: ColumnKey, column: Column) -> Mapping[FacetValue, int]:
        numbers = self.hits.numbers
        if numbers is None:
            self.live = self.live or self.cache.get_live(
                self.connection, self.file, self.last, self.hits.total
            )
            return self.cache.count_live(key, column, self.live)
        if column.places is not None:
            found = map(column.places.__getitem__, numbers)
            return Counter(column.values[at] for at in found if at >= 0)
        if len(numbers) * LOOKUP_COST < len(column.documents):
            return Counter(_look_up(column, numbers))
        if self.mask is None:
            self.mask = bytearray(self.last + 1)
            for number in numbers:
                self.mask[number] = 1
        # Another request may have seen documents that this one does not.
        end = bisect_right(column.documents, self.last)
        documents = islice(column.documents, end)
        return Counter(compress(column.values, map(self.mask.__getitem__, documents)))


def _look_up(column: Column, numbers: Sequence[int]) -> Iterator[FacetValue]:
    documents, values, end = column.documents, column.values, len(column.documents)
    for number in numbers:
        at = bisect_left(documents, number)
        while at < end and documents[at] == number:
            yield values[at]
            at += 1


def _name_counts(
    counted: Mapping[FacetValue, int], column: Column, size: int
) -> Mapping[FacetValue, int]:
    """Return counts by string instead of term; only of those that may be among the first."""
    ordered = sorted(counted.values(), reverse=True)
    least = ordered[size - 1] if len(ordered) >= size else 0
    return {column.names[int(t)]: count for t, count in counted.items() if count >= least}


def _extend_column(
    connection: sqlite3.Connection, column: Column, key: ColumnKey, last: int
) -> Column:
    """Add the documents up to number `last`."""
    _, path, kind = key
    if kind == "string":
        whole = 2 * path + 1
        names = connection.execute(
            "SELECT id, word FROM term WHERE field = ? AND id > ?", (whole, column.last_term)
        ).fetchall()
        column = replace(
            column,
            names={**column.names, **dict(names)},
            last_term=max(map(itemgetter(0), names), default=column.last_term),
        )
        sql = (
            "SELECT p.doc, p.term FROM term t CROSS JOIN posting p ON p.term = t.id AND p.doc > ?"
            " WHERE t.field = ?"
        )
        rows = connection.execute(sql, (column.last, whole)).fetchall()
    else:
        sql = "SELECT doc, value FROM number WHERE doc > ? AND path = ?"
        rows = connection.execute(sql, (column.last, path)).fetchall()
    rows.sort()
    return replace(
        column,
        last=last,
        places=_extend_places(column, rows, last),
        documents=column.documents + array("q", map(itemgetter(0), rows)),
        values=array("q" if kind == "string" else "d", column.values)
        + array("q" if kind == "string" else "d", map(itemgetter(1), rows)),
    )


def _extend_places(
    column: Column, rows: Sequence[tuple[int, float]], last: int
) -> "array[int] | None":
    """Return the places with those of new rows; None if a document has several values."""
    if column.places is None and column.last:
        return None
    places = (column.places or array("i", [-1])) + array("i", [-1]) * (last - column.last)
    for at, (document, _) in enumerate(rows, len(column.documents)):
        if places[document] >= 0:
            return None
        places[document] = at
    return places


def _extend_live(connection: sqlite3.Connection, live: LiveDocuments, last: int) -> LiveDocuments:
    rows = connection.execute(EVERY_DOCUMENT_SQL, (live.last,)).fetchall()
    # Other threads may read the old mask.
    mask = live.mask + bytearray(last - live.last)
    for (number,) in rows:
        mask[number] = 1
    return LiveDocuments(live.epoch, last, live.count + len(rows), mask)
