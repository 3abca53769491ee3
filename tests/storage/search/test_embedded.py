"""Specifics of the embedded engine: processes, crashes, generations, limits."""

import json
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import TimeLimitExceeded, Unavailable
from storage.protocols import IndexedDocument
from storage.search.embedded.index import EmbeddedIndex
from storage.search.grammar.clauses import MatchAllClause
from storage.search.grammar.parser import parse_query

FORK = multiprocessing.get_context("fork")
VERSION = "2026-01-01T000000.000000Z"
EVERYTHING = MatchAllClause()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "search" / "aws.sqlite"


@pytest.fixture
def index(path: Path) -> Iterator[EmbeddedIndex]:
    opened = EmbeddedIndex(path)
    yield opened
    opened.close()


def made(number: int, text: str = "some words") -> IndexedDocument:
    uuid = f"00000000-0000-4000-8000-{number:012x}"
    return IndexedDocument(uuid, VERSION, "shape", 1, {"text": text, "n": number})


def write_some(path: Path, numbers: range) -> None:
    index = EmbeddedIndex(path)
    for number in numbers:
        index.write([made(number)])


def write_until_killed(path: Path, acknowledged: Path) -> None:
    index = EmbeddedIndex(path)
    with acknowledged.open("a", encoding="utf-8") as lines:
        for number in range(10**9):
            index.write([made(number, f"word{number} " * 50)])
            lines.write(f"{number}\n")
            lines.flush()


def generations(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.glob("*.sqlite"))


def test_many_processes_write_concurrently(path: Path) -> None:
    ranges = [range(start, start + 20) for start in (0, 20, 40)]
    writers = [FORK.Process(target=write_some, args=(path, numbers)) for numbers in ranges]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert EmbeddedIndex(path).search(EVERYTHING, size=1).total == 60


def test_a_writer_that_is_killed_loses_nothing_it_acknowledged(path: Path, tmp_path: Path) -> None:
    acknowledged = tmp_path / "acknowledged"
    acknowledged.touch()
    for lines in (1, 5, 9):
        writer = FORK.Process(target=write_until_killed, args=(path, acknowledged))
        writer.start()
        while acknowledged.read_text().count("\n") < lines * 10:
            time.sleep(0.001)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    index = EmbeddedIndex(path)
    numbers = {int(line) for line in acknowledged.read_text().split()}
    for number in numbers:
        assert index.search(parse_query({"term": {"text": f"word{number}"}}), size=1).total == 1
    (name,) = generations(path)
    with sqlite3.connect(path.parent / name) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_forked_process_opens_new_connections(path: Path, index: EmbeddedIndex) -> None:
    index.write([made(1)])

    def search_and_write() -> None:
        assert index.search(EVERYTHING, size=1).total == 1
        index.write([made(2)])

    child = FORK.Process(target=search_and_write)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert index.search(EVERYTHING, size=1).total == 2


def test_readers_never_wait_for_writers_and_see_whole_documents(path: Path) -> None:
    stop = threading.Event()
    faults: list[str] = []

    def read() -> None:
        index = EmbeddedIndex(path)
        both = parse_query({"bool": {"must": [{"exists": {"field": "n"}}]}})
        while not stop.is_set():
            page = index.search(both, size=500, raw=True)
            if page.total != len(page.hits) or any(hit.document is None for hit in page.hits):
                faults.append(f"{page.total} {len(page.hits)}")
        index.close()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    write_some(path, range(40))
    stop.set()
    for reader in readers:
        reader.join()
    assert faults == []


@pytest.mark.spec("SEA-23")
def test_a_rebuild_is_a_file_that_replaces_the_old_one(path: Path, index: EmbeddedIndex) -> None:
    index.write([made(1)])
    (old,) = generations(path)
    generation = index.begin_rebuild()
    assert generations(path) == [old, f"{generation}.sqlite"]
    index.finish_rebuild(generation)
    assert generations(path) == [f"{generation}.sqlite"]
    assert "words1" in generation


@pytest.mark.spec("SEA-23")
def test_other_process_follows_finished_rebuild(path: Path, index: EmbeddedIndex) -> None:
    elsewhere = EmbeddedIndex(path)
    elsewhere.write([made(1)])
    assert index.search(EVERYTHING, size=1).total == 1
    elsewhere.finish_rebuild(elsewhere.begin_rebuild())
    assert index.search(EVERYTHING, size=1).total == 0
    index.write([made(2)])
    assert elsewhere.search(EVERYTHING, size=1).total == 1


def test_an_index_of_another_analysis_is_rebuilt_not_mixed(
    path: Path, index: EmbeddedIndex
) -> None:
    path.parent.mkdir()
    names = {"current": "aws-words0-t1-1", "building": None, "count": 1}
    (path.parent / "aws.generations").write_text(json.dumps(names))
    with pytest.raises(Unavailable):
        index.write([made(1)])
    with pytest.raises(Unavailable):
        index.search(EVERYTHING, size=1)
    generation = index.begin_rebuild()
    index.write([made(1)])
    index.finish_rebuild(generation)
    assert index.search(EVERYTHING, size=1).total == 1


@pytest.mark.spec("SEA-12", "ERR-43")
def test_a_search_beyond_its_time_is_stopped(path: Path) -> None:
    EmbeddedIndex(path).write(
        [made(n, " ".join(f"w{n}x{w}" for w in range(100))) for n in range(60)]
    )
    hurried = EmbeddedIndex(path, time_limit_s=0.0)
    with pytest.raises(TimeLimitExceeded):
        hurried.search(parse_query({"wildcard": {"text": "*9*x*9*"}}), size=1)
    assert hurried.get(made(1).uuid, VERSION) is not None


@pytest.mark.spec("SEA-22")
def test_a_document_of_too_many_fields_is_refused(path: Path) -> None:
    index = EmbeddedIndex(path, field_limit=3)
    many = IndexedDocument("u", VERSION, "shape", 1, {f"field{n}": n for n in range(4)})
    (refusal,) = index.write([many, made(1)])
    assert "4 fields" in refusal.reason
    assert index.search(EVERYTHING, size=1).total == 1


def test_a_damaged_file_is_unavailable_not_a_surprise(path: Path, index: EmbeddedIndex) -> None:
    index.write([made(1)])
    index.close()
    (name,) = generations(path)
    (path.parent / name).write_bytes(b"no database" * 1000)
    with pytest.raises(Unavailable):
        EmbeddedIndex(path).search(EVERYTHING, size=1)


def test_words_use_the_index(path: Path, index: EmbeddedIndex) -> None:
    numbers = range(3000)
    index.write([made(n, f"common word{n}") for n in numbers])
    start = time.process_time()
    for _ in range(50):
        assert index.search(parse_query({"term": {"text": "word77"}}), size=10).total == 1
    assert (time.process_time() - start) / 50 < 0.02
