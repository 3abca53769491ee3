"""The embedded search index of one replica."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from storage.model import FQID
from storage.protocols import (
    FacetCounts,
    IndexedDocument,
    IndexedField,
    IndexRefusal,
    SearchHit,
    SearchPage,
)
from storage.search.documents import (
    decode_page_token,
    decompress_within,
    encode_page_token,
    prepare_each,
)
from storage.search.embedded import fields as counted_fields
from storage.search.embedded import tables
from storage.search.embedded.documents import PreparedRows, copy_stubs, prepare_rows, write_rows
from storage.search.embedded.facets import FacetCache, Hits
from storage.search.embedded.queries import SetQuery, compile_set, next_prefix
from storage.search.embedded.tables import GenerationFiles, is_current_format
from storage.search.grammar.clauses import Clause, MatchAllClause

MAX_OPEN_RETRIES = 5
IDS_PER_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class PageOrder:
    """An order of hits: `first` is before every version and uuid in it."""

    first: tuple[str, str]
    after: str
    sql: str


NEWEST_FIRST = PageOrder(
    ("\U0010ffff", ""),
    "d.version <= ? AND NOT (d.version = ? AND d.uuid <= ?)",
    "d.version DESC, d.uuid",
)
OLDEST_FIRST = PageOrder(
    ("", "\U0010ffff"),
    "d.version >= ? AND NOT (d.version = ? AND d.uuid >= ?)",
    "d.version, d.uuid DESC",
)


class EmbeddedIndex:
    """See SearchIndex; SQLite files of one replica. Connections are lazy, one per thread and
    process."""

    def __init__(
        self, path: Path, *, time_limit_s: float = 10.0, field_limit: int = 10_000
    ) -> None:
        self._files = GenerationFiles(Path(path))
        self._time_limit_s = time_limit_s
        self._field_limit = field_limit
        self._thread_state = threading.local()
        self._facets = FacetCache()

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[IndexRefusal]:
        """See SearchIndex."""
        prepare = partial(prepare_rows, field_limit=self._field_limit)
        prepared, refusals = prepare_each(documents, prepare)
        if prepared:
            self._write(prepared)
        return refusals

    def _write(self, documents: Sequence[PreparedRows]) -> None:
        with tables.translate_errors(), self._files.lock() as generations:
            for name in generations.writable_names():
                tables.create_file(self._files.path(name))
                connection = self._get_connection(name)
                # Make room for the pages that a large transaction changes.
                connection.execute(f"PRAGMA cache_size = -{tables.WRITING_CACHE_KIB}")
                connection.execute("BEGIN IMMEDIATE")
                with connection:
                    write_rows(connection, documents)

    def search(
        self,
        query: Clause,
        *,
        size: int,
        after: str | None = None,
        raw: bool = False,
        raw_limit: int | None = None,
        oldest_first: bool = False,
    ) -> SearchPage:
        """See SearchIndex."""
        order = OLDEST_FIRST if oldest_first else NEWEST_FIRST
        start = order.first if after is None else decode_page_token(after)
        with self._read() as connection, tables.limit_time(connection, self._time_limit_s):
            total = self._find_hits(connection, query)
            source = EVERY_DOCUMENT
            if not isinstance(query, MatchAllClause):
                last = counted_fields.last_document(connection)
                source = MANY_HITS if total * MANY_HITS_SHARE > last else HITS
            rows = _read_page(connection, source, order, start, size + 1)
            hits = [
                SearchHit(
                    uuid,
                    version,
                    _read_body(connection, number, raw_limit) if raw else None,
                    encode_page_token(version, uuid),
                )
                for number, uuid, version in rows[:size]
            ]
        more = len(rows) > size and bool(hits)
        return SearchPage(hits, total, hits[-1].page_token if more else None)

    def count_facets(self, query: Clause, fields: Sequence[str], *, size: int) -> FacetCounts:
        """See SearchIndex."""
        with self._read() as connection, tables.limit_time(connection, self._time_limit_s):
            total = self._find_hits(connection, query)
            hits = Hits(total, _list_hits(connection, query, total))
            counts = self._facets.count(connection, fields, hits, size)
            return FacetCounts(total, counts)

    def list_fields(
        self, *, prefix: str = "", after: tuple[str, str] | None = None, size: int
    ) -> Sequence[IndexedField]:
        """See SearchIndex."""
        low = max((prefix, ""), after or ("", ""))
        with self._read() as connection, tables.limit_time(connection, self._time_limit_s):
            return counted_fields.list_fields(connection, low, next_prefix(prefix), size)

    def _find_hits(self, connection: sqlite3.Connection, query: Clause) -> int:
        """Count matches, with their ids in `temp.hits`; keeps those of this thread's last query."""
        if isinstance(query, MatchAllClause):
            return _count_matches(connection, query)
        key = (connection, counted_fields.last_document(connection), query)
        known: tuple[object, int] | None = vars(self._thread_state).pop("hits", None)
        total = known[1] if known and known[0] == key else _count_matches(connection, query)
        self._thread_state.hits = key, total
        return total

    def get(self, uuid: str, version: str) -> bytes | None:
        """See SearchIndex."""
        with self._read() as connection:
            found = connection.execute(
                "SELECT id FROM doc WHERE uuid = ? AND version = ? AND live = 1", (uuid, version)
            ).fetchone()
            return _read_body(connection, found[0]) if found else None

    def list_ids(self) -> Iterator[FQID]:
        """See SearchIndex; reads a page at a time."""
        after = ("", "")
        while True:
            with self._read() as connection:
                rows = connection.execute(
                    "SELECT uuid, version FROM doc WHERE (uuid, version) > (?, ?)"
                    " ORDER BY uuid, version LIMIT ?",
                    (*after, IDS_PER_PAGE),
                ).fetchall()
            yield from (FQID(*row) for row in rows)
            if len(rows) < IDS_PER_PAGE:
                return
            after = rows[-1]

    def begin_rebuild(self) -> str:
        """See SearchIndex; resumes a rebuild that was begun."""
        with tables.translate_errors(), self._files.lock() as generations:
            name = self._files.begin(generations)
            tables.create_file(self._files.path(name))
            return name

    def finish_rebuild(self, generation: str) -> None:
        """See SearchIndex."""
        with tables.translate_errors(), self._files.lock() as generations:
            if generation == generations.building and is_current_format(generations.current):
                connection = self._get_connection(generation)
                copy_stubs(connection, self._files.path(generations.current))
            self._files.finish(generations, generation)

    def ping(self) -> str:
        """See SearchIndex."""
        with self._read() as connection:
            connection.execute("SELECT 1 FROM counter").fetchone()
        return f"SQLite {sqlite3.sqlite_version}, {self._files.read_current().current}"

    def close(self) -> None:
        """Close this thread's connections; they reopen on use."""
        vars(self._thread_state).pop("process", None)
        vars(self._thread_state).pop("hits", None)
        for connection in vars(self._thread_state).pop("connections", {}).values():
            connection.close()

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """Open a read transaction on the current generation."""
        with tables.translate_errors():
            connection = self._open_current()
            connection.execute("BEGIN")
            with connection:
                yield connection

    def _open_current(self) -> sqlite3.Connection:
        for _ in range(MAX_OPEN_RETRIES):
            name = self._files.read_current().current
            # A rebuild may have dropped the file meanwhile, or no file was written yet.
            with suppress(sqlite3.OperationalError):
                return self._get_connection(name)
            with self._files.lock() as generations:
                tables.create_file(self._files.path(generations.current))
        return self._get_connection(self._files.read_current().current)

    def _get_connection(self, name: str) -> sqlite3.Connection:
        """Return this thread's connection to a generation."""
        if vars(self._thread_state).get("process") != os.getpid():
            # Closing connections of a parent process would corrupt their state.
            self._thread_state.process, self._thread_state.connections = os.getpid(), {}
        connections: dict[str, sqlite3.Connection] = self._thread_state.connections
        if name not in connections:
            for dropped in [each for each in connections if not self._files.path(each).exists()]:
                connections.pop(dropped).close()
            connections[name] = tables.open_connection(self._files.path(name))
        return connections[name]


