"""The equality index finds whatever plain evaluation finds."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.queries import bounded_jmespath
from pipelines.queries.equality_index import (
    MAX_CLAUSES,
    MAX_NODES,
    PATH_STEPS,
    Clause,
    PathStep,
    find_clauses,
    value_key,
)
from pipelines.queries.stored_queries import StoredQuerySet
from tests.pipelines.expressions import (
    by_matching,
    by_the_library,
    by_us,
    differences,
    document,
    sources,
    subscriptions,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.spec("NOT-25"),
]


@pytest.mark.parametrize("seed", range(4))
def test_matches_same_as_library(seed: int) -> None:
    assert list(differences(seed, documents=10, expressions=100)) == []


@pytest.mark.parametrize("steps", [1, 5, 12, 40, 150, 1500])
def test_indexed_query_exceeds_steps_as_before(steps: int) -> None:
    assert list(differences(steps, documents=5, expressions=60, steps=steps)) == []


ELEMENT, FLAT = PathStep.ELEMENT, PathStep.FLAT


def read(source: str) -> tuple[Clause, ...]:
    return find_clauses(bounded_jmespath.parse_expression(source))


@pytest.mark.parametrize(
    ("source", "clauses"),
    [
        ("a.b[0].c == 'x'", [{("a", "b", 0, "c", "x")}]),
        ("'x' == a", [{("a", "x")}]),
        ("a == `null`", [{("a", None)}]),
        ("a == `true`", [{("a", True)}]),
        ("a == '1' && b == `1`", [{("a", "1")}, {("b", 1)}]),
        ("a == 'x' || b == 'y'", [{("a", "x"), ("b", "y")}]),
        ("a == 'x' && b == 'y' || c == 'z'", [{("a", "x"), ("c", "z")}]),
        ("a | b == 'x'", [{("a", "b", "x")}]),
        ("a == 'x' && length(b) > `1`", [{("a", "x")}]),
        ("!b && a == 'x'", [{("a", "x")}]),
        ("a[?b == 'x']", [{("a", ELEMENT, "b", "x")}]),
        ("a[?b == 'x'].c", [{("a", ELEMENT, "b", "x")}]),
        ("a[?b.c == 'x' && d == 'y']", [
            {("a", ELEMENT, "b", "c", "x")}, {("a", ELEMENT, "d", "y")}
        ]),
        ("a[?b == 'x'][?c == 'y']", [
            {("a", ELEMENT, "b", "x")}
        ]),
        ("a[?b == 'x'] | [?c == 'y']", [{("a", ELEMENT, "b", "x")}]),
        ("a[?b[?c == 'x']]", [{("a", ELEMENT, "b", ELEMENT, "c", "x")}]),
        ("a[].b[?c == 'x'][]", [{("a", ELEMENT, FLAT, "b", ELEMENT, "c", "x")}]),
        ("a[*].b[?c == 'x'][]", [{("a", ELEMENT, "b", ELEMENT, "c", "x")}]),
        ("a[?b == 'x'] | [0].c", [{("a", ELEMENT, "b", "x")}]),
        ("a[?b == 'x'] && c == 'y'", [{("a", ELEMENT, "b", "x")}]),
        ("a[?b == 'x'] || c == 'y'", [{("a", ELEMENT, "b", "x"), ("c", "y")}]),
    ],
)  # fmt: skip
def test_finds_equalities_that_a_match_needs(
    source: str, clauses: list[set[tuple[Any, ...]]]
) -> None:
    expected = [{(tuple(each[:-1]), value_key(each[-1])) for each in one} for one in clauses]
    assert [set(clause) for clause in read(source)] == expected


@pytest.mark.parametrize(
    "source",
    [
        "@",
        "a.b",
        "a != 'x'",
        "a > `5`",
        "!(a == 'x')",
        "a == b",
        "a == `[1]`",
        "a == `NaN`",
        "a == 'x' || b",
        # The left side may fail, in its type or in its steps.
        "length(b) > `1` && a == 'x'",
        "b > `1` && a == 'x'",
        "b == c && a == 'x'",
        "b[?c] && a == 'x'",
        "a[?abs(b) == `1` && c == 'y']",
        # Lists of empty lists are true, and so is what is made of an empty list.
        "a[*].b[?c == 'x']",
        "a[].b[?c == 'x']",
        "a[?b == 'x'] | length(@)",
        "a[?b == 'x'] | [::0]",
        "a[?b == 'x'] | [@]",
        "contains(a, 'x')",
    ],
)
def test_finds_no_equality_where_none_is_needed(source: str) -> None:
    assert read(source) == ()


def test_the_clauses_of_an_expression_are_bounded() -> None:
    assert len(read(" && ".join(f"a{n} == 'x'" for n in range(20)))) == MAX_CLAUSES
    many = ", ".join(f"a{n}" for n in range(MAX_NODES))
    assert read(f"b == 'x' && [{many}]") == ()


def test_indexes_many_generated_expressions() -> None:
    clauses = [read(source) for source in sources(Random(1), 400)]
    assert sum(map(bool, clauses)) > 80
    in_lists = [
        source
        for source in clauses
        if any(
            isinstance(step, PathStep) for clause in source for path, _ in clause for step in path
        )
    ]
    assert len(in_lists) > 5


@given(st.randoms(use_true_random=False))
def test_no_generated_match_is_missed(rng: Random) -> None:
    asked = subscriptions(sources(rng, 5))
    questions, seen = StoredQuerySet(asked), document(rng)
    plain = {each.id: by_the_library(each.query or "", seen) for each in asked}
    told = {ident: verdict for ident, verdict in plain.items() if verdict != (False, False)}
    assert by_matching(questions, seen, bounded_jmespath.MAX_STEPS) == told


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
    questions = StoredQuerySet(subscriptions(f"a == {literal}" for literal in literals))
    assert set(by_matching(questions, document, bounded_jmespath.MAX_STEPS)) == matched


def test_failure_before_false_equality_is_reported() -> None:
    questions = StoredQuerySet(
        subscriptions(["abs(a) == `1` && b == 'x'", "b == 'x' && abs(a) == `1`"])
    )
    assert by_matching(questions, {"a": "text"}, bounded_jmespath.MAX_STEPS) == {1: (False, True)}


def test_expressions_with_too_many_clauses_are_evaluated() -> None:
    source = " && ".join(f"a{n} == 'x'" for n in range(20))
    document = {f"a{n}": "x" for n in range(19)}
    assert (
        by_matching(StoredQuerySet(subscriptions([source])), document, bounded_jmespath.MAX_STEPS)
        == {}
    )


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
def test_index_decides_only_queries_within_steps(steps: int) -> None:
    asked = subscriptions(form.format(n, n) for form in OF_FILES for n in (-1, 5, 100, 10_000))
    questions = StoredQuerySet(asked)
    for size in (0, 1, 3, 10, 30, 60, 300, 2_000):
        document = {"files": [FILES[n % 60] for n in range(size)], "other": "o5"}
        seen = document | {"event_type": "CREATE"}
        plain = {each.id: by_us(each.query or "", seen, steps) for each in asked}
        told = {ident: verdict for ident, verdict in plain.items() if verdict != (False, False)}
        assert by_matching(questions, document, steps) == told


def test_evaluates_candidates_only() -> None:
    forms = ["files[?name == 'f{}']", "files[].tags[?@ == 't{}'][]", "other == 'o{}'"]
    asked = subscriptions(form.format(n) for form in forms for n in range(1_000))
    found = StoredQuerySet(asked).candidates(
        {"files": FILES, "other": "o5"}, steps=bounded_jmespath.MAX_STEPS
    )
    assert len(found) == 60 + 60 + 1


def test_reading_the_paths_of_a_document_is_bounded() -> None:
    asked = subscriptions(f"files[?n{n} == `100`]" for n in range(5_000))
    steps = bounded_jmespath.MAX_STEPS
    candidates = StoredQuerySet(asked).candidates({"files": FILES}, steps=steps)
    assert 500 < len(candidates) < 2_000
    large = {"files": FILES * (PATH_STEPS // len(FILES) + 1)}
    assert len(StoredQuerySet(asked[:10]).candidates(large, steps=steps)) == 10


def test_a_removed_subscription_is_found_no_more() -> None:
    asked = subscriptions(["a == 'x'", "a == 'x'", "a == 'x' || b == 'y'", "c", "abs(d)"])
    questions, seen = StoredQuerySet(asked), {"a": "x", "c": 1, "d": 1}
    assert set(by_matching(questions, seen, bounded_jmespath.MAX_STEPS)) == {1, 2, 3, 4, 5}
    questions.update([], gone=[1, 3, 4])
    assert set(by_matching(questions, seen, bounded_jmespath.MAX_STEPS)) == {2, 5}
    questions.update(asked[:1], gone=[2, 5])
    assert set(by_matching(questions, seen, bounded_jmespath.MAX_STEPS)) == {1}
    questions.update([], gone=[1])
    assert (len(questions), questions.candidates(seen, steps=1)) == (0, [])


def test_removed_subscriptions_leave_nothing_in_index() -> None:
    rng = Random(3)
    asked = subscriptions(sources(rng, 300))
    questions = StoredQuerySet(asked)
    rng.shuffle(asked)
    for half in (asked[:150], asked[150:]):
        questions.update([], gone=[each.id for each in half])
        kept = {each.id for each in asked[150:]} & questions.subscription_ids()
        seen = {"a": {"b": [1, "x"]}, "files": [{"a": 5}], "event_type": "CREATE"}
        fresh = StoredQuerySet(each for each in asked if each.id in kept)
        assert by_matching(questions, seen, 10**6) == by_matching(fresh, seen, 10**6)
    assert vars(questions._index) == {
        "_paths": {},
        "_clauses": {},
        "_unindexed": {},
    }
