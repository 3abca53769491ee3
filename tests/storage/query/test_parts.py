"""Edits, phrases and minima by themselves."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import TimedOut
from storage.query.clauses import Fuzziness
from storage.query.edits import within
from storage.query.minimum import normalized, required
from storage.query.phrases import in_phrase

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
    assert within(left, right, edits, transpositions=swaps) == (
        distance(left, right, swaps=swaps) <= edits
    )


@pytest.mark.parametrize(("word", "edits"), [("ab", 0), ("abc", 1), ("abcde", 1), ("abcdef", 2)])
def test_auto_fuzziness_grows_with_the_word(word: str, edits: int) -> None:
    assert Fuzziness().edits(word) == edits


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
    assert in_phrase(words, slop, positions) == placed(words, slop, text)


@pytest.mark.parametrize("slop", [0, 1_000_000])
def test_a_long_phrase_of_one_word_is_found_at_once_in_a_text_full_of_it(slop: int) -> None:
    assert in_phrase(["a"] * 7_000, slop, {"a": range(200_000)})
    assert not in_phrase(["a"] * 7_000, slop, {"a": range(6_999)})


def test_a_phrase_that_would_take_hours_is_given_up() -> None:
    nearly = [place for place in range(200_000) if place % 7_000]
    with pytest.raises(TimedOut):
        in_phrase(["a"] * 7_000, 0, {"a": nearly})


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
    tidied = normalized(spec)
    assert tidied is not None
    assert required(optional, tidied) == needed


@pytest.mark.parametrize("spec", ["", "x", "1.5", "%", "2<", "<2", "2<3<4", "--1"])
def test_what_is_no_minimum(spec: str) -> None:
    assert normalized(spec) is None
