"""What counts of values and lists of fields every search index must give."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from storage.protocols import FacetCount, FacetValue, IndexedDocument, IndexedField, SearchIndex
from storage.search.documents import KEYWORD_SUFFIX, FlatDocument, flatten_document, order_counts
from storage.search.evaluator import compile_query
from storage.search.grammar.parser import parse_query
from tests.storage.contracts import real_data
from tests.storage.contracts.generated import FIELDS, Generator
from tests.storage.contracts.search_index import EVERYTHING, SOME, _parsed, made, of, stub

FlatDocuments = Sequence[tuple[IndexedDocument, FlatDocument]]


def values(flat: FlatDocument, name: str, kind: str) -> Iterable[FacetValue]:
    """The different values of one kind in a field of a document."""
    path = name.removesuffix(KEYWORD_SUFFIX)
    if kind == "string":
        return {*flat.keyword_values(path)}
    if path != name:
        return ()
    found = flat.numbers if kind == "number" else flat.booleans
    return {float(value) for value in found.get(path, ())}


def expected_counts(flats: FlatDocuments, name: str, size: int) -> Sequence[FacetCount]:
    counts = {
        kind: Counter(value for _, flat in flats for value in values(flat, name, kind))
        for kind in ("boolean", "number", "string")
    }
    return order_counts(counts, size)


def expected_fields(flats: FlatDocuments) -> list[IndexedField]:
    counted = Counter(
        (path, kind)
        for _, flat in flats
        for kind in ("string", "number", "boolean")
        for path in getattr(flat, f"{kind}s")
    )
    return [IndexedField(*key, count) for key, count in sorted(counted.items())]


def counts_of(index: SearchIndex, name: str, size: int = 10) -> list[tuple[FacetValue, int]]:
    facets = index.count_facets(EVERYTHING, [name], size=size).facets
    return [(each.value, each.count) for each in facets[name]]


def every_field(index: SearchIndex, size: int = 7, prefix: str = "") -> list[IndexedField]:
    """All of them, a page at a time."""
    found: list[IndexedField] = []
    after = None
    while page := index.list_fields(prefix=prefix, after=after, size=size):
        assert len(page) <= size
        found += page
        after = (page[-1].name, page[-1].kind)
    return found


class SearchFacetContract:
    """Subclass it where a fixture `index` gives an empty index of the engine."""

    def test_an_empty_index_has_no_fields_and_counts_nothing(self, index: SearchIndex) -> None:
        counts = index.count_facets(EVERYTHING, ["a"], size=3)
        assert (counts.total, dict(counts.facets)) == (0, {"a": []})
        assert list(index.list_fields(size=3)) == []

    @pytest.mark.spec("SEA-27")
    def test_most_frequent_values_come_first_and_ties_by_value(self, index: SearchIndex) -> None:
        organs = ["liver", "kidney", "liver", "brain", "Brain", "liver", "kidney"]
        index.write([made(at, organ=organ) for at, organ in enumerate(organs)])
        counted = [("liver", 3), ("kidney", 2), ("Brain", 1), ("brain", 1)]
        assert counts_of(index, "organ") == counted
        assert counts_of(index, "organ.keyword", size=3) == counted[:3]

    @pytest.mark.spec("SEA-27")
    def test_a_bundle_counts_once_for_each_value_of_an_array(self, index: SearchIndex) -> None:
        index.write([made(1, organ=["a", "b", "a"]), made(2, organ=[{"x": 1}, {"x": 1}])])
        index.write([made(3, organ="b")])
        assert counts_of(index, "organ") == [("b", 2), ("a", 1)]
        assert counts_of(index, "organ.x") == [(1, 1)]

    @pytest.mark.spec("SEA-27")
    def test_numbers_and_booleans_are_counted_as_what_they_are(self, index: SearchIndex) -> None:
        mixed = [1, 1.0, 2.5, True, False, "1", "true", -0.0, 0]
        index.write([made(at, v=value) for at, value in enumerate(mixed)])
        counted = counts_of(index, "v")
        expected = [(0, 2), (1, 2), (False, 1), (True, 1), (2.5, 1), ("1", 1), ("true", 1)]
        assert counted == expected
        assert [type(value) for value, _ in counted] == [type(value) for value, _ in expected]
        assert counts_of(index, "v.keyword") == [("1", 1), ("true", 1)]

    @pytest.mark.spec("SEA-27")
    def test_long_strings_and_objects_have_no_values(self, index: SearchIndex) -> None:
        index.write([made(1, text="x" * 8192, deep={"a": "b"}), made(2, text="x" * 8191)])
        assert counts_of(index, "text") == [("x" * 8191, 1)]
        assert counts_of(index, "deep") == []

    @pytest.mark.spec("SEA-26", "SEA-08")
    def test_counts_follow_every_change(self, index: SearchIndex) -> None:
        index.write([made(number, organ="a") for number in range(5)])
        assert counts_of(index, "organ") == [("a", 5)]
        index.write([stub(1, change=2), made(2, change=2, organ="b"), made(7, organ="b")])
        assert counts_of(index, "organ") == [("a", 3), ("b", 2)]
        assert index.count_facets(EVERYTHING, ["organ"], size=1).total == 5
        assert IndexedField("organ", "string", 5) in every_field(index)
        index.write([made(1, change=3, organ="c", extra=1), made(2, change=1, organ="z")])
        assert counts_of(index, "organ") == [("a", 3), ("b", 2), ("c", 1)]
        assert IndexedField("extra", "number", 1) in every_field(index)
        index.write([made(1, change=4, organ="c")])
        assert "extra" not in {field.name for field in every_field(index)}

    def test_one_write_may_hold_a_document_twice(self, index: SearchIndex) -> None:
        index.write([made(1, change=1, organ="a"), made(1, change=2, organ="b")])
        index.write([made(2, change=2, organ="b"), made(2, change=1, organ="a")])
        assert counts_of(index, "organ") == [("b", 2)]
        assert IndexedField("organ", "string", 2) in every_field(index)

    def test_a_rebuild_keeps_counts_right(self, index: SearchIndex) -> None:
        index.write([made(number, organ="a") for number in range(4)])
        index.write([stub(1, change=5)])
        assert counts_of(index, "organ") == [("a", 3)]
        generation = index.begin_rebuild()
        index.write([made(0, change=2, organ="a")])
        index.write([made(1, change=4, organ="late"), made(3, change=2, organ="b")])
        index.finish_rebuild(generation)
        assert counts_of(index, "organ") == [("a", 1), ("b", 1)]
        assert IndexedField("organ", "string", 2) in every_field(index)
        index.write([made(5, organ="b")])
        assert counts_of(index, "organ") == [("b", 2), ("a", 1)]
        assert IndexedField("organ", "string", 3) in every_field(index)

    @pytest.mark.spec("SEA-31")
    def test_fields_are_listed_by_name_and_kind_with_their_documents(
        self, index: SearchIndex
    ) -> None:
        index.write([made(1, a="x", b=1, deep={"c": True}), made(2, a=["x", "y"], b="1")])
        index.write([made(3, a={"z": 1}, **{"n" * 1001: 1, "n" * 1000: 1})])
        here = [field for field in every_field(index, size=1) if "." not in field.name]
        assert here == [
            IndexedField("a", "string", 2),
            IndexedField("b", "number", 1),
            IndexedField("b", "string", 1),
            IndexedField("n", "number", 3),
            IndexedField("n" * 1000, "number", 1),
        ]
        assert every_field(index, prefix="deep") == [IndexedField("deep.c", "boolean", 1)]
        assert every_field(index, prefix="a") == [
            IndexedField("a", "string", 2),
            IndexedField("a.z", "number", 1),
        ]
        assert every_field(index, prefix="[x*") == []

    @pytest.mark.spec("SEA-26", "SEA-27", "SEA-31")
    @pytest.mark.parametrize("seed", range(3))
    def test_generated_queries_count_what_the_evaluator_matches(
        self, index: SearchIndex, seed: int
    ) -> None:
        generator = Generator(seed)
        documents = [generator.document(number) for number in range(100)]
        fields = [*FIELDS[:10], "bundle_info.version"]
        counted = compare(index, documents, [generator.query() for _ in range(60)], fields)
        assert counted > 100

    @pytest.mark.spec("SEA-26")
    def test_facets_of_real_metadata_are_what_the_evaluator_counts(
        self, index: SearchIndex
    ) -> None:
        documents = real_data.documents()
        words, fields = real_data.vocabulary(documents)
        generator = Generator(1, words=words, fields=fields, patterns=[*fields, "*"])
        queries: list[dict[str, Any]] = [{}, *(generator.query() for _ in range(20))]
        assert compare(index, documents, queries, fields[:20]) > 20

    def test_the_same_query_sees_what_changed_meanwhile(self, index: SearchIndex) -> None:
        index.write([made(number, p=1) for number in range(6)])
        few = parse_query({"range": {"n": {"lt": 3}}})
        for change, expected in ((1, [0, 1, 2]), (2, [0, 2]), (3, [0, 1, 2])):
            index.write([stub(1, change=2) if change == 2 else made(1, change=change, p=1)])
            assert index.search(few, size=10).total == len(expected)
            counts = index.count_facets(few, ["n"], size=10)
            assert [each.value for each in counts.facets["n"]] == expected
            assert counts.total == len(expected)

    def test_a_query_of_many_hits_and_of_few_count_alike(self, index: SearchIndex) -> None:
        index.write([made(number, p=number % 7, q=f"v{number % 50}") for number in range(300)])
        assert index.count_facets(SOME, ["p", "q"], size=100) == index.count_facets(
            EVERYTHING, ["p", "q"], size=100
        )
        few = index.count_facets(parse_query({"range": {"n": {"lt": 8}}}), ["p", "q"], size=3)
        assert few.total == 8
        assert [each.count for each in few.facets["p"]] == [2, 1, 1]
        assert few.facets["q"] == [FacetCount(f"v{at}", 1) for at in range(3)]


def compare(
    index: SearchIndex,
    documents: Sequence[dict[str, Any]],
    queries: Iterable[dict[str, Any]],
    fields: Sequence[str],
) -> int:
    """Ask the index and the evaluator the same; answers how many values were counted."""
    assert index.write([of(content) for content in documents]) == []
    flats = [(of(content), flatten_document(content)) for content in documents]
    assert every_field(index, size=50) == expected_fields(flats)
    counted = 0
    for query in queries:
        clause = _parsed(query)
        matches = compile_query(clause)
        matching = [(document, flat) for document, flat in flats if matches(flat)]
        found = index.count_facets(clause, fields, size=5)
        assert found.total == len(matching), query
        for name in fields:
            assert list(found.facets[name]) == list(expected_counts(matching, name, 5)), (
                query,
                name,
            )
            counted += len(found.facets[name])
    return counted
