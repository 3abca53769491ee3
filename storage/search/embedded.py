"""The embedded search engine: SQLite files in a folder, written and read by many processes."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.model import FQID
from storage.protocols import Hit, IndexedDocument, Refusal, SearchPage
from storage.query.clauses import Clause, MatchAll
from storage.search import tables
from storage.search.filling import Prepared, carry_stubs, fill, prepare
from storage.search.finding import find
from storage.search.generations import GenerationFiles, is_ours
from storage.search.pointers import place, pointer
from storage.search.sets import Search
from storage.search.verbatim import RefusedError, unpacked

# Up to this many hits are sorted; more are met in order along the index of versions.
FEW_HITS = 5_000
RETRIES_OF_A_VANISHED_FILE = 5
PAGE = 1_000


class EmbeddedIndex:
    """One replica's documents; connections are made lazily, one a thread, so after any fork."""

    def __init__(
        self, path: Path, *, time_limit_s: float = 10.0, field_limit: int = 10_000
    ) -> None:
        self._files = GenerationFiles(Path(path))
        self._time_limit_s = time_limit_s
        self._field_limit = field_limit
        self._mine = threading.local()

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[Refusal]:
        """Store or replace, and return once all are searchable; refusals never stop the others."""
        prepared: list[Prepared] = []
        refusals = []
        for document in documents:
            try:
                prepared.append(prepare(document, field_limit=self._field_limit))
            except RefusedError as error:
                refusals.append(Refusal(document.uuid, document.version, str(error)))
        if prepared:
            self._write(prepared)
        return refusals

    def _write(self, documents: Sequence[Prepared]) -> None:
        with _translated(), self._files.locked() as generations:
            for name in generations.written():
                tables.create(self._files.path(name))
                connection = self._connection(name)
                tables.prepare_to_write(connection)
                with tables.transaction(connection, "IMMEDIATE"):
                    fill(connection, documents)

    def search(
        self, query: Clause, *, size: int, after: str | None = None, raw: bool = False
    ) -> SearchPage:
        """Live documents that match, newest version first, then by uuid."""
        start = _start(after)
        with self._reading() as connection, tables.time_limit(connection, self._time_limit_s):
            total = _total(connection, query)
            filtered = "" if isinstance(query, MatchAll) else "AND d.id IN temp.hits"
            if filtered and total <= FEW_HITS:
                rows = _sorted_page(connection, start, size + 1)
            else:
                rows = _walked_page(connection, start, size + 1, filtered)
            hits = [
                _hit(connection, number, uuid, version, raw=raw)
                for number, uuid, version in rows[:size]
            ]
        more = len(rows) > size and bool(hits)
        return SearchPage(hits, total, hits[-1].place if more else None)

    def get(self, uuid: str, version: str) -> bytes | None:
        """The verbatim live document, or None."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT id FROM doc WHERE uuid = ? AND version = ? AND live = 1", (uuid, version)
            ).fetchone()
            return _body(connection, found[0]) if found else None

    def held(self) -> Iterator[FQID]:
        """What is there, stubs too, by uuid, then version; a page at a time."""
        after = ("", "")
        while True:
            with self._reading() as connection:
                rows = connection.execute(
                    "SELECT uuid, version FROM doc WHERE (uuid, version) > (?, ?)"
                    " ORDER BY uuid, version LIMIT ?",
                    (*after, PAGE),
                ).fetchall()
            yield from (FQID(*row) for row in rows)
            if len(rows) < PAGE:
                return
            after = rows[-1]

    def begin_rebuild(self) -> str:
        """Open a new generation, or go on with the one that is being built; returns its name."""
        with _translated(), self._files.locked() as generations:
            name = self._files.begin(generations)
            tables.create(self._files.path(name))
            return name

    def finish_rebuild(self, generation: str) -> None:
        """Search the new generation from now on and drop the old one."""
        with _translated(), self._files.locked() as generations:
            if generation == generations.building and is_ours(generations.current):
                connection = self._connection(generation)
                carry_stubs(connection, self._files.path(generations.current))
            self._files.finish(generations, generation)

    def ping(self) -> str:
        """The engine's name and version."""
        with self._reading() as connection:
            connection.execute("SELECT 1 FROM counter").fetchone()
        return f"SQLite {sqlite3.sqlite_version}, {self._files.now().current}"

    def close(self) -> None:
        """Close this thread's connections; new ones are made when they are wanted."""
        vars(self._mine).pop("process", None)
        for connection in vars(self._mine).pop("connections", {}).values():
            connection.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot of what is searched now."""
        with _translated():
            connection = self._current()
            with tables.transaction(connection, "DEFERRED"):
                yield connection

    def _current(self) -> sqlite3.Connection:
        for _ in range(RETRIES_OF_A_VANISHED_FILE):
            name = self._files.now().current
            # A rebuild may have dropped the file since its name was read, or none was written yet.
            with suppress(sqlite3.OperationalError):
                return self._connection(name)
            with self._files.locked() as generations:
                tables.create(self._files.path(generations.current))
        return self._connection(self._files.now().current)

    def _connection(self, name: str) -> sqlite3.Connection:
        """This thread's connection to a generation; those to others it had are kept for writing."""
        if vars(self._mine).get("process") != os.getpid():
            # Connections of a parent process are left alone: closing them here would harm it.
            self._mine.process, self._mine.connections = os.getpid(), {}
        connections: dict[str, sqlite3.Connection] = self._mine.connections
        if name not in connections:
            self._forget_dropped(connections)
            connections[name] = tables.connect(self._files.path(name))
        return connections[name]

    def _forget_dropped(self, connections: dict[str, sqlite3.Connection]) -> None:
        for name in [name for name in connections if not self._files.path(name).exists()]:
            connections.pop(name).close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise tables.translated(error) from error


