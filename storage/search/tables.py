"""The tables of one generation of the embedded index, and connections to them.

Words and whole strings are numbered once for each field; a posting is two integers and the word's
places. A document that is written again gets a new number and its old postings stay behind,
pointing nowhere, until a rebuild: no index is needed that finds the postings of a document.

`sqlite3` is used directly: functions and aggregates of our own run inside of the queries, and bulk
inserts of bare tuples are most of what writing costs.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import StoreError, TimedOut, Unavailable

SCHEMA = """
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

PAGE_BYTES = 8192
# Of each connection, so of each thread that searches; what writes needs more.
CACHE_KIB = 16 * 1024
WRITING_CACHE_KIB = 64 * 1024
# What a large transaction leaves of its journal.
JOURNAL_BYTES = 64 * 1024 * 1024
BUSY_TIMEOUT_S = 30.0
# How many steps of SQLite's machine pass between two looks at the clock.
STEPS_BETWEEN_LOOKS = 20_000


def create(path: Path) -> None:
    """Make the file if it is not there: never without its tables. Within the writers' lock."""
    if path.exists():
        return
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
    finally:
        connection.close()
    fresh.replace(path)


def connect(path: Path) -> sqlite3.Connection:
    """A connection for one thread; sqlite3.OperationalError when there is no such file."""
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
    connection.execute("CREATE TEMP TABLE hits (doc INTEGER PRIMARY KEY)")
    return connection


def prepare_to_write(connection: sqlite3.Connection) -> None:
    """Room for the pages that a large transaction changes."""
    connection.execute(f"PRAGMA cache_size = -{WRITING_CACHE_KIB}")


@contextmanager
def transaction(connection: sqlite3.Connection, mode: str) -> Iterator[None]:
    """All of it or nothing, and one snapshot for all of it; `mode` is DEFERRED or IMMEDIATE."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


@contextmanager
def time_limit(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """TimedOut when the work inside takes longer."""
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
    try:
        yield
    except sqlite3.OperationalError as error:
        # Our own functions raise for one reason only: a phrase that takes too many steps.
        if "interrupted" in str(error) or "user-defined" in str(error):
            raise TimedOut(f"the search took longer than {seconds:g} s") from error
        raise
    finally:
        connection.set_progress_handler(None, 0)


def translated(error: sqlite3.Error) -> StoreError:
    """The engine's error in our words."""
    return Unavailable(f"the search index cannot be used now: {error}", retry_after_s=5)
