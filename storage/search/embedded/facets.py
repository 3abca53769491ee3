"""Count documents by value of a field in the embedded index.

The tables lead from values to documents. Facets need the other direction: a column has the
documents of one field, sorted, beside their values; with few values also a set of documents for
each. Columns are read once and kept in memory. Documents never change under their number and new
ones have higher numbers, so a column only grows.
"""

import sqlite3
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from operator import itemgetter

from storage.protocols import FacetCount, FacetValue
from storage.search.documents import KEYWORD_SUFFIX, order_counts
from storage.search.embedded.document_sets import (
    DocumentSet,
    list_documents,
    list_flags,
    make_sparse_set,
)
from storage.search.embedded.queries import Snapshot

MAX_CACHED_ENTRIES = 8_000_000
"""Entries of all columns in memory, of 16 bytes each."""
ENTRIES_PER_NAME = 14
"""A different string, and its count, takes as much memory as so many entries."""
DOCUMENTS_PER_ENTRY = 128
"""A set takes a bit for each document up to the last, so as much as an entry for so many."""
SETS_FACTOR = 4
"""The sets of a column take at most so many times the memory of its entries."""
# Looking one document up costs as much as passing over so many.
LOOKUP_COST = 12
# Counting a set takes as long as passing over one entry for so many documents up to the last.
DOCUMENTS_PER_PASS = 1_600

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
    sets: Mapping[FacetValue, DocumentSet] | None = field(default_factory=dict)
    """The documents of each value; None if these are too many."""

    def entries(self) -> int:
        """Return the size in entries of the cache."""
        sets = len(self.sets or ()) * self.last // DOCUMENTS_PER_ENTRY
        return 1 + len(self.documents) + sets + ENTRIES_PER_NAME * len(self.names)


class FacetCache:
    """Columns of one index, shared by the threads of a process."""

    def __init__(self, max_entries: int = MAX_CACHED_ENTRIES) -> None:
        self._max_entries = max_entries
        self._lock, self._first_reads = threading.Lock(), threading.Lock()
        self._columns: OrderedDict[ColumnKey, Column] = OrderedDict()

    def count(
        self, snapshot: Snapshot, fields: Sequence[str], hits: DocumentSet, size: int
    ) -> dict[str, Sequence[FacetCount]]:
        """Count the hits by value of each field."""
        counter = _FacetCounter(snapshot, hits, hits.bit_count())
        found = {}
        for name in fields:
            path = name.removesuffix(KEYWORD_SUFFIX)
            counts: dict[str, Mapping[FacetValue, int]] = {}
            for number, kind in snapshot.connection.execute(
                "SELECT id, kind FROM path WHERE name = ? AND kind != 'object'", (path,)
            ).fetchall():
                if kind == "string" or path == name:
                    column = self._get_column(snapshot, (snapshot.file, number, kind))
                    counted = counter.count_column(column)
                    counts[kind] = _name_counts(counted, column, size) if column.names else counted
            found[name] = order_counts(counts, size)
        return found

    def _get_column(self, snapshot: Snapshot, key: ColumnKey) -> Column:
        """Return a column that has all documents of the snapshot."""
        column = self._columns.get(key)
        if column is None:
            # One at a time: it may take seconds and much memory, but others count meanwhile.
            with self._first_reads:
                snapshot.check_time()
                return self._extend_column(snapshot, key)
        return self._extend_column(snapshot, key)

    def _extend_column(self, snapshot: Snapshot, key: ColumnKey) -> Column:
        column = self._columns.get(key) or Column()
        if column.last < snapshot.last:
            column = _extend_column(snapshot.connection, column, key, snapshot.last)
        with self._lock:
            known = self._columns.get(key)
            if known is None or known.last < column.last:
                self._columns[key] = column
            self._columns.move_to_end(key)
            while self.entries() > self._max_entries:
                self._columns.popitem(last=False)
        return column

    def entries(self) -> int:
        """Return the size of the columns in memory."""
        return sum(map(Column.entries, self._columns.values()))


@dataclass(slots=True)
class _FacetCounter:
    """Counts the hits of one request, by value of each column in the way that is the fastest."""

    snapshot: Snapshot
    hits: DocumentSet
    total: int
    flags: bytes | None = None
    numbers: Sequence[int] | None = None

    def count_column(self, column: Column) -> Mapping[FacetValue, int]:
        """Return the number of hits by value, or by term of a string."""
        passes = min(len(column.documents), LOOKUP_COST * self.total)
        if column.sets is not None and len(column.sets) * column.last < DOCUMENTS_PER_PASS * passes:
            counts = (
                (value, (found & self.hits).bit_count()) for value, found in column.sets.items()
            )
            return {value: count for value, count in counts if count}
        if self.flags is None:
            self.flags = list_flags(self.hits, self.snapshot.last)
        if passes < len(column.documents):
            self.numbers = self.numbers or list_documents(self.flags)
            return Counter(_look_up(column, self.numbers))
        # Another request may have seen documents that this one does not.
        end = bisect_right(column.documents, self.snapshot.last)
        documents = islice(column.documents, end)
        return Counter(compress(column.values, map(self.flags.__getitem__, documents)))


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
        sets=_extend_sets(column, rows, last),
        documents=column.documents + array("q", map(itemgetter(0), rows)),
        values=array("q" if kind == "string" else "d", column.values)
        + array("q" if kind == "string" else "d", map(itemgetter(1), rows)),
    )


def _extend_sets(
    column: Column, rows: Sequence[tuple[int, FacetValue]], last: int
) -> Mapping[FacetValue, DocumentSet] | None:
    """Return the sets with the documents of new rows; None if they would take too much memory."""
    if column.sets is None:
        return None
    new: defaultdict[FacetValue, list[int]] = defaultdict(list)
    for document, value in rows:
        new[value].append(document)
    count = len({*column.sets, *new})
    entries = SETS_FACTOR * (len(column.documents) + len(rows))
    if (count - 1) * last > DOCUMENTS_PER_ENTRY * entries:
        return None
    sets = dict(column.sets)
    for value, documents in new.items():
        sets[value] = sets.get(value, 0) | make_sparse_set(documents)
    return sets
