"""Sets of documents, the cache of them, and pages of hits that are near, far apart or few."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.protocols import IndexedDocument
from storage.search.embedded.document_sets import (
    ENTRY_BYTES,
    SetCache,
    find_weighty,
    list_documents,
    list_flags,
    make_set,
    make_sparse_set,
)
from storage.search.embedded.index import EmbeddedIndex
from storage.search.grammar.parser import parse_query

LAST = 40
DOCUMENTS = st.sets(st.integers(1, LAST))


def as_set(documents: set[int]) -> int:
    return make_set([(number,) for number in documents], LAST)


@given(DOCUMENTS)
def test_sets_keep_their_documents(documents: set[int]) -> None:
    found = as_set(documents)
    assert found.bit_count() == len(documents)
    assert list_documents(list_flags(found, LAST)) == sorted(documents)
    if documents:
        assert make_sparse_set(sorted(documents)) == found


@given(st.lists(st.tuples(DOCUMENTS, st.integers(1, 9)), max_size=9), st.integers(1, 30))
def test_weights_of_all_sets_are_added(weighted: list[tuple[set[int], int]], needed: int) -> None:
    totals = Counter[int]()
    for documents, weight in weighted:
        totals.update(dict.fromkeys(documents, weight))
    found = find_weighty(((as_set(documents), weight) for documents, weight in weighted), needed)
    assert found == as_set({number for number, total in totals.items() if total >= needed})


def test_the_cache_drops_what_was_not_used_for_longest() -> None:
    cache = SetCache(max_bytes=3 * (ENTRY_BYTES + 50))
    for key in "abc":
        cache.put(key, 1)
    assert cache.get("a") == 1
    cache.put("d", 1)
    assert [cache.get(key) for key in "abcd"] == [1, None, 1, 1]
    cache.put("large", 1 << 100_000)
    assert [cache.get(key) for key in ("a", "large")] == [None, None]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[EmbeddedIndex]:
    """300 documents; those in the middle, a third and three of them can be found."""
    opened = EmbeddedIndex(tmp_path / "aws.sqlite")
    opened.write([made(number) for number in range(300)])
    yield opened
    opened.close()


def made(number: int) -> IndexedDocument:
    version = f"2026-01-01T000000.{number // 2:06d}Z"
    content = {
        "middle": 100 <= number < 200,
        "third": number % 3 == 0,
        "few": number in (7, 150, 151),
        "text": f"one two {number}",
    }
    return IndexedDocument(make_uuid(number), version, "shape", 1, content)


def make_uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 299, 300, 301])
@pytest.mark.parametrize("name", ["middle", "third", "few", "all", "none"])
def test_pages_have_all_hits_once_in_order(
    index: EmbeddedIndex, name: str, size: int, oldest_first: bool
) -> None:
    query: dict[str, Any] = {"term": {name: "true"}} if name != "all" else {}
    documents = [made(number) for number in range(300)]
    wanted = [each for each in documents if name == "all" or each.document.get(name)]
    wanted.sort(key=lambda each: each.uuid)
    wanted.sort(key=lambda each: each.version, reverse=True)
    if oldest_first:
        wanted.reverse()
    found, after = [], None
    while True:
        page = index.search(parse_query(query), size=size, after=after, oldest_first=oldest_first)
        assert page.total == len(wanted)
        found += [hit.uuid for hit in page.hits]
        after = page.after
        if after is None:
            break
    assert found == [each.uuid for each in wanted]


def test_kept_sets_are_of_one_state_of_the_index(index: EmbeddedIndex) -> None:
    query = parse_query({"bool": {"must_not": [{"match_phrase": {"text": "two 5"}}]}})
    totals = [index.search(query, size=1).total]
    again = made(5)
    for change, text in ((2, "one 5 two"), (3, "one two 5")):
        document = {**again.document, "text": text}
        index.write([IndexedDocument(again.uuid, again.version, "shape", change, document)])
        totals.append(index.search(query, size=1).total)
    index.write([IndexedDocument(again.uuid, again.version, "shape", 4, None)])
    totals.append(index.search(query, size=1).total)
    assert totals == [299, 300, 299, 299]
