"""Specifics of a real OpenSearch: many processes, lost indices, rebuild races.

Restarts are in `test_opensearch_restarts.py`, since they start a server of their own.
"""

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import Invalid, TimeLimitExceeded
from storage.model import FQID
from storage.protocols import IndexedDocument
from storage.search.grammar.clauses import MatchAllClause
from storage.search.grammar.parser import parse_query
from storage.search.opensearch.index import OpenSearchIndex
from tests.storage.search import real_opensearch

FORK = multiprocessing.get_context("fork")
VERSION = "2026-01-01T000000.000000Z"
EVERYTHING = MatchAllClause()

pytestmark = real_opensearch.needed


@pytest.fixture
def prefix() -> str:
    return real_opensearch.new_prefix()


@pytest.fixture
def index(prefix: str) -> Iterator[OpenSearchIndex]:
    with real_opensearch.opensearch(prefix) as opened:
        yield opened


def made(number: int, text: str = "some words", *, change: int = 1) -> IndexedDocument:
    uuid = f"00000000-0000-4000-8000-{number:012x}"
    return IndexedDocument(uuid, VERSION, "shape", change, {"text": text, "n": number})


def stub(number: int, *, change: int) -> IndexedDocument:
    return IndexedDocument(made(number).uuid, VERSION, "shape", change, None)


def write_until_told(prefix: str, start: int, folder: Path) -> None:
    """Write documents one by one; note each before it, as the catalog does, and after it."""
    index = real_opensearch.opened(prefix)
    with (
        (folder / f"begun-{start}").open("a", encoding="utf-8", buffering=1) as begun,
        (folder / f"written-{start}").open("a", encoding="utf-8", buffering=1) as written,
    ):
        for number in range(start, start + 100_000):
            begun.write(f"{number}\n")
            assert index.write([made(number)]) == []
            written.write(f"{number}\n")
            if (folder / "enough").exists():
                return


def read_numbers(folder: Path, what: str) -> set[int]:
    return {int(n) for path in folder.glob(f"{what}-*") for n in path.read_text().splitlines()}


def begin(prefix: str, names: "multiprocessing.Queue[str]") -> None:
    names.put(real_opensearch.opened(prefix).begin_rebuild())


def write_some(prefix: str, numbers: range) -> None:
    index = real_opensearch.opened(prefix)
    for number in numbers:
        index.write([made(number)])


def test_concurrent_first_writers_create_one_index(prefix: str, index: OpenSearchIndex) -> None:
    ranges = [range(start, start + 5) for start in (0, 5, 10, 15)]
    writers = [FORK.Process(target=write_some, args=(prefix, numbers)) for numbers in ranges]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert index.search(EVERYTHING, size=1).total == 20
    assert len(real_opensearch.indices(prefix)) == 1


def test_concurrent_rebuilds_begin_once(prefix: str, index: OpenSearchIndex) -> None:
    index.write([made(1)])
    names: multiprocessing.Queue[str] = FORK.Queue()
    starters = [FORK.Process(target=begin, args=(prefix, names)) for _ in range(4)]
    for starter in starters:
        starter.start()
    found = {names.get(timeout=30) for _ in starters}
    for starter in starters:
        starter.join()
    assert len(found) == 1
    assert len(real_opensearch.indices(prefix)) == 2


def test_no_write_is_lost_during_rebuild(
    prefix: str, index: OpenSearchIndex, tmp_path: Path
) -> None:
    starts = (0, 1_000_000, 2_000_000)
    writers = [
        FORK.Process(target=write_until_told, args=(prefix, start, tmp_path)) for start in starts
    ]
    for writer in writers:
        writer.start()
    for _ in range(3):
        time.sleep(0.3)
        generation = index.begin_rebuild()
        # As the queue does: everything that the catalog has by then is indexed once more. A write
        # that read the generations before this one began may be acknowledged only now.
        index.write([made(number) for number in sorted(read_numbers(tmp_path, "begun"))])
        index.finish_rebuild(generation)
    (tmp_path / "enough").touch()
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    expected = {made(number).uuid for number in read_numbers(tmp_path, "written")}
    assert len(expected) > 10
    assert {fqid.uuid for fqid in index.list_ids()} == expected
    assert real_opensearch.indices(prefix) == [generation]


def test_lost_index_finds_nothing_and_is_reported(prefix: str, index: OpenSearchIndex) -> None:
    index.write([made(1), made(2)])
    real_opensearch.forget(prefix)
    assert index.search(EVERYTHING, size=1).total == 0
    assert index.get(made(1).uuid, VERSION) is None
    assert list(index.list_ids()) == []


def test_index_created_after_loss_has_mapping(prefix: str, index: OpenSearchIndex) -> None:
    index.write([made(1), made(2)])
    before = real_opensearch.ask("GET", f"{prefix}*/_mapping")
    real_opensearch.forget(prefix)
    assert index.write([made(2)]) == []
    assert real_opensearch.ask("GET", f"{prefix}*/_mapping") == before
    assert [hit.uuid for hit in index.search(EVERYTHING, size=9).hits] == [made(2).uuid]
    assert list(index.list_ids()) == [FQID(made(2).uuid, VERSION)]


