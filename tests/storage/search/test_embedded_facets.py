"""Counts of the embedded engine: earlier releases, concurrent writes and memory."""

import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from storage.protocols import IndexedDocument
from storage.search.embedded import tables
from storage.search.embedded.document_sets import DocumentSet, SetCache
from storage.search.embedded.facets import FacetCache
from storage.search.embedded.index import EmbeddedIndex
from storage.search.embedded.queries import Snapshot
from storage.search.grammar.clauses import MatchAllClause
from storage.search.grammar.parser import parse_query

VERSION = "2026-01-01T000000.000000Z"
EVERYTHING = MatchAllClause()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[EmbeddedIndex]:
    opened = EmbeddedIndex(tmp_path / "aws.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def file(index: EmbeddedIndex, tmp_path: Path) -> Path:
    """The index's file, with 20 documents."""
    index.write([made(number) for number in range(20)])
    (found,) = tmp_path.glob("*.sqlite")
    return found


def made(number: int) -> IndexedDocument:
    uuid = f"00000000-0000-4000-8000-{number:012x}"
    return IndexedDocument(uuid, VERSION, "shape", 1, {"text": f"t{number:02}", "n": number})


def documents_with(index: EmbeddedIndex, name: str) -> int:
    (field,) = index.list_fields(prefix=name, size=50)
    return field.documents


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE path_count; DELETE FROM counter WHERE name = 'counted'",
        "UPDATE path_count SET documents = 99; UPDATE sqlite_sequence SET seq = seq + 1",
    ],
    ids=["never counted", "wrote since"],
)
def test_fields_are_right_after_a_release_that_counts_none(
    index: EmbeddedIndex, file: Path, change: str
) -> None:
    with closing(sqlite3.connect(file)) as older:
        older.executescript(change)
    assert (documents_with(index, "n"), documents_with(index, "text")) == (20, 20)
    index.write([made(20)])
    assert (documents_with(index, "n"), documents_with(index, "text")) == (21, 21)
    with closing(sqlite3.connect(file)) as found:
        assert {21} == {count for (count,) in found.execute("SELECT documents FROM path_count")}


def test_an_older_snapshot_counts_no_newer_documents(index: EmbeddedIndex, file: Path) -> None:
    cache, sets = FacetCache(), SetCache()
    older, newer = tables.open_connection(file), tables.open_connection(file)
    older.execute("BEGIN")
    older.execute("SELECT 1 FROM doc").fetchone()
    index.write([made(number) for number in range(20, 25)])
    for connection, total in ((newer, 25), (older, 20), (newer, 25)):
        snapshot = Snapshot(connection, sets, lambda: None)
        hits = snapshot.find_hits(EVERYTHING)
        assert snapshot.find_hits(parse_query({"exists": {"field": "n"}})) == hits
        for counts in cache.count(snapshot, ["n", "text"], hits, 100).values():
            assert [each.count for each in counts] == [1] * total
    for connection in (older, newer):
        connection.close()


def test_a_write_drops_the_sets_of_earlier_documents(index: EmbeddedIndex, file: Path) -> None:
    class RecordingCache(SetCache):
        """A cache that notes the keys of its sets."""

        def put(self, key: Hashable, found: DocumentSet) -> None:
            keys.append(key)
            super().put(key, found)

    keys: list[Hashable] = []
    sets, query = RecordingCache(), parse_query({"exists": {"field": "n"}})
    with closing(tables.open_connection(file)) as connection:
        for number in (20, 21, 22):
            Snapshot(connection, sets, lambda: None).find_hits(query)
            index.write([made(number)])
    assert len(keys) == 3
    assert [sets.get(key) is None for key in keys] == [True, True, False]


def test_threads_count_while_documents_arrive(index: EmbeddedIndex, file: Path) -> None:
    def count(_: int) -> bool:
        counts = index.count_facets(EVERYTHING, ["n", "text"], size=100)
        index.close()
        return all(len(found) == counts.total for found in counts.facets.values())

    with ThreadPoolExecutor(4) as pool:
        results = pool.map(count, range(60))
        for number in range(20, 60):
            index.write([made(number)])
        assert all(results)


def test_others_count_while_a_large_column_is_read(index: EmbeddedIndex, file: Path) -> None:
    cache, sets = FacetCache(), SetCache()
    reads, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        reads.set()
        assert goes_on.wait(20)

    def count(name: str, check_time: Callable[[], None]) -> int:
        with closing(tables.open_connection(file)) as connection:
            snapshot = Snapshot(connection, sets, check_time)
            return len(cache.count(snapshot, [name], snapshot.find_hits(EVERYTHING), 100)[name])

    with ThreadPoolExecutor(2) as pool:
        assert pool.submit(count, "n", lambda: None).result(20) == 20
        large = pool.submit(count, "text", wait)
        assert reads.wait(20)
        index.write([made(20)])
        assert pool.submit(count, "n", lambda: None).result(20) == 21
        goes_on.set()
        assert large.result(20) == 20


def test_columns_beyond_the_limit_of_memory_are_dropped(file: Path) -> None:
    cache = FacetCache(max_entries=50)
    with closing(tables.open_connection(file)) as connection:
        for _ in range(2):
            snapshot = Snapshot(connection, SetCache(), lambda: None)
            found = cache.count(snapshot, ["n", "text"], 1 << 1, 3)
            assert [[each.value for each in counts] for counts in found.values()] == [[0], ["t00"]]
            assert cache.entries() <= 50
