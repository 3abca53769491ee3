"""Embedded engine, OpenSearch and evaluator agree on real metadata.

Documents go through the shapes as the pipeline would index them. It runs where STORE_TEST_OPENSEARCH
names a server and STORE_REAL_DATA a folder.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pipelines import documents as presenting
from pipelines import search
from storage.errors import Invalid
from storage.protocols import IndexedDocument, SearchIndex
from storage.search.documents import FlatDocument, flatten_document
from storage.search.embedded.index import EmbeddedIndex
from storage.search.evaluator import compile_query
from storage.search.grammar.clauses import Clause
from storage.search.grammar.parser import parse_query
from tests.storage.contracts import real_data
from tests.storage.contracts.generated import Generator
from tests.storage.contracts.search_index import found, newest_first
from tests.storage.search import real_opensearch

QUERIES_A_KIND = 35
GENERAL = 240

pytestmark = [real_opensearch.needed, pytest.mark.spec("SEA-11")]


class Real(Generator):
    """Queries about texts that occur, a little changed: in order, in letters, in what is left out.

    `texts` are pairs of a field and a text of several words that some document has there.
    """

    def __init__(self, seed: int, texts: Sequence[tuple[str, str]], **vocabulary: Any) -> None:
        super().__init__(seed, **vocabulary)
        self.texts = texts

    def some_words(self) -> tuple[str, list[str]]:
        """A field and a few neighbouring words of it, some of them swapped or left out."""
        field, text = self.one(self.texts)
        words = text.split()
        start = self.random.randrange(len(words))
        kept = words[start : start + self.random.randint(2, 5)]
        if self.often(0.3):
            self.random.shuffle(kept)
        if self.often(0.3):
            kept = [word for word in kept if self.often(0.7)]
        return field, kept or words[:1]

    def changed(self) -> tuple[str, str]:
        """A field and a word of it with a letter more, less, or another."""
        field, words = self.some_words()
        letters = list(words[0].lower())
        for _ in range(self.random.randint(0, 2)):
            at = self.random.randrange(len(letters))
            letters[at : at + self.random.randint(0, 1)] = self.one(["", "e", "7", letters[at]])
            letters = letters or ["e"]
        return field, "".join(letters)

    def field_or_pattern(self, field: str) -> str:
        return str(self.one([field, field, f"{field}.keyword", self.pattern(), "*"]))


def _phrase(g: Real) -> dict[str, Any]:
    field, words = g.some_words()
    options = g.options({"query": " ".join(words)}, slop=lambda: g.random.randint(0, 6))
    return {"match_phrase": {field: options}}


def _fuzzy(g: Real) -> dict[str, Any]:
    field, word = g.changed()
    options = g.options(
        {"value": word},
        fuzziness=g.fuzziness,
        prefix_length=lambda: g.random.randint(0, 3),
        transpositions=False,
    )
    return {"fuzzy": {g.one([field, f"{field}.keyword"]): options}}


def _fuzzy_match(g: Real) -> dict[str, Any]:
    field, word = g.changed()
    fields = [g.field_or_pattern(field)]
    return {
        "multi_match": g.options(
            {"query": f"{word} {g.word()}", "fields": fields, "fuzziness": g.fuzziness()},
            operator="and",
            prefix_length=1,
        )
    }


def _wildcard(g: Real) -> dict[str, Any]:
    field, word = g.changed()
    letters = [g.one(["?", "*", "\\" + x, x.upper(), x, x, x]) for x in word]
    options = g.options({"value": "".join(letters)}, case_insensitive=True)
    return {"wildcard": {g.one([field, f"{field}.keyword"]): options}}


def _regexp(g: Real) -> dict[str, Any]:
    field, word = g.changed()
    pieces = ["{}", "{}", ".", "{}?", "{}+", "({}|x)", "[{}-z]", "[^{}]", ".*", "\\w", '"{}"']
    pattern = "".join(g.one(pieces).format("\\" + x if not x.isalnum() else x) for x in word)
    options = g.options({"value": pattern}, case_insensitive=True)
    return {"regexp": {g.one([field, f"{field}.keyword"]): options}}


def _prefix_or_range(g: Real) -> dict[str, Any]:
    field, words = g.some_words()
    field = g.one([field, f"{field}.keyword"])
    if g.often(0.5):
        return {"prefix": {field: {"value": words[0][: g.random.randint(0, 4)]}}}
    first, last = sorted([words[0].lower(), g.word()])
    return {"range": {field: {"gte": first, g.one(["lt", "lte"]): last}}}


def _string(g: Real) -> str:
    _, words = g.some_words()
    _, word = g.changed()
    plain = [each.strip('"()[]{}:/\\^~*?!&|+-<>=') or "x" for each in [*words, word]]
    phrase = " ".join(plain[:-1])
    parts = [
        *(f'"{phrase}"', f'"{phrase}"~{g.random.randint(0, 4)}', f"{plain[-1]}~", plain[0]),
        *(f"{plain[0][:3]}*", f"({plain[0]} | {g.one(plain)})", f"-{plain[-1]}", f"+{plain[0]}"),
    ]
    return " ".join(g.random.sample(parts, g.random.randint(1, 3)))


def _simple(g: Real) -> dict[str, Any]:
    field, _ = g.some_words()
    options = {"fields": lambda: [g.field_or_pattern(field)], "default_operator": "and"}
    more = {"minimum_should_match": g.minimum, "flags": "PHRASE|PREFIX|NOT"}
    return {"simple_query_string": g.options({"query": _string(g)}, **options, **more)}


def _query_string(g: Real) -> dict[str, Any]:
    field, _ = g.some_words()
    options = {"default_field": lambda: g.field_or_pattern(field), "default_operator": "AND"}
    more = {"minimum_should_match": g.minimum, "phrase_slop": 1}
    return {"query_string": g.options({"query": _string(g)}, **options, **more)}


KINDS: dict[str, Callable[[Real], dict[str, Any]]] = {
    "match_phrase": _phrase,
    "fuzzy": _fuzzy,
    "fuzzy multi_match": _fuzzy_match,
    "wildcard": _wildcard,
    "regexp": _regexp,
    "prefix, range": _prefix_or_range,
    "simple_query_string": _simple,
    "query_string": _query_string,
}


def shaped(contents: Sequence[dict[str, Any]]) -> Iterator[IndexedDocument]:
    """The documents as the pipeline hands them on, in this order of arrival."""
    known: dict[str, list[search.FieldKinds]] = {}
    for content in contents:
        descriptor = str(content["shape_descriptor"])
        shapes_there = known.setdefault(descriptor, [])
        choice = search.choose_shape(descriptor, content, shapes_there)
        shapes_there[choice.number : choice.number + 1] = [choice.kinds]
        kept = presenting.withhold_paths(content, choice.dropped)
        info = content["bundle_info"]
        yield IndexedDocument(info["uuid"], info["version"], choice.name, 1, kept)


@pytest.fixture(scope="module")
def documents() -> list[tuple[IndexedDocument, FlatDocument]]:
    written = list(shaped(real_data.documents()))
    return [(each, flatten_document(each.document or {})) for each in written]


@pytest.fixture(scope="module")
def engines(
    documents: list[tuple[IndexedDocument, FlatDocument]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, SearchIndex]]:
    embedded = EmbeddedIndex(tmp_path_factory.mktemp("search") / "aws.sqlite")
    with real_opensearch.opensearch() as index:
        engines: dict[str, SearchIndex] = {"embedded": embedded, "opensearch": index}
        for engine in engines.values():
            assert engine.write([document for document, _ in documents]) == []
        yield engines
    embedded.close()


@pytest.fixture(scope="module")
def generator(documents: list[tuple[IndexedDocument, FlatDocument]]) -> Callable[[int], Real]:
    contents = [dict(document.document or {}) for document, _ in documents]
    words, fields = real_data.vocabulary(contents)
    patterns = [*fields, "*", "files.run_json.*", "*.keyword", "files.*.title"]
    texts = sorted(
        {
            (path, text)
            for _, flat in documents
            for path, values in flat.strings.items()
            for text in values
            if 1 < len(text.split()) < 500
        }
    )
    return lambda seed: Real(seed, texts, words=words, fields=fields, patterns=patterns)


def differences(
    engines: dict[str, SearchIndex],
    documents: list[tuple[IndexedDocument, FlatDocument]],
    queries: Sequence[dict[str, Any]],
) -> tuple[list[tuple[str, dict[str, Any], int, int]], Counter[str]]:
    """Queries that an engine answers unlike the evaluator, with the numbers of hits of both."""
    wrong = []
    seen: Counter[str] = Counter()
    for query in queries:
        clause = _parsed(query)
        if clause is None:
            seen["refused"] += 1
            continue
        matches = compile_query(clause)
        expected = newest_first((d.uuid, d.version) for d, flat in documents if matches(flat))
        seen["matched" if expected else "empty"] += 1
        for name, engine in engines.items():
            got = found(engine, clause)
            if got != expected:
                wrong.append((name, query, len(got), len(expected)))
    return wrong, seen


def _parsed(query: dict[str, Any]) -> Clause | None:
    try:
        return parse_query(query)
    except Invalid:
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_clause_means_the_same_everywhere(
    kind: str,
    engines: dict[str, SearchIndex],
    documents: list[tuple[IndexedDocument, FlatDocument]],
    generator: Callable[[int], Real],
) -> None:
    seeded = generator(7)
    queries = [KINDS[kind](seeded) for _ in range(QUERIES_A_KIND)]
    wrong, seen = differences(engines, documents, queries)
    assert wrong == []
    assert seen["matched"] >= QUERIES_A_KIND // 6, seen
    assert seen["refused"] < QUERIES_A_KIND // 3, seen


@pytest.mark.parametrize("seed", range(3))
def test_any_query_means_the_same_everywhere(
    seed: int,
    engines: dict[str, SearchIndex],
    documents: list[tuple[IndexedDocument, FlatDocument]],
    generator: Callable[[int], Real],
) -> None:
    seeded = generator(seed)
    queries = [seeded.query() for _ in range(GENERAL // 3)]
    wrong, seen = differences(engines, documents, queries)
    assert wrong == []
    assert seen["matched"] >= GENERAL // 12, seen
