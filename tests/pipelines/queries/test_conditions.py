"""Conditions: what an expression needs is read from it, and nothing that could fail is passed over."""

from typing import Any

import pytest

from pipelines.queries import jmes, sharing
from pipelines.queries.conditions import Conditions, conditions
from pipelines.queries.terms import ALL, NULL, Check, Each, Key, Look, Part, Sort

ELEMENT, MEMBER, FLAT = Each.ELEMENT, Each.MEMBER, Each.FLAT


def read(source: str, *, rich: bool = True) -> Conditions:
    """The conditions of a marked expression."""
    tree = jmes.parse(source).tree
    sharing.mark(tree)
    return conditions(tree, rich=rich)


def said(found: Conditions) -> list[set[tuple[Any, ...]]]:
    return [set(map(spelled, clause)) for clause in found.clauses]


def spelled(key: Key) -> tuple[Any, ...]:
    """A key, short: its path and the value that is there, or what is asked of it."""
    at = ("part",) if isinstance(key.term, Part) else key.term
    if key.check is Check.EQUAL:
        return (*at, key.value)
    if key.check is not Check.UNLIKE:
        return (*at, key.check.name, key.value)
    assert isinstance(key.value, frozenset)
    names = {NULL: "there", ALL: "unknown"}
    return (*at, names.get(key.value) or " or ".join(sorted(key.value)))


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
        ("b == c && a == 'x'", [], False),
        ("!b && a == 'x'", [{("a", "x")}], False),
        ("!(a == 'x')", [], False),
        ("a != 'x'", [], False),
        ("a == `[1]`", [{("a", "there")}], False),
        ("a == `NaN`", [{("a", "there")}], False),
        ("a[].b == 'x'", [{("a", "there")}], False),
        ("a[?b == 'x']", [{("a", "there")}], False),
        ("(a[*].b | [0]) == 'x'", [{("a", "there")}], False),
        ("a.b", [{("a", "b", "there")}], False),
        ("a[?b == 'x'] | length(@)", [], False),
        ("@", [], False),
    ],
)
def test_what_an_expression_needs(
    source: str, clauses: list[set[tuple[Any, ...]]], complete: bool
) -> None:
    found = read(source, rich=False)
    assert (said(found), found.complete) == (clauses, complete)


NO_TEXT = "array or boolean or null or number or object"
NO_NUMBER = "array or boolean or null or object or string"


@pytest.mark.parametrize(
    ("source", "clauses"),
    [
        ("a > `5`", [{("a", "GT", 5), ("a", NO_TEXT)}]),
        ("`5` > a", [{("a", "LT", 5), ("a", NO_TEXT)}]),
        ("a >= 'x'", [{("a", "GE", "x"), ("a", NO_NUMBER)}]),
        ("a < `true`", [{("a", "there")}]),
        # A text there is an error, so that what follows is not needed then.
        ("a > `5` && b == 'x'",
         [{("a", "GT", 5), ("a", NO_TEXT)}, {("b", "x"), ("a", NO_TEXT)}]),
        ("length(a) > `1`", [{("part", "GT", 1), ("part", NO_TEXT)}]),
        ("length(a) == `1`", [{("part", 1)}]),
        ("abs(a) && b == 'x'", [{("b", "x"), ("part", "unknown")}]),
        ("starts_with(a, 'x')", [{("a", "STARTS", "x"), ("a", "string")}]),
        ("ends_with(a, `1`)", []),
        ("contains(a, 'x')", [{("a", "HAS", "x"), ("a", "array or string")}]),
        ("contains(a, `1`)", [{("a", "HAS", 1), ("a", "array")}]),
        ("contains(a, `[1]`)", []),
        (f"contains(a, '{'x' * 65}')", []),
        ("contains('x', a)", []),
        ("contains(a[].b, 'x')", [{("part", "HAS", "x"), ("part", "array or string")}]),
        ("a[?b == 'x']", [{("a", "there")}, {("a", ELEMENT, "b", "x")}]),
        ("a[?b == 'x'].c", [{("a", "there")}, {("a", ELEMENT, "b", "x")}]),
        ("a[?@ > `1`]",
         [{("a", "there")}, {("a", ELEMENT, "GT", 1), ("a", ELEMENT, NO_TEXT)}]),
        ("a[?b == 'x' && c == 'y']",
         [{("a", "there")}, {("a", ELEMENT, "b", "x")}, {("a", ELEMENT, "c", "y")}]),
        ("a[?abs(b) == `1` && c == 'y']", [{("a", "there")}]),
        ("a[].b[?c == 'x'][]",
         [{("a", "there")},
          {("a", ELEMENT, FLAT, "b", "there"), ("a", ELEMENT, FLAT, "unknown")},
          {("a", ELEMENT, FLAT, "b", ELEMENT, "c", "x"), ("a", ELEMENT, FLAT, "unknown")}]),
        # Empty lists are elements, too: without the last `[]` any list is enough.
        ("a[].b[?c == 'x']",
         [{("a", "there")},
          {("a", ELEMENT, FLAT, "b", "there"), ("a", ELEMENT, FLAT, "unknown")}]),
        # A text that does not is an element that is no list: it stays.
        ("a[].contains(b, 'x')[]", [{("a", "there")}]),
        ("a.*.b", [{("a", "there")}, {("a", MEMBER, "b", "there")}]),
        ("a[?b == 'x'] | [0].c", [{("a", "there")}, {("a", ELEMENT, "b", "x")}]),
        ("a[?b == 'x'] | [::0]", [{("a", "there")}]),
        ("a[?b == 'x'] | [@]", [{("a", "there")}]),
        ("a[?b == 'x'] && c == 'y'",
         [{("a", "there")}, {("a", ELEMENT, "b", "x")}, {("c", "y"), ("a", ELEMENT, "unknown")}]),
        # What is done with each element may fail as well as what it is chosen by.
        ("a[?b == 'x'].[d > `1`] && c == 'y'",
         [{("a", "there")}, {("a", ELEMENT, "b", "x")},
          {("c", "y"), ("a", ELEMENT, "unknown"), ("a", ELEMENT, "d", NO_TEXT)}]),
        ("a[?b == 'x'] || c == 'y'", [{("a", ELEMENT, "b", "x"), ("c", "y")}]),
    ],
)  # fmt: skip
def test_what_it_needs_of_elements_and_results(
    source: str, clauses: list[set[tuple[Any, ...]]]
) -> None:
    assert said(read(source)) == clauses


