"""The query evaluator: known answers, edit distance and phrases."""

import json
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import TimeLimitExceeded
from storage.search.documents import flatten_document
from storage.search.evaluator import compile_query, is_in_phrase
from storage.search.grammar.clauses import Fuzziness, count_required, normalize_minimum
from storage.search.grammar.parser import parse_query
from storage.search.predicates import is_within_edits
from tests.storage.contracts.meanings import DOCUMENTS, MEANINGS, Meaning, document, identity

pytestmark = pytest.mark.spec("SEA-10", "SEA-11")


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda meaning: json.dumps(meaning.query))
def test_a_query_means_what_is_written_down(meaning: Meaning) -> None:
    matches = compile_query(parse_query(meaning.query))
    assert [n for n in DOCUMENTS if matches(document(n))] == meaning.names.split()


def test_flattened_document_gives_same_answer() -> None:
    matches = compile_query(parse_query({"term": {"organism": "homo"}}))
    assert matches(flatten_document(document("human")))
    assert not matches(flatten_document(document("mouse")))


def test_ids_are_uuid_and_version() -> None:
    uuid, version = identity("mouse")
    matches = compile_query(parse_query({"ids": {"values": [f"{uuid}.{version}"]}}))
    assert [n for n in DOCUMENTS if matches(document(n))] == ["mouse"]


def test_reported_paths_are_skipped() -> None:
    matches = compile_query(parse_query({"exists": {"field": "tissue"}}))
    withheld = {"errors": [{"path": "tissue", "reason": "another kind"}]}
    assert matches(document("human"))
    assert not matches({**document("human"), **withheld})


@pytest.mark.spec("SEA-12")
def test_expensive_query_is_given_up() -> None:
    words = " ".join(f"w{number}" for number in range(10_000))
    fuzzy = [{"wildcard": {"text": f"*x*{number}"}} for number in range(300)]
    matches = compile_query(parse_query({"bool": {"should": fuzzy}}))
    with pytest.raises(TimeLimitExceeded):
        matches({"text": words})


SHORT = st.text("abc", max_size=6)


def distance(left: str, right: str, *, swaps: bool) -> int:
    """The plain table of edits, every cell filled."""
    table = [[row + column for column in range(len(right) + 1)] for row in range(len(left) + 1)]
    for row, column in product(range(1, len(left) + 1), range(1, len(right) + 1)):
        same = left[row - 1] == right[column - 1]
        ways = [table[row - 1][column] + 1, table[row][column - 1] + 1]
        ways.append(table[row - 1][column - 1] + (not same))
        if swaps and row > 1 and column > 1:
            crossed = left[row - 2 : row] == right[column - 2 : column][::-1]
            ways.append(table[row - 2][column - 2] + 1 if crossed else 99)
        table[row][column] = min(ways)
    return table[-1][-1]


@given(SHORT, SHORT, st.integers(0, 2), st.booleans())
def test_edits_are_counted_as_the_full_table_does(
    left: str, right: str, edits: int, swaps: bool
) -> None:
    assert is_within_edits(left, right, edits, transpositions=swaps) == (
        distance(left, right, swaps=swaps) <= edits
    )


@pytest.mark.parametrize(("word", "edits"), [("ab", 0), ("abc", 1), ("abcde", 1), ("abcdef", 2)])
def test_auto_fuzziness_grows_with_the_word(word: str, edits: int) -> None:
    assert Fuzziness().allowed_edits(word) == edits


def placed(words: Sequence[str], slop: int, text: Sequence[str]) -> bool:
    """Every way of giving each word a place of its own, tried."""
    places = [[at for at, each in enumerate(text) if each == word] for word in words]
    return any(
        len(set(chosen)) == len(chosen) and _spread(chosen) <= slop for chosen in product(*places)
    )


def _spread(chosen: Sequence[int]) -> int:
    shifts = [place - offset for offset, place in enumerate(chosen)]
    return max(shifts) - min(shifts)


@given(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
    st.integers(0, 4),
    st.lists(st.sampled_from("abc"), max_size=8),
)
def test_phrases_are_found_as_by_trying_every_place(
    words: list[str], slop: int, text: list[str]
) -> None:
    positions: dict[str, list[int]] = {}
    for at, word in enumerate(text):
        positions.setdefault(word, []).append(at)
    assert is_in_phrase(words, slop, positions) == placed(words, slop, text)


@pytest.mark.parametrize("slop", [0, 1_000_000])
def test_a_long_phrase_of_one_word_is_found_at_once_in_a_text_full_of_it(slop: int) -> None:
    assert is_in_phrase(["a"] * 7_000, slop, {"a": range(200_000)})
    assert not is_in_phrase(["a"] * 7_000, slop, {"a": range(6_999)})


@pytest.mark.spec("SEA-12")
def test_expensive_phrase_is_given_up() -> None:
    nearly = [place for place in range(200_000) if place % 7_000]
    with pytest.raises(TimeLimitExceeded):
        is_in_phrase(["a"] * 7_000, 0, {"a": nearly})


@pytest.mark.parametrize(
    ("spec", "optional", "needed"),
    [
        ("2", 5, 2),
        ("7", 5, 7),
        ("-2", 5, 3),
        ("-9", 5, 0),
        ("75%", 5, 3),
        ("-25%", 5, 4),
        ("100%", 5, 5),
        ("0", 5, 0),
        ("3<90%", 3, 3),
        ("3<90%", 10, 9),
        (" 2 < -25%  ", 4, 3),
        ("2<-25% 9<-3", 9, 7),
        ("2<-25% 9<-3", 10, 7),
    ],
)
def test_minimum_should_match(spec: str, optional: int, needed: int) -> None:
    tidied = normalize_minimum(spec)
    assert tidied is not None
    assert count_required(optional, tidied) == needed


@pytest.mark.parametrize("spec", ["", "x", "1.5", "%", "2<", "<2", "2<3<4", "--1"])
def test_rejects_invalid_minimum(spec: str) -> None:
    assert normalize_minimum(spec) is None
