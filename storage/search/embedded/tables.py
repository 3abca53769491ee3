"""SQLite files and tables of the embedded index, one file per generation.

Each generation is a file, so dropping one deletes a file. A small JSON file names them; it is
replaced atomically, under the lock that every writer holds.

Words and whole strings have a number for each field; a posting is two integers and the positions of
the word. A document that is written again gets a new number; its old postings stay until a rebuild,
so no index over a document's postings is needed.

`sqlite3` is used directly: our own functions and aggregates run inside queries, and bulk inserts of
bare tuples are most of the cost of writing.
"""

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from storage.errors import TimeLimitExceeded, Unavailable
from storage.search.documents import make_not_building_error, make_version_error
from storage.search.words import ANALYSIS

TABLES_VERSION = "t1"
"""Version of the tables; part of a generation's name."""


@dataclass(frozen=True, slots=True)
class FileGenerations:
    """`current` is searched, `building` only written; `count` numbers all generations ever made."""

    current: str
    building: str | None
    count: int

    def writable_names(self) -> tuple[str, ...]:
        """Return the generations to write; Unavailable if this release can write none."""
        names = (self.current, self.building)
        ours = tuple(name for name in names if name is not None and is_current_format(name))
        if not ours:
            raise make_version_error()
        return ours


def is_current_format(name: str) -> bool:
    """Return whether a generation has this release's analysis and tables."""
    return name.rpartition("-")[0].endswith(f"-{ANALYSIS}-{TABLES_VERSION}")


class GenerationFiles:
    """The files of one embedded index: `<stem>-<analysis>-<tables>-<number>.sqlite` in a folder."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.stem = path.stem
        self._names = self.folder / f"{self.stem}.generations"

    def path(self, name: str) -> Path:
        """Return the file of a generation."""
        return self.folder / f"{name}.sqlite"

    @contextmanager
    def lock(self) -> Iterator[FileGenerations]:
        """Lock against other writers and yield the generations."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / f"{self.stem}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self._read() or self._save(FileGenerations(self._name(1), None, 1))
        finally:
            os.close(descriptor)

    def read_current(self) -> FileGenerations:
        """Return the generations; Unavailable if this release cannot read the current one."""
        found = self._read()
        if found is None:
            with self.lock() as found:
                pass
        if not is_current_format(found.current):
            raise make_version_error()
        return found

    def begin(self, generations: FileGenerations) -> str:
        """Begin a generation, or return the one being built. Call it within the lock."""
        if generations.building is not None:
            if is_current_format(generations.building):
                return generations.building
            self._remove(generations.building)
        count = generations.count + 1
        name = self._name(count)
        self._save(replace(generations, building=name, count=count))
        return name

    def finish(self, generations: FileGenerations, name: str) -> None:
        """Make the built generation current; idempotent. Call it within the lock."""
        if name == generations.current:
            return
        if name != generations.building:
            raise make_not_building_error(name)
        self._save(replace(generations, current=name, building=None))
        self._remove(generations.current)

    def _name(self, number: int) -> str:
        return f"{self.stem}-{ANALYSIS}-{TABLES_VERSION}-{number}"

    def _read(self) -> FileGenerations | None:
        try:
            return FileGenerations(**json.loads(self._names.read_bytes()))
        except FileNotFoundError:
            return None

    def _save(self, generations: FileGenerations) -> FileGenerations:
        fresh = self._names.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(asdict(generations), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._names)
        return generations

    def _remove(self, name: str) -> None:
        # Readers keep the open file; new readers find the new name.
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path(name)}{suffix}").unlink(missing_ok=True)


EMBEDDED_SCHEMA = """
CREATE TABLE doc (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: postings may point nowhere
    uuid TEXT NOT NULL,
    version TEXT NOT NULL,
    change INTEGER NOT NULL,
    live INTEGER NOT NULL,
    UNIQUE (uuid, version)
);
CREATE INDEX doc_newest ON doc (version DESC, uuid) WHERE live = 1;
CREATE TABLE body (doc INTEGER PRIMARY KEY, json BLOB NOT NULL);
CREATE TABLE path (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    UNIQUE (name, kind)
);
CREATE TABLE term (
    field INTEGER NOT NULL,  -- twice the path for words, and one more for whole strings
    word TEXT NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (field, word)
) WITHOUT ROWID;
CREATE TABLE posting (
    term INTEGER NOT NULL,
    doc INTEGER NOT NULL,
    places,  -- where the word stands: an integer, or several as an array of 32 bits each
    PRIMARY KEY (term, doc)
) WITHOUT ROWID;
CREATE TABLE present (
    path INTEGER NOT NULL,
    doc INTEGER NOT NULL,
    whole INTEGER NOT NULL,  -- whether some string of it can be found whole
    PRIMARY KEY (path, doc)
) WITHOUT ROWID;
CREATE TABLE number (
    path INTEGER NOT NULL,
    value REAL NOT NULL,
    doc INTEGER NOT NULL,
    PRIMARY KEY (path, value, doc)
) WITHOUT ROWID;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('term', 0);
"""

SQLITE_PAGE_BYTES = 8192
# Per connection, so per searching thread; writing needs more.
CACHE_KIB = 16 * 1024
WRITING_CACHE_KIB = 64 * 1024
# Size of the journal after a large transaction.
JOURNAL_BYTES = 64 * 1024 * 1024
BUSY_TIMEOUT_S = 30.0
# Steps of SQLite's virtual machine between two looks at the clock.
CLOCK_CHECK_STEPS = 20_000


def create_file(path: Path) -> None:
    """Create a file with its tables if it is absent. Call it within the lock."""
    if path.exists():
        return
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {SQLITE_PAGE_BYTES}")
        connection.executescript(f"BEGIN IMMEDIATE; {EMBEDDED_SCHEMA} COMMIT;")
    finally:
        connection.close()
    fresh.replace(path)


def open_connection(path: Path) -> sqlite3.Connection:
    """Open a connection for one thread; sqlite3.OperationalError if there is no such file."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL: the catalog records a document as indexed only because this commit is durable.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


@contextmanager
def limit_time(connection: sqlite3.Connection, seconds: float) -> Iterator[Callable[[], None]]:
    """Raise TimeLimitExceeded if the block's statements take longer than `seconds`.

    Between statements, the block calls what this yields.
    """
    deadline = time.monotonic() + seconds
    exceeded = TimeLimitExceeded(f"the search took longer than {seconds:g} s")

    def check_time() -> None:
        if time.monotonic() > deadline:
            raise exceeded

    connection.set_progress_handler(lambda: time.monotonic() > deadline, CLOCK_CHECK_STEPS)
    try:
        yield check_time
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise exceeded from error
        raise
    finally:
        connection.set_progress_handler(None, 0)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise Unavailable for errors of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        message = f"the search index is unavailable: {error}"
        raise Unavailable(message, retry_after_s=5) from error