def _total(connection: sqlite3.Connection, query: Clause) -> int:
    """Count what matches; unless that is everything, it is in `temp.hits` afterwards."""
    if isinstance(query, MatchAll):
        (total,) = connection.execute("SELECT count(*) FROM doc WHERE live = 1").fetchone()
        return int(total)
    search = Search(connection)
    name = find(search, query)
    search.install()
    connection.execute("DELETE FROM temp.hits")
    select = "SELECT DISTINCT d.id FROM {found} f CROSS JOIN doc d ON d.id = f.doc WHERE d.live = 1"
    found = search.statement(name, select)
    connection.execute(f"INSERT INTO temp.hits {found}", search.parameters)
    (total,) = connection.execute("SELECT count(*) FROM temp.hits").fetchone()
    return int(total)


Row = tuple[int, str, str]

AFTER = "d.live = 1 AND d.version <= ? AND NOT (d.version = ? AND d.uuid <= ?)"


def _sorted_page(connection: sqlite3.Connection, start: tuple[str, str], size: int) -> list[Row]:
    version, uuid = start
    return connection.execute(
        "SELECT d.id, d.uuid, d.version FROM temp.hits h CROSS JOIN doc d ON d.id = h.doc"
        f" WHERE {AFTER} ORDER BY d.version DESC, d.uuid LIMIT ?",
        (version, version, uuid, size),
    ).fetchall()


def _walked_page(
    connection: sqlite3.Connection, start: tuple[str, str], size: int, filtered: str
) -> list[Row]:
    version, uuid = start
    return connection.execute(
        "SELECT d.id, d.uuid, d.version FROM doc d INDEXED BY doc_newest"
        f" WHERE {AFTER} {filtered} ORDER BY d.version DESC, d.uuid LIMIT ?",
        (version, version, uuid, size),
    ).fetchall()


def _hit(connection: sqlite3.Connection, number: int, uuid: str, version: str, *, raw: bool) -> Hit:
    body = _body(connection, number) if raw else None
    return Hit(uuid, version, None, body, pointer(version, uuid))


def _body(connection: sqlite3.Connection, number: int) -> bytes:
    (compressed,) = connection.execute("SELECT json FROM body WHERE doc = ?", (number,)).fetchone()
    return unpacked(compressed)


FIRST = ("\U0010ffff", "")
"""Before every version and uuid, in the order of pages."""


def _start(after: str | None) -> tuple[str, str]:
    return FIRST if after is None else place(after)