def test_the_same_part_is_one_term_whatever_it_is_compared_with() -> None:
    one, two = read("length(a[?b]) > `1`"), read("c == 'x' && length( a[?b] ) < `7`")
    other = read("length(a[?c]) > `1`")
    names = [{key.term for key in found.clauses[-1]} - {("c",)} for found in (one, two, other)]
    assert names[0] == names[1] != names[2]


def look(document: Any, *, limit: int = 100, of_all: int = 1_000) -> Look:
    return Look(document, limit=limit, of_all=of_all)


def values(seen: Look, *path: Any) -> list[Any] | None:
    sight = seen.see(path)
    return None if sight is None else sight.values


def test_a_walk_goes_as_far_as_the_expressions_would() -> None:
    seen = look({"a": [{"b": 1}, "text"], "n": None})
    paths = [("a", 0, "b"), ("a", -2, "b"), ("a", 2), ("a", "b"), ("a", 1, 0), ("n", "x")]
    assert [values(seen, *path) for path in paths] == [[1], [1], [None], [None], [None], [None]]
    assert values(seen) == [{"a": [{"b": 1}, "text"], "n": None}]


def test_a_walk_through_lists_finds_every_element() -> None:
    seen = look({"a": [{"b": 1}, [{"b": 2}], None], "o": {"x": 1, "y": [2, 3]}, "n": None})
    assert values(seen, "a", ELEMENT, "b") == [1, None, None]
    assert values(seen, "a", ELEMENT, FLAT, "b") == [1, 2, None]
    assert values(seen, "o", MEMBER) == [1, [2, 3]]
    assert values(seen, "o", MEMBER, FLAT) == [1, 2, 3]
    assert values(seen, "o", ELEMENT) == values(seen, "a", MEMBER) == []
    assert values(seen, "n", ELEMENT, "b") == values(seen, "missing", MEMBER) == []


def test_what_takes_too_many_steps_is_not_known_and_holds() -> None:
    seen = look({"a": list(range(101)), "b": list(range(40))}, of_all=70)
    assert values(seen, "a", ELEMENT) is None
    assert values(seen, "b", ELEMENT) == list(range(40))
    assert values(seen, "b", ELEMENT, "c") is None  # All that may be spent is.
    assert values(seen, "b") == [list(range(40))]
    assert seen.holds(Key(("a", ELEMENT), Check.EQUAL, "nowhere"))
    assert not seen.holds(Key(("b", ELEMENT), Check.EQUAL, "nowhere"))


@pytest.mark.parametrize(
    ("test", "value", "passing", "failing"),
    [
        (Check.EQUAL, 1, [1, 1.0], [True, "1", None, 2]),
        (Check.EQUAL, Sort.TRUE, [True], [1, "true"]),
        (Check.GT, 5, [6, 5.5, 10**30], [5, 4, True, None, "9", float("nan"), [6]]),
        (Check.GE, 5, [5, 6], [4.9, "5"]),
        (Check.LT, "b", ["a", "", "B"], ["b", "ba", 1, None]),
        (Check.LE, 0, [0, -0.0, -1, False][:3], [1, False, None]),
        (Check.STARTS, "ab", ["ab", "abc"], ["a", "xab", None, ["ab"]]),
        (Check.ENDS, "ab", ["ab", "cab"], ["b", "abx", 1]),
        (Check.ENDS, "", ["", "x"], [None]),
        (Check.HAS, "a", ["a", "cab", ["a"]], ["", ["ab"], {"a": 1}, None]),
        (Check.HAS, 1, [[1], [True], [1.0]], [["1"], "1", 1]),
        (Check.UNLIKE, NULL, [0, "", [], False], [None]),
        (Check.UNLIKE, NULL | {"string"}, [0, "x" * 64_000], [None, "x"]),
    ],
)
def test_one_value_is_found_by_its_key_and_by_its_slot(
    test: Check, value: Any, passing: list[Any], failing: list[Any]
) -> None:
    for seen, expected in [(one, True) for one in passing] + [(one, False) for one in failing]:
        assert (seen, look({"a": seen}).holds(Key(("a",), test, value))) == (seen, expected)
        assert (seen, look({"a": [seen]}).holds(Key(("a", ELEMENT), test, value))) == (
            seen,
            expected,
        )
