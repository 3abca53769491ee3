"""Lucene patterns translated to regular expressions."""

import time

import pytest

from storage.search.patterns import REGEXP_OPERATORS, make_matcher, regexp_to_re2, wildcard_to_re2

ALL = frozenset(REGEXP_OPERATORS.values())


def regexp(pattern: str, text: str, operators: frozenset[str] = ALL) -> bool:
    return make_matcher(regexp_to_re2(pattern, operators))(text)


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("abc", "abc", "abcd"),
        ("", "", "a"),
        ("()", "", "a"),
        ("a|b|", None, None),
        ("ab?c", "ac", "abbc"),
        ("a.c", "a\nc", "ac"),
        ("^a$", "^a$", "a"),
        ("a{2}", "aa", "aaa"),
        ("a{2,}", "aaaa", "a"),
        ("a{1,2}b", "aab", "aaab"),
        ("[a-c]x", "bx", "dx"),
        ("[^a-c]x", "dx", "ax"),
        ("[]a]", "]", "b"),
        ("[.*]", "*", "a"),
        (r"[\]\-]", "-", "\\"),
        (r"\d\w\s", "1_ ", "a_ "),
        (r"\D\W\S", "a-b", "1-b"),
        (r"\.\*", ".*", "ab"),
        ('"a.b"c', "a.bc", "axbc"),
        ("a@z", "a...z", "za"),
        ("a#|b", "b", "a"),
        ("*a", "*a", "a"),
        ("(a|(bc)+)d", "bcbcd", "bcb"),
        ("東.", "東京", "京東"),
    ],
)
def test_expressions(pattern: str, fits: str | None, fails: str) -> None:
    if fits is None:
        with pytest.raises(ValueError, match="unexpected end"):
            regexp_to_re2(pattern, ALL)
        return
    assert regexp(pattern, fits)
    assert not regexp(pattern, fails)


@pytest.mark.parametrize(
    "pattern",
    [
        "a)",
        "(a",
        "[a",
        "[a-",
        "[z-a]",
        "a{",
        "a{x}",
        "a{2,1}",
        '"a',
        "~a",
        "a&b",
        "<1-2>",
        "\\",
        "(" * 200 + ")" * 200,
        "a{2000}",
    ],
)
def test_reports_untranslatable_patterns(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        regexp_to_re2(pattern, ALL)


def test_operators_that_are_off_are_characters() -> None:
    assert regexp("a&b~<1-2>@#", "a&b~<1-2>@#", frozenset())


def test_case_does_not_matter_in_ascii_only() -> None:
    assert make_matcher(regexp_to_re2("aBé", ALL, case_insensitive=True))("Abé")
    assert not make_matcher(regexp_to_re2("é", ALL, case_insensitive=True))("É")
    assert make_matcher(wildcard_to_re2("aB*", case_insensitive=True))("Abc")


def test_wildcards() -> None:
    assert make_matcher(wildcard_to_re2("a*b?"))("a\n.bc")
    assert make_matcher(wildcard_to_re2(r"\*\?\a\\"))("*?a\\")
    assert not make_matcher(wildcard_to_re2("a.c"))("abc")
    assert make_matcher(wildcard_to_re2("a\\"))("a\\")


@pytest.mark.spec("SEA-12")
def test_patterns_run_in_linear_time() -> None:
    start = time.process_time()
    assert not regexp("(a*)*b", "a" * 100_000)
    assert not make_matcher(wildcard_to_re2("*a" * 20 + "b"))("a" * 100_000)
    assert time.process_time() - start < 2.0
