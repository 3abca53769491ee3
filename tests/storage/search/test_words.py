"""The tokenizer against the full Unicode word break rules."""

import re
import time
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from uniseg.linebreak import line_break
from uniseg.wordbreak import word_break
from uniseg.wordbreak import words as segments

from storage.search.words import (
    MAX_SLICE,
    MAX_WORD_CHARACTERS,
    WORD_CLASSES,
    fold_case,
    slice_at_blanks,
    split_words,
    word_expression,
)

pytestmark = pytest.mark.spec("SEA-21")

PROPERTIES = {
    "ALetter": WORD_CLASSES["letter"],
    "Hebrew_Letter": WORD_CLASSES["hebrew"],
    "Numeric": WORD_CLASSES["numeric"],
    "Katakana": WORD_CLASSES["katakana"],
    "ExtendNumLet": WORD_CLASSES["connector"],
    "MidLetter": WORD_CLASSES["mid_letter"],
    "MidNum": WORD_CLASSES["mid_number"],
    "MidNumLet": WORD_CLASSES["mid_both"],
    "Extend": WORD_CLASSES["extend"],
    "Format": WORD_CLASSES["extend"],
    "ZWJ": WORD_CLASSES["extend"],
}


def members(ranges: str) -> set[int]:
    found: set[int] = set()
    for part in ranges.split():
        first, _, last = part.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return found


WORD_CHARACTERS = members(
    " ".join(
        [
            WORD_CLASSES["letter"],
            WORD_CLASSES["hebrew"],
            WORD_CLASSES["numeric"],
            WORD_CLASSES["katakana"],
            WORD_CLASSES["single"],
        ]
    )
)
EXTENDING = members(WORD_CLASSES["extend"])
# What surrounds words and what holds them together, more often than chance would have it.
TRICKY = [
    *"aZ19_ ':.,;-/\"\n\r",
    "é",
    "א",
    "ア",
    "東",
    "ひ",
    "\u0301",
    "\u00ad",
    "\u2019",
    "\uff3f",
]
ALPHABET = st.one_of(
    st.sampled_from(TRICKY),
    st.sampled_from(
        [chr(point) for ranges in PROPERTIES.values() for point in [*members(ranges)][::41]]
    ),
    st.characters(codec="utf-8"),
)


def expected(text: str) -> list[str]:
    """What the full rules call words, of those that hold a letter or a digit."""
    return [
        segment
        for segment in segments(fold_case(text))
        if any(ord(character) in WORD_CHARACTERS for character in segment)
    ]


@given(st.text(ALPHABET, max_size=12))
def test_words_follow_the_unicode_standard(text: str) -> None:
    # South East Asian runs are one word in the standard analysis, and emoji are never words; a mark
    # on an apostrophe that ends a Hebrew word is the one thing that is not followed.
    assume(not any(line_break(each).value == "SA" for each in text))
    assume("\u200d" not in text)
    assume(not ("'" in text and any(ord(each) in EXTENDING for each in text)))
    assert split_words(text) == expected(text)


@given(st.text(st.sampled_from("aZ19_ ':.,;-/\"\n"), max_size=12))
def test_ascii_words_follow_the_unicode_standard(text: str) -> None:
    assert split_words(text) == expected(text)


def test_word_classes_match_unicode_database() -> None:
    listed: dict[int, str] = {}
    for name in ("extend", *sorted(WORD_CLASSES)):
        listed.update(dict.fromkeys(members(WORD_CLASSES[name]), name))
    names = {"Format": "extend", "ZWJ": "extend", "Extend": "extend", "ALetter": "letter"}
    names |= {"Hebrew_Letter": "hebrew", "Numeric": "numeric", "Katakana": "katakana"}
    names |= {"ExtendNumLet": "connector", "MidLetter": "mid_letter"}
    names |= {"MidNum": "mid_number", "MidNumLet": "mid_both"}
    points = [point for point in range(0x30000) if not 0xD800 <= point < 0xE000]
    for point in points:
        value = word_break(chr(point)).value
        if value in names:
            assert listed[point] == names[value], hex(point)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Homo sapiens", ["homo", "sapiens"]),
        ("63cba020-fbb5-4fe5", ["63cba020", "fbb5", "4fe5"]),
        ("2026-01-31T235959.000000Z", ["2026", "01", "31t235959.000000z"]),
        ("http://a.example/x_y.json", ["http", "a.example", "x_y.json"]),
        ("don't 'quoted'", ["don't", "quoted"]),
        ("1,000.5 a.b a.1 1.a", ["1,000.5", "a.b", "a", "1", "1", "a"]),
        ("__ _a_ .", ["_a_"]),
        ("東京 ひら カタカナ", ["東", "京", "ひ", "ら", "カタカナ"]),
        ("ภาษาไทย", ["ภาษาไทย"]),
        ("İSTANBUL ΣΑΣ", ["istanbul", "σασ"]),
        ("😀 ☃ ½", []),
        ("", []),
    ],
)
def test_examples(text: str, found: list[str]) -> None:
    assert split_words(text) == found


def test_long_words_are_cut() -> None:
    assert split_words("x" * 600) == ["x" * 255, "x" * 255, "x" * 90]
    assert max(map(len, split_words("é" * 999))) == MAX_WORD_CHARACTERS


@given(st.text(max_size=20))
def test_folding_keeps_the_length(text: str) -> None:
    assert len(fold_case(text)) == len(text)


@pytest.mark.parametrize("pattern", ["a", "_", "a'", "1.", 'א"', "ア_", "a\u0301", "'", "ก", "é "])
def test_segmentation_runs_in_linear_time(pattern: str) -> None:
    start = time.process_time()
    split_words(pattern * 100_000)
    split_words("é" + pattern * 100_000)
    assert time.process_time() - start < 2.0


def test_random_bytes_are_text_too() -> None:
    noise = Random(1).randbytes(20_000).decode("utf-8", "replace")
    assert all(split_words(word) for word in split_words(noise))


def test_possessive_quantifiers_change_nothing() -> None:
    random = Random(5)
    signs = "ab1.,:';\"_-\u05d0\u05d1\u0301\u200d\u30a2\u6771\u0e01 \u2019\u203f\u00e9"
    plain = re.compile(word_expression(""))
    greedy = re.compile(word_expression())
    for _ in range(20_000):
        text = "".join(random.choices(signs, k=random.randint(1, 12)))
        assert plain.findall(text) == greedy.findall(text), ascii(text)


def test_slices_have_the_same_words() -> None:
    text = " ".join(f"w{number} \u00e9t\u00e9" for number in range(30_000))
    cut = slice_at_blanks(text)
    assert "".join(cut) == text
    assert max(map(len, cut)) <= MAX_SLICE
    assert [word for part in cut for word in split_words(part)] == split_words(text)
    assert slice_at_blanks("x" * (MAX_SLICE + 1)) == ["x" * MAX_SLICE, "x"]
