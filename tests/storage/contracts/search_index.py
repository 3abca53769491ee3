"""What every search index must do, whatever engine is behind it.

A backend enrols by a function in the parameters of one fixture, `tests/storage/search/`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

import pytest

from storage.errors import Invalid, NotFoundError
from storage.model import FQID
from storage.protocols import IndexedDocument, SearchIndex
from storage.search.documents import flatten_document
from storage.search.evaluator import compile_query
from storage.search.grammar.clauses import Clause, MatchAllClause
from storage.search.grammar.parser import parse_query
from tests.storage.contracts import real_data, sharp
from tests.storage.contracts.generated import Generator
from tests.storage.contracts.meanings import DOCUMENTS, MEANINGS, Meaning, document, identity

EVERYTHING = MatchAllClause()
SOME = parse_query({"exists": {"field": "n"}})


def made(number: int, *, change: int = 1, **members: Any) -> IndexedDocument:
    """A live document; three share each version."""
    uuid, version = named(number)
    content = {"bundle_info": {"uuid": uuid, "version": version}, "n": number, **members}
    return IndexedDocument(uuid, version, "shape#1", change, content)


def stub(number: int, *, change: int) -> IndexedDocument:
    uuid, version = named(number)
    return IndexedDocument(uuid, version, "shape#1", change, None)


def named(number: int) -> tuple[str, str]:
    return (
        f"{number % 3}0000000-0000-4000-8000-{number:012x}",
        f"2026-01-01T{number // 3:06d}.000000Z",
    )


def of(content: Mapping[str, Any]) -> IndexedDocument:
    info = content["bundle_info"]
    return IndexedDocument(info["uuid"], info["version"], "shape#1", 1, content)


def walk(index: SearchIndex, query: Clause, size: int) -> Iterator[tuple[str, str]]:
    after = None
    while True:
        page = index.search(query, size=size, after=after)
        assert len(page.hits) <= size
        assert page.after in (None, *(hit.page_token for hit in page.hits[-1:]))
        yield from ((hit.uuid, hit.version) for hit in page.hits)
        if page.after is None:
            return
        after = page.after


def found(index: SearchIndex, query: Clause) -> list[tuple[str, str]]:
    return list(walk(index, query, 500))


def newest_first(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(sorted(names), key=lambda name: name[1], reverse=True)


class SearchIndexContract:
    """Subclass it where a fixture `index` gives an empty index of the engine."""

    def test_an_empty_index_finds_nothing(self, index: SearchIndex) -> None:
        page = index.search(EVERYTHING, size=10)
        assert (list(page.hits), page.total, page.after) == ([], 0, None)
        assert index.get(*named(1)) is None

    def test_written_document_is_found_verbatim_at_once(self, index: SearchIndex) -> None:
        values = {"big": 2**80 + 1, "long": 2**63 - 1, "float": 0.1, "text": "é\u0000\U0001f600"}
        assert index.write([made(1, values=values)]) == []
        (hit,) = index.search(EVERYTHING, size=10, raw=True).hits
        assert (hit.uuid, hit.version) == named(1)
        assert hit.document is not None
        assert json.loads(hit.document)["values"] == values
        assert index.get(*named(1)) == hit.document

    def test_returns_content_only_if_requested(self, index: SearchIndex) -> None:
        index.write([made(1)])
        assert [hit.document for hit in index.search(EVERYTHING, size=10).hits] == [None]

    def test_leaves_out_documents_beyond_the_limit(self, index: SearchIndex) -> None:
        index.write([made(1, values={"text": "a" * 5_000}), made(2)])
        whole = {hit.uuid: hit.document for hit in index.search(EVERYTHING, size=10, raw=True).hits}
        length = len(whole[named(1)[0]] or b"")
        for limit, expected in ((length, whole), (length - 1, {**whole, named(1)[0]: None})):
            found = index.search(EVERYTHING, size=10, raw=True, raw_limit=limit).hits
            assert {hit.uuid: hit.document for hit in found} == expected

    @pytest.mark.spec("SEA-02")
    @pytest.mark.parametrize("query", [EVERYTHING, SOME], ids=["everything", "some"])
    @pytest.mark.parametrize("size", [1, 4, 10, 11, 50])
    def test_a_walk_is_newest_first_then_by_uuid(
        self, index: SearchIndex, query: Clause, size: int
    ) -> None:
        index.write([made(number) for number in range(10)])
        everything = newest_first(named(number) for number in range(10))
        assert list(walk(index, query, size)) == everything

    @pytest.mark.parametrize("query", [EVERYTHING, SOME], ids=["everything", "some"])
    def test_oldest_first_is_the_reverse_order(self, index: SearchIndex, query: Clause) -> None:
        index.write([made(number) for number in range(10)])
        seen, after = [], None
        while True:
            page = index.search(query, size=3, after=after, oldest_first=True)
            seen += [(hit.uuid, hit.version) for hit in page.hits]
            after = page.after
            if after is None:
                break
        assert seen == newest_first(named(number) for number in range(10))[::-1]

    @pytest.mark.spec("SEA-07")
    def test_continues_after_any_hit(self, index: SearchIndex) -> None:
        index.write([made(number) for number in range(10)])
        everything = index.search(SOME, size=10).hits
        for place, hit in enumerate(everything, 1):
            behind = index.search(SOME, size=10, after=hit.page_token).hits
            assert list(behind) == list(everything[place:])

    @pytest.mark.spec("SEA-02")
    def test_every_page_has_total_hits(self, index: SearchIndex) -> None:
        index.write([made(number) for number in range(5)])
        first = index.search(SOME, size=2)
        second = index.search(SOME, size=2, after=first.after)
        assert (first.total, second.total) == (5, 5)

    @pytest.mark.spec("SEA-07")
    def test_paging_is_stable_during_changes(self, index: SearchIndex) -> None:
        index.write([made(number) for number in range(10, 20)])
        steps = walk(index, SOME, 3)
        seen = [next(steps) for _ in range(3)]
        index.write([made(number) for number in (5, 25)] + [stub(19, change=2)])
        index.write([made(number, change=3, again=True) for number in range(10, 19)])
        seen += list(steps)
        there = [named(number) for number in range(10, 19)]
        assert sorted(seen) == sorted({*seen})
        assert {*there} <= {*seen}

    @pytest.mark.parametrize("pointer", ["", "x", "!", "0" * 40, "é"])
    def test_a_pointer_that_was_made_up_is_refused(self, index: SearchIndex, pointer: str) -> None:
        with pytest.raises(Invalid) as refused:
            index.search(EVERYTHING, size=1, after=pointer)
        assert refused.value.code == "illegal_token"

    def test_a_stub_hides_the_document(self, index: SearchIndex) -> None:
        index.write([made(1), made(2)])
        index.write([stub(1, change=2)])
        assert found(index, EVERYTHING) == [named(2)]
        assert found(index, SOME) == [named(2)]
        assert index.search(EVERYTHING, size=10).total == 1
        assert index.get(*named(1)) is None

    @pytest.mark.spec("SEA-08")
    def test_late_write_does_not_replace_stub(self, index: SearchIndex) -> None:
        index.write([stub(1, change=2)])
        index.write([made(1, change=1)])
        assert found(index, EVERYTHING) == []

    def test_a_later_change_does(self, index: SearchIndex) -> None:
        index.write([stub(1, change=2)])
        index.write([made(1, change=3)])
        assert found(index, EVERYTHING) == [named(1)]

    @pytest.mark.parametrize("order", [(1, 2), (2, 1)])
    def test_larger_change_wins_in_any_order(
        self, index: SearchIndex, order: tuple[int, int]
    ) -> None:
        for change in order:
            index.write([made(1, change=change, word=f"change{change}")])
        assert found(index, parse_query({"match": {"word": "change2"}})) == [named(1)]
        assert found(index, parse_query({"match": {"word": "change1"}})) == []

    def test_the_larger_change_wins_within_one_write(self, index: SearchIndex) -> None:
        index.write([made(1, change=2, word="new"), made(1, change=1, word="old")])
        index.write([made(2, change=1, word="old"), made(2, change=2, word="new")])
        assert len(found(index, parse_query({"match": {"word": "new"}}))) == 2
        assert found(index, parse_query({"match": {"word": "old"}})) == []

    def test_writing_again_changes_nothing(self, index: SearchIndex) -> None:
        for _ in range(2):
            assert index.write([made(1)]) == []
        assert index.search(SOME, size=10).total == 1

    @pytest.mark.spec("SEA-22")
    def test_a_refused_document_does_not_stop_the_others(self, index: SearchIndex) -> None:
        (refusal,) = index.write([made(1), made(2, text="\ud800"), made(3)])
        assert (refusal.uuid, refusal.version) == named(2)
        assert refusal.reason
        assert found(index, SOME) == newest_first([named(1), named(3)])

    def test_reported_paths_are_stored_but_not_searchable(self, index: SearchIndex) -> None:
        index.write([made(1, a={"b": "kept"}, c="kept", errors=[{"path": "a", "reason": "kind"}])])
        assert found(index, parse_query({"term": {"a.b": "kept"}})) == []
        assert found(index, parse_query({"term": {"c": "kept"}})) == [named(1)]
        assert b'"kept"' in (index.get(*named(1)) or b"")

    def test_ids_are_uuid_and_version(self, index: SearchIndex) -> None:
        index.write([made(number) for number in range(4)])
        values = [".".join(named(number)) for number in (1, 3, 9)] + ["x", named(2)[0]]
        query = parse_query({"ids": {"values": values}})
        assert found(index, query) == newest_first([named(1), named(3)])

    def test_the_widest_queries_are_answered(self, index: SearchIndex) -> None:
        index.write([made(1), made(2)])
        wide = [{"term": {"n": number}} for number in range(2, 502)]
        query: dict[str, Any] = {"bool": {"should": wide, "must_not": [{"match_none": {}}] * 350}}
        assert found(index, parse_query(query)) == [named(2)]
        query = {"bool": {"must": [{"match_all": {}}] * 600, "minimum_should_match": 2}}
        query["bool"]["should"] = [{"term": {"n": 1}}, {"match_all": {}}, *wide[1:100]]
        assert found(index, parse_query(query)) == [named(1)]

    def test_the_deepest_queries_are_answered(self, index: SearchIndex) -> None:
        index.write([made(1), made(2)])
        query: dict[str, Any] = {"term": {"n": 1}}
        for _ in range(9):
            query = {"bool": {"must": [query, {"match_all": {}}], "must_not": {"term": {"n": 2}}}}
            query = {"bool": {"should": [query, {"match_none": {}}]}}
        assert found(index, parse_query(query)) == [named(1)]

    def test_finds_long_texts(self, index: SearchIndex) -> None:
        index.write([made(1, text="a b c"), made(2, text="c")])
        many = " ".join(f"w{number}" for number in range(2_000))
        query = {"match": {"text": {"query": f"a b {many}", "minimum_should_match": 2}}}
        assert found(index, parse_query(query)) == [named(1)]

    @pytest.mark.spec("SEA-23")
    def test_a_rebuild_is_filled_beside_the_current_generation(self, index: SearchIndex) -> None:
        index.write([made(1, word="before"), made(2)])
        generation = index.begin_rebuild()
        index.write([made(3)])
        assert found(index, EVERYTHING) == newest_first(named(n) for n in (1, 2, 3))
        index.write([made(1, word="after")])
        index.finish_rebuild(generation)
        assert found(index, EVERYTHING) == newest_first([named(1), named(3)])
        assert found(index, parse_query({"match": {"word": "after"}})) == [named(1)]

    @pytest.mark.spec("SEA-23")
    def test_a_rebuild_keeps_hidden_what_was_hidden(self, index: SearchIndex) -> None:
        index.write([stub(1, change=5), stub(2, change=5), made(3)])
        generation = index.begin_rebuild()
        index.write([made(2, change=4), made(3)])
        index.finish_rebuild(generation)
        index.write([made(1, change=4)])
        assert found(index, EVERYTHING) == [named(3)]

    @pytest.mark.spec("SEA-23")
    def test_rebuild_steps_are_repeatable(self, index: SearchIndex) -> None:
        index.write([made(1)])
        generation = index.begin_rebuild()
        index.write([made(2)])
        assert index.begin_rebuild() == generation
        index.finish_rebuild(generation)
        index.finish_rebuild(generation)
        assert found(index, EVERYTHING) == [named(2)]
        assert index.begin_rebuild() != generation

    def test_only_building_generation_can_be_finished(self, index: SearchIndex) -> None:
        with pytest.raises(NotFoundError):
            index.finish_rebuild("no such generation")

    def test_lists_ids_in_order_including_stubs(self, index: SearchIndex) -> None:
        assert list(index.list_ids()) == []
        index.write([made(number) for number in range(7)])
        index.write([stub(2, change=2), stub(8, change=1)])
        numbers = (0, 1, 2, 3, 4, 5, 6, 8)
        assert list(index.list_ids()) == sorted(FQID(*named(number)) for number in numbers)

    def test_the_engine_names_itself(self, index: SearchIndex) -> None:
        assert index.ping()

    @pytest.mark.spec("SEA-10", "SEA-11")
    def test_known_answers_hold(self, index: SearchIndex) -> None:
        index.write([of(document(name)) for name in DOCUMENTS])
        names = {identity(name): name for name in DOCUMENTS}
        wrong = [
            (meaning, got)
            for meaning in MEANINGS
            if (got := _names(index, meaning, names)) != {*meaning.names.split()}
        ]
        assert wrong == []

    @pytest.mark.spec("SEA-11")
    @pytest.mark.parametrize("seed", range(5))
    def test_generated_queries_find_what_the_evaluator_matches(
        self, index: SearchIndex, seed: int
    ) -> None:
        generator = Generator(seed)
        documents = [generator.document(number) for number in range(100)]
        matched = compare(index, documents, (generator.query() for _ in range(250)))
        assert 50 < matched < 240

    @pytest.mark.parametrize("seed", range(2))
    def test_queries_about_one_letter_or_place_find_what_the_evaluator_matches(
        self, index: SearchIndex, seed: int
    ) -> None:
        random = Random(seed)
        documents = [sharp.document(random, number) for number in range(200)]
        asked = (sharp.query(random) for _ in range(300))
        assert compare(index, documents, asked) > 100

    @pytest.mark.spec("SEA-11")
    def test_queries_of_real_metadata_find_what_the_evaluator_matches(
        self, index: SearchIndex
    ) -> None:
        documents = real_data.documents()
        words, fields = real_data.vocabulary(documents)
        patterns = [*fields, "*", "files.run_json.*", "*.keyword", "files.*.title"]
        generator = Generator(1, words=words, fields=fields, patterns=patterns)
        assert compare(index, documents, (generator.query() for _ in range(60))) > 10


def _names(index: SearchIndex, meaning: Meaning, names: Mapping[tuple[str, str], str]) -> set[str]:
    return {names[hit] for hit in found(index, parse_query(meaning.query))}


def compare(
    index: SearchIndex, documents: list[dict[str, Any]], queries: Iterable[dict[str, Any]]
) -> int:
    """Ask the index and the evaluator the same; answers how many queries matched something."""
    assert index.write([of(content) for content in documents]) == []
    flats = [(of(content), flatten_document(content)) for content in documents]
    matched = 0
    for query in queries:
        clause = _parsed(query)
        matches = compile_query(clause)
        expected = newest_first((d.uuid, d.version) for d, flat in flats if matches(flat))
        assert found(index, clause) == expected, query
        matched += bool(expected)
    return matched


def _parsed(query: dict[str, Any]) -> Clause:
    try:
        return parse_query(query)
    except Invalid as refused:
        # A string or expression made at random may be no query; nothing else may be refused.
        return _explained(refused)


def _explained(refused: Invalid) -> Clause:
    assert "query_string" in refused.detail or "regexp" in refused.detail, refused.detail
    return EVERYTHING
