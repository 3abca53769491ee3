"""The index of equalities: nothing is found by it that plain evaluation would not find."""

from random import Random
from typing import Any

import pytest

from pipelines.queries import jmes
from pipelines.queries.conditions import Conditions, conditions
from pipelines.queries.matching import Questions
from pipelines.queries.terms import is_plain
from tests.pipelines.expressions import by_matching, by_us, differences, sources, subscriptions
from tests.pipelines.queries.test_conditions import read

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # `bare`


@pytest.mark.parametrize("seed", range(4))
def test_matching_says_what_the_library_says(seed: int) -> None:
    assert list(differences(seed, documents=10, expressions=100)) == []


@pytest.mark.parametrize("steps", [1, 5, 12, 40, 150, 1500])
def test_whoever_would_exceed_his_steps_still_does(steps: int) -> None:
    assert list(differences(steps, documents=5, expressions=60, steps=steps)) == []


def is_rich(found: Conditions) -> bool:
    """Whether what it costs to decide them depends on the document."""
    return not all(is_plain(key.term) for clause in found.clauses for key in clause)


def test_most_of_what_is_generated_is_indexed_and_some_of_it_matches() -> None:
    found = [read(one) for one in sources(Random(1), 400)]
    assert sum(bool(one.clauses) for one in found) > 150
    assert sum(one.complete for one in found) > 40
    assert sum(is_rich(one) for one in found) > 40


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


FILES = [{"n": n, "name": f"f{n}", "tags": ["x", f"t{n}"]} for n in range(60)]
OF_FILES = [
    "files[?n > `{}`]",
    "files[?name == 'f{}']",
    "files[?contains(tags, 't{}')]",
    "files[?starts_with(name, 'f{}')]",
    "files[].tags[?@ == 't{}'][]",
    "length(files) > `{}`",
    "contains(files[].name, 'f{}')",
    "sum(files[].n) > `{}` && length(files[?n > `{}`]) > `3`",
    "files[?n > `3`] && other == 'o{}'",
    "sort_by(files, &name)[0].n == `{}`",
    "files[?n == `{}`].tags[?contains(@, 'x')] && files[?type(name) == 'string' && n > `{}`]",
]


@pytest.mark.parametrize("steps", [1_200, 2_000, 4_000, 20_000, 40_000, 300_000])
def test_what_is_decided_would_have_had_its_steps(steps: int) -> None:
    asked = subscriptions(form.format(n, n) for form in OF_FILES for n in (-1, 5, 100, 10_000))
    questions = Questions(asked)
    for size in (0, 1, 3, 10, 30, 60, 300, 2_000):
        document = {"files": [FILES[n % 60] for n in range(size)], "other": "o5"}
        seen = document | {"event_type": "CREATE"}
        plain = {each.id: by_us(each.query or "", seen, steps) for each in asked}
        told = {ident: verdict for ident, verdict in plain.items() if verdict != (False, False)}
        assert by_matching(questions, document, steps) == told


def test_most_questions_about_elements_are_not_asked_where_none_fits() -> None:
    asked = subscriptions(form.format(n, n) for form in OF_FILES for n in range(2_000, 2_050))
    left = Questions(asked).candidates({"files": FILES, "other": "o5"}, steps=jmes.MAX_STEPS)
    assert len(left) == 0


def test_what_a_look_may_cost_is_bounded() -> None:
    asked = subscriptions(f"length(files[].n{n}) > `100`" for n in range(5_000))
    left = Questions(asked).candidates({"files": FILES}, steps=jmes.MAX_STEPS)
    assert 2_000 < len(left) < 5_000
    large = {"files": FILES * 100}
    assert len(Questions(asked[:10]).candidates(large, steps=jmes.MAX_STEPS)) == 10


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


def test_nothing_is_left_of_what_is_removed_however_it_was_filed() -> None:
    rng = Random(3)
    asked = subscriptions(sources(rng, 300))
    questions = Questions(asked)
    rng.shuffle(asked)
    for half in (asked[:150], asked[150:]):
        questions.change([], gone=[each.id for each in half])
        kept = {each.id for each in asked[150:]} & questions.ids()
        seen = {"a": {"b": [1, "x"]}, "files": [{"a": 5}], "event_type": "CREATE"}
        fresh = Questions(each for each in asked if each.id in kept)
        assert by_matching(questions, seen, 10**6) == by_matching(fresh, seen, 10**6)
    assert vars(questions._index) == {"_terms": {}, "_placed": {}, "_always": {}}
