"""The embedded search index of one replica."""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
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
from storage.search.embedded.document_sets import (
    DocumentSet,
    SetCache,
    list_documents,
    list_flags,
)
from storage.search.embedded.documents import PreparedRows, copy_stubs, prepare_rows, write_rows
from storage.search.embedded.facets import FacetCache
from storage.search.embedded.queries import Snapshot, next_prefix
from storage.search.embedded.tables import GenerationFiles, is_current_format
from storage.search.grammar.clauses import Clause

DocumentRow = tuple[int, str, str]
"""Number, uuid and version of a document."""

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
        self._sets, self._facets = SetCache(), FacetCache()

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[IndexRefusal]:
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
        order = OLDEST_FIRST if oldest_first else NEWEST_FIRST
        start = order.first if after is None else decode_page_token(after)
        with self._read_snapshot() as snapshot:
            found = snapshot.find_hits(query)
            rows = _read_page(snapshot, found, order, start, size + 1)
            hits = [
                SearchHit(
                    uuid,
                    version,
                    _read_body(snapshot.connection, number, raw_limit) if raw else None,
                    encode_page_token(version, uuid),
                )
                for number, uuid, version in rows[:size]
            ]
        more = len(rows) > size and bool(hits)
        return SearchPage(hits, found.bit_count(), hits[-1].page_token if more else None)

    def count_facets(self, query: Clause, fields: Sequence[str], *, size: int) -> FacetCounts:
        with self._read_snapshot() as snapshot:
            hits = snapshot.find_hits(query)
            return FacetCounts(hits.bit_count(), self._facets.count(snapshot, fields, hits, size))

    def list_fields(
        self, *, prefix: str = "", after: tuple[str, str] | None = None, size: int
    ) -> Sequence[IndexedField]:
        low = max((prefix, ""), after or ("", ""))
        with self._read() as connection, tables.limit_time(connection, self._time_limit_s):
            return counted_fields.list_fields(connection, low, next_prefix(prefix), size)

    def get(self, uuid: str, version: str) -> bytes | None:
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
        with tables.translate_errors(), self._files.lock() as generations:
            if generation == generations.building and is_current_format(generations.current):
                connection = self._get_connection(generation)
                copy_stubs(connection, self._files.path(generations.current))
            self._files.finish(generations, generation)

    def ping(self) -> str:
        with self._read() as connection:
            connection.execute("SELECT 1 FROM counter").fetchone()
        return f"SQLite {sqlite3.sqlite_version}, {self._files.read_current().current}"

    def close(self) -> None:
        """Close this thread's connections; they reopen on use."""
        vars(self._thread_state).pop("process", None)
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

    @contextmanager
    def _read_snapshot(self) -> Iterator[Snapshot]:
        """Open a read transaction for a search, of limited time."""
        with self._read() as connection, tables.limit_time(connection, self._time_limit_s) as check:
            yield Snapshot(connection, self._sets, check)

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


# Passing over a document costs less than looking one up and sorting it.
PASSES_PER_HIT = 2


def _read_page(
    snapshot: Snapshot, hits: DocumentSet, order: PageOrder, start: tuple[str, str], size: int
) -> list[DocumentRow]:
    """Return number, uuid and version of the hits after a position."""
    flags, total = list_flags(hits, snapshot.last), hits.bit_count()
    version, uuid = start
    bounds = (version, version, uuid)
    sql = f"SELECT d.id, d.uuid, d.version FROM {{}} WHERE d.live = 1 AND {order.after}"
    sql += f" ORDER BY {order.sql} LIMIT ?"
    passes = PASSES_PER_HIT * total
    if size * snapshot.last <= passes * total:
        every = sql.format("doc d INDEXED BY doc_newest")
        passed = snapshot.connection.execute(every, (*bounds, passes))
        rows = list(islice((row for row in passed if flags[row[0]]), size))
        if len(rows) == size or passes >= snapshot.last:
            return rows
    # The hits are few, or far apart here.
    few = sql.format("json_each(?) h CROSS JOIN doc d ON d.id = h.value")
    numbers = json.dumps(list_documents(flags))
    return snapshot.connection.execute(few, (numbers, *bounds, size)).fetchall()


def _read_body(
    connection: sqlite3.Connection, number: int, limit: int | None = None
) -> bytes | None:
    # A text that is larger compressed is not even read.
    found = connection.execute(
        "SELECT json FROM body WHERE doc = ? AND (? IS NULL OR length(json) <= ?)",
        (number, limit, limit),
    ).fetchone()
    return decompress_within(found[0], limit) if found else None