def _count_matches(connection: sqlite3.Connection, query: Clause) -> int:
    """Count matches; unless all documents match, their ids are in `temp.hits` afterwards."""
    if isinstance(query, MatchAllClause):
        (total,) = connection.execute("SELECT count(*) FROM doc WHERE live = 1").fetchone()
        return int(total)
    search = SetQuery(connection)
    name = compile_set(search, query)
    search.install()
    connection.execute("DELETE FROM temp.hits")
    select = "SELECT DISTINCT d.id FROM {found} f CROSS JOIN doc d ON d.id = f.doc WHERE d.live = 1"
    found = search.statement(name, select)
    connection.execute(f"INSERT INTO temp.hits {found}", search.parameters)
    (total,) = connection.execute("SELECT count(*) FROM temp.hits").fetchone()
    return int(total)


def _list_hits(connection: sqlite3.Connection, query: Clause, total: int) -> list[int] | None:
    """Return the documents of `temp.hits`, in order; None if every document matches."""
    if isinstance(query, MatchAllClause):
        return None
    may_be_all = 2 * total > counted_fields.last_document(connection)
    if may_be_all and total == _count_matches(connection, MatchAllClause()):
        return None
    return [doc for (doc,) in connection.execute("SELECT doc FROM temp.hits")]


# The documents of a page: all in the order of the index, hits to be sorted, or hits in its order.
EVERY_DOCUMENT = "doc d INDEXED BY doc_newest"
HITS = "temp.hits h CROSS JOIN doc d ON d.id = h.doc"
MANY_HITS = "doc d INDEXED BY doc_newest CROSS JOIN temp.hits h ON h.doc = d.id"
# Passing over so many documents costs less than looking up and sorting one hit.
MANY_HITS_SHARE = 8


def _read_page(
    connection: sqlite3.Connection,
    source: str,
    order: PageOrder,
    start: tuple[str, str],
    size: int,
) -> list[tuple[int, str, str]]:
    """Return number, uuid and version of the documents after a position."""
    version, uuid = start
    return connection.execute(
        f"SELECT d.id, d.uuid, d.version FROM {source} WHERE d.live = 1"
        f" AND {order.after} ORDER BY {order.sql} LIMIT ?",
        (version, version, uuid, size),
    ).fetchall()


def _read_body(
    connection: sqlite3.Connection, number: int, limit: int | None = None
) -> bytes | None:
    # A text that is larger compressed is not even read.
    found = connection.execute(
        "SELECT json FROM body WHERE doc = ? AND (? IS NULL OR length(json) <= ?)",
        (number, limit, limit),
    ).fetchone()
    return decompress_within(found[0], limit) if found else None
