"""The index of equalities: nothing is found by it that plain evaluation would not find."""

from random import Random
from typing import Any

import pytest

from pipelines import jmes
from pipelines.conditions import Sort, conditions
from pipelines.equalities import Look
from pipelines.matching import Questions
from tests.pipelines.expressions import by_matching, by_us, differences, sources, subscriptions

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # `bare`


@pytest.mark.parametrize("seed", range(4))
def test_matching_says_what_the_library_says(seed: int) -> None:
    assert list(differences(seed, documents=10, expressions=100)) == []


@pytest.mark.parametrize("steps", [1, 5, 12, 40, 150, 1500])
def test_whoever_would_exceed_his_steps_still_does(steps: int) -> None:
    assert list(differences(steps, documents=5, expressions=60, steps=steps)) == []


def test_most_of_what_is_generated_is_indexed_and_some_of_it_matches() -> None:
    found = [conditions(jmes.parse(one).tree) for one in sources(Random(1), 400)]
    assert sum(bool(one.clauses) for one in found) > 150
    assert sum(one.complete for one in found) > 50


def said(source: str) -> tuple[list[set[tuple[Any, ...]]], bool]:
    found = conditions(jmes.parse(source).tree)
    return [{(*key.path, key.value) for key in clause} for clause in found.clauses], found.complete


@pytest.mark.parametrize(
    ("source", "clauses", "complete"),
    [
        ("a.b[0].c == 'x'", [{("a", "b", 0, "c", "x")}], True),
        ("'x' == a", [{("a", "x")}], True),
        ("a == `null`", [{("a", None)}], True),
        ("a == `true`", [{("a", Sort.TRUE)}], True),
        ("a == '1' && b == `1`", [{("a", "1")}, {("b", 1)}], True),
        ("a == 'x' || b == 'y'", [{("a", "x"), ("b", "y")}], True),
        ("a == 'x' && b == 'y' || c == 'z'", [{("a", "x"), ("c", "z")}], False),
        ("a | b == 'x'", [{("a", "b", "x")}], True),
        ("a == 'x' && length(b) > `1`", [{("a", "x")}], False),
        # What stands before it may fail: the conjunct decides nothing.
        ("length(b) > `1` && a == 'x'", [], False),
        ("c > `1` && a == 'x'", [{("c", Sort.PRESENT)}], False),
        ("b == c && a == 'x'", [], False),
        ("!b && a == 'x'", [{("a", "x")}], False),
        ("!(a == 'x')", [], False),
        ("a != 'x'", [], False),
        ("a == `[1]`", [{("a", Sort.PRESENT)}], False),
        ("a == `NaN`", [{("a", Sort.PRESENT)}], False),
        ("a[].b == 'x'", [{("a", Sort.PRESENT)}], False),
        ("a[?b == 'x']", [{("a", Sort.PRESENT)}], False),
        ("(a[*].b | [0]) == 'x'", [{("a", Sort.PRESENT)}], False),
        ("a.b", [{("a", "b", Sort.PRESENT)}], False),
        ("a[?b == 'x'] | length(@)", [], False),
        ("@", [], False),
    ],
)
def test_what_an_expression_needs(
    source: str, clauses: list[set[tuple[Any, ...]]], complete: bool
) -> None:
    assert said(source) == (clauses, complete)


@pytest.mark.parametrize(
    ("document", "matched"),
    [
        ({"a": 1}, {1, 2}),
        ({"a": 1.0}, {1, 2}),
        ({"a": True}, {3}),
        ({"a": "1"}, {4}),
        ({"a": None}, {5}),
        ({}, {5}),
        ({"a": [1]}, set()),
        ({"a": 2**53 + 1}, {6}),
        ({"a": float(2**53)}, set()),
    ],
)
def test_values_are_equal_as_jmespath_has_it(document: dict[str, Any], matched: set[int]) -> None:
    literals = ["`1`", "`1.0`", "`true`", "'1'", "`null`", f"`{2**53 + 1}`"]
    questions = Questions(subscriptions(f"a == {literal}" for literal in literals))
    assert set(by_matching(questions, document, jmes.MAX_STEPS)) == matched


def test_a_failure_before_an_equality_that_does_not_hold_is_still_told() -> None:
    questions = Questions(subscriptions(["abs(a) == `1` && b == 'x'", "b == 'x' && abs(a) == `1`"]))
    assert by_matching(questions, {"a": "text"}, jmes.MAX_STEPS) == {1: (False, True)}


def test_more_clauses_than_are_kept_leave_it_to_the_expression() -> None:
    source = " && ".join(f"a{n} == 'x'" for n in range(20))
    document = {f"a{n}": "x" for n in range(19)}
    assert by_matching(Questions(subscriptions([source])), document, jmes.MAX_STEPS) == {}
    assert not conditions(jmes.parse(source).tree).complete


def test_a_removed_subscription_is_found_no_more() -> None:
    asked = subscriptions(["a == 'x'", "a == 'x'", "a == 'x' || b == 'y'", "c", "abs(d)"])
    questions, seen = Questions(asked), {"a": "x", "c": 1, "d": 1}
    assert set(by_matching(questions, seen, jmes.MAX_STEPS)) == {1, 2, 3, 4, 5}
    questions.change([], gone=[1, 3, 4])
    assert set(by_matching(questions, seen, jmes.MAX_STEPS)) == {2, 5}
    questions.change(asked[:1], gone=[2, 5])
    assert set(by_matching(questions, seen, jmes.MAX_STEPS)) == {1}
    questions.change([], gone=[1])
    assert (len(questions), questions.candidates(seen, steps=1)) == (0, [])


def test_a_walk_goes_as_far_as_the_expressions_would() -> None:
    look = Look({"a": [{"b": 1}, "text"], "n": None})
    paths = [("a", 0, "b"), ("a", -2, "b"), ("a", 2), ("a", "b"), ("a", 1, 0), ("n", "x"), ()]
    assert [look.value(path) for path in paths[:-1]] == [1, 1, None, None, None, None]
    assert look.value(()) == {"a": [{"b": 1}, "text"], "n": None}
    assert by_us("a[-2].b == `1`", look.value(()), 100) == (True, False)