def test_index_lost_during_rebuild_is_no_obstacle(prefix: str, index: OpenSearchIndex) -> None:
    index.write([made(1)])
    (current,) = real_opensearch.indices(prefix)
    generation = index.begin_rebuild()
    real_opensearch.ask("DELETE", current)
    assert index.write([made(2)]) == []
    assert index.search(EVERYTHING, size=9).total == 1
    index.finish_rebuild(generation)
    assert real_opensearch.indices(prefix) == [generation]
    assert index.search(EVERYTHING, size=9).total == 1


def test_a_process_follows_a_rebuild_that_another_finished(
    prefix: str, index: OpenSearchIndex
) -> None:
    elsewhere = real_opensearch.opened(prefix)
    elsewhere.write([made(1)])
    assert index.search(EVERYTHING, size=1).total == 1
    elsewhere.finish_rebuild(elsewhere.begin_rebuild())
    assert index.search(EVERYTHING, size=1).total == 0
    index.write([made(2)])
    assert elsewhere.search(EVERYTHING, size=1).total == 1
    elsewhere.close()


def test_thousands_of_stubs_are_carried_over(index: OpenSearchIndex) -> None:
    index.write([stub(number, change=5) for number in range(2_300)])
    index.finish_rebuild(index.begin_rebuild())
    index.write([made(number, change=4) for number in range(2_300)])
    assert index.search(EVERYTHING, size=1).total == 0
    assert sum(1 for _ in index.list_ids()) == 2_300


def test_forked_process_opens_new_connections(index: OpenSearchIndex) -> None:
    index.write([made(1)])

    def search_and_write() -> None:
        assert index.search(EVERYTHING, size=1).total == 1
        index.write([made(2)])

    child = FORK.Process(target=search_and_write)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert index.search(EVERYTHING, size=1).total == 2


def test_conflicting_documents_share_an_index(prefix: str, index: OpenSearchIndex) -> None:
    values = ["text", 5, True, {"b": 1}, [{"b": "x"}], 1.5]
    contents = [
        IndexedDocument(made(n).uuid, VERSION, f"shape#{n}", 1, {"a": value})
        for n, value in enumerate(values)
    ]
    assert index.write(contents) == []
    assert index.search(parse_query({"exists": {"field": "a"}}), size=1).total == len(values)
    assert len(real_opensearch.indices(prefix)) == 1


def test_a_search_beyond_its_time_is_stopped_not_cut_short(prefix: str) -> None:
    parts = [{"regexp": {"text": f".*{n}.*x.*[3-9]{n % 7}.*"}} for n in range(300)]
    slow = parse_query({"bool": {"should": parts, "minimum_should_match": 299}})
    with real_opensearch.opensearch(prefix, time_limit_s=0.2) as hurried:
        hurried.write([made(n, " ".join(f"w{n}x{w}" for w in range(200))) for n in range(500)])
        start = time.monotonic()
        with pytest.raises(TimeLimitExceeded):
            hurried.search(slow, size=1)
        assert time.monotonic() - start < 2


def test_pattern_beyond_engine_limits_is_invalid(index: OpenSearchIndex) -> None:
    index.write([made(1)])
    with pytest.raises(Invalid, match="engine refused"):
        index.search(parse_query({"regexp": {"text": "(a|b)*a(a|b){900}"}}), size=1)


def test_words_use_the_index(index: OpenSearchIndex) -> None:
    index.write([made(n, f"common word{n}") for n in range(3000)])
    query = parse_query({"term": {"text": "word77"}})
    assert index.search(query, size=10).total == 1
    start = time.monotonic()
    for _ in range(20):
        index.search(query, size=10)
    assert (time.monotonic() - start) / 20 < 0.25


def test_accepts_names_of_any_length(index: OpenSearchIndex) -> None:
    name = "n" * 12_000
    assert index.write([IndexedDocument(made(1).uuid, VERSION, "s", 1, {name: "word"})]) == []
    assert index.search(parse_query({"term": {name: "word"}}), size=1).total == 1
    assert index.search(parse_query({"exists": {"field": name}}), size=1).total == 1


def test_large_documents_are_complete(index: OpenSearchIndex) -> None:
    text = " ".join(f"word{number}" for number in range(400_000))
    large = IndexedDocument(made(1).uuid, VERSION, "s", 1, {"text": text})
    assert index.write([large, made(2)]) == []
    assert index.search(parse_query({"term": {"text": "word399999"}}), size=1).total == 1
    assert text.encode() in (index.get(made(1).uuid, VERSION) or b"")


def test_the_engine_names_itself_and_what_is_searched(prefix: str, index: OpenSearchIndex) -> None:
    assert "no index yet" in index.ping()
    index.write([made(1)])
    assert index.ping().startswith("OpenSearch ")
    assert real_opensearch.indices(prefix)[0] in index.ping()
