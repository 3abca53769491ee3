"""Bounded JMESPath agrees with the library within its limits."""

import time
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jmespath.functions import Functions

from pipelines.queries import bounded_jmespath
from storage.errors import Invalid

DOCUMENT: dict[str, Any] = {
    "event_type": "CREATE",
    "bundle_info": {"uuid": "u", "version": "2026"},
    "manifest": {"files": [{"name": f"f{n}", "size": n, "indexed": n % 2 == 0} for n in range(5)]},
    "files": {"project_json": [{"tags": [["a", "b"], ["c"], "d"], "none": None}], "empty": []},
    "numbers": [3, 1, 2],
    "deep": {"a": {"x": 1}, "b": {"x": 2}, "c": 3},
}

EXPRESSIONS = [
    "event_type == 'CREATE'",
    "event_type != 'CREATE' || bundle_info.version > '2025'",
    "manifest.files[?size > `2`].name | [0]",
    "manifest.files[?indexed].{n: name, s: size}",
    "files.project_json[0].tags[]",
    "files.project_json[].tags[][]",
    "files.*[].none",
    "deep.*.x",
    "numbers[::-1]",
    "numbers[1:3]",
    "numbers[9]",
    "!files.empty",
    "missing.path[*].x",
    "length(manifest.files)",
    "sort(numbers)",
    "sort_by(manifest.files, &size)[-1].name",
    "max_by(manifest.files, &size).name",
    "min_by(manifest.files, &size).name",
    "map(&name, manifest.files)",
    "join('-', manifest.files[].name)",
    "to_string(@)",
    "to_number('12')",
    "contains(numbers, `3`)",
    "contains(files.project_json[0].tags, ['c'])",
    "contains(event_type, 'REA')",
    "files.project_json[0].tags[1] == ['c']",
    "deep.a == {x: `1`}",
    "merge(deep, bundle_info)",
    "keys(deep)",
    "values(bundle_info)",
    "reverse(numbers)",
    "sum(numbers)",
    "avg(numbers)",
    "type(files)",
    "not_null(missing, event_type)",
    "to_array(event_type)",
    "starts_with(event_type, 'C') && ends_with(event_type, 'E')",
    "[event_type, numbers[0]]",
    "numbers[?@ > `1`]",
    "`0` && `1`",
    "@",
]


@pytest.mark.spec("NOT-25")
@pytest.mark.parametrize("source", EXPRESSIONS)
def test_the_result_is_the_librarys(source: str) -> None:
    assert bounded_jmespath.compile_expression(source).search(DOCUMENT) == jmespath.search(
        source, DOCUMENT
    )


@pytest.mark.parametrize(
    "source", ["abs('x')", "length(`1`)", "event_type < `1`", "nothing_known(@)", "numbers[::0]"]
)
def test_fails_where_library_fails(source: str) -> None:
    with pytest.raises(bounded_jmespath.EvaluationFailed):
        bounded_jmespath.compile_expression(source).search(DOCUMENT)
    with pytest.raises(Exception):  # noqa: B017, PT011
        jmespath.search(source, DOCUMENT)


json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
sources = st.recursive(
    st.sampled_from(["a", "b", "@", "c[0]", "a[*]", "b[]", "*", "`1`", "'a'", "[::2]"]),
    lambda inner: st.builds(
        lambda left, form, right: form.format(left, right),
        inner,
        st.sampled_from(
            ["{0}.b", "{0} | {1}", "{0} || {1}", "{0} && {1}", "!{0}", "{0} == {1}", "{0} < {1}", "({0})[?{1}]",
             "({0})[]", "[{0}, {1}]", "{{a: {0}, b: {1}}}", "length({0})", "to_string({0})", "contains({0}, {1})",
             "sort({0})", "keys({0})", "map(&{0}, {1})", "join('', {0})", "type({0})", "merge({0}, {1})"]
        ),
        inner,
    ),
    max_leaves=5,
)  # fmt: skip


@pytest.mark.spec("NOT-25")
@given(source=sources, document=json)
def test_every_expression_means_what_the_library_means(source: str, document: Any) -> None:
    try:
        expected = ("result", jmespath.search(source, document))
    except Exception:
        expected = ("failed", None)
    try:
        found = ("result", bounded_jmespath.compile_expression(source).search(document))
    except (bounded_jmespath.EvaluationFailed, Invalid):
        found = ("failed", None)
    assert found == expected


@pytest.mark.spec("NOT-09")
@pytest.mark.parametrize("source", ["null", "`false`", "''", "`[]`", "`{}`", "missing"])
def test_false_values_do_not_match(source: str) -> None:
    assert not bounded_jmespath.compile_expression(source).matches(DOCUMENT)


@pytest.mark.spec("NOT-09")
@pytest.mark.parametrize("source", ["`0`", "`true`", "'x'", "`[null]`", "deep", "`0.0`"])
def test_everything_else_matches(source: str) -> None:
    assert bounded_jmespath.compile_expression(source).matches(DOCUMENT)


HOSTILE = [
    "|".join(["[@,@]"] * 32) + "|to_string(@)",
    "|".join(["[@,@][]"] * 32),
    "|".join(["[@,@]"] * 15) + "|{a: @, b: @} | [a, b] | @[0] == @[1] && " + "to_string(@)",
    "to_string(@)|" + "|".join(["join('', [@,@])"] * 31),
    "|".join(["[@,@]"] * 20) + "|[]" * 20,
    "|".join(["[@,@]"] * 25) + "|contains([@], [@[0], @[1]])",
    "|".join(["[@,@]"] * 30) + "|@[0] == [@[0][0], @[0][1]]",
]


@pytest.mark.spec("NOT-24")
@pytest.mark.parametrize("source", HOSTILE)
def test_hostile_expressions_end_soon(source: str) -> None:
    began = time.thread_time()
    with pytest.raises(bounded_jmespath.EvaluationFailed, match="steps"):
        bounded_jmespath.compile_expression(source).search(
            {"a": "x" * 1000}, bounded_jmespath.EvaluationBudget(100_000)
        )
    assert time.thread_time() - began < 5


def test_several_evaluations_may_share_a_budget() -> None:
    expression = bounded_jmespath.compile_expression("manifest.files[*].name")
    alone = bounded_jmespath.EvaluationBudget(1000)
    expression.search(DOCUMENT, alone)
    shared = bounded_jmespath.EvaluationBudget(2 * (1000 - alone.remaining_steps) - 1)
    expression.search(DOCUMENT, shared)
    with pytest.raises(bounded_jmespath.EvaluationFailed):
        expression.search(DOCUMENT, shared)


@pytest.mark.spec("SUB-05")
@pytest.mark.parametrize(
    "source",
    [
        "",
        "a[",
        "a.",
        "a b",
        "(" * 3000,
        "`x",
        "a" * 5000,
        "!" * 100 + "a",
        "|".join("a" * 100),
        "'" + "ä" * 2100 + "'",
    ],
)
def test_rejects_unbounded_expressions(source: str) -> None:
    with pytest.raises(Invalid) as refused:
        bounded_jmespath.compile_expression(source)
    assert refused.value.code == "invalid_jmespath"
    assert len(refused.value.detail) < 400


def test_an_error_never_quotes_a_large_value() -> None:
    with pytest.raises(bounded_jmespath.EvaluationFailed) as failed:
        bounded_jmespath.compile_expression("abs(@)").search({"a": "x" * 1_000_000})
    assert len(str(failed.value)) < 400


def test_an_expression_is_compiled_once() -> None:
    assert bounded_jmespath.compile_expression("a.b.c") is bounded_jmespath.compile_expression(
        "a.b.c"
    )


@pytest.mark.spec("SUB-05")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nope(a)", "unknown function nope()"),
        ("a || lenght(b)", "unknown function lenght() (did you mean length()?)"),
        ("a[?nope(@)]", "unknown function nope()"),
        ("{x: [map(&nope(b), c)]}", "unknown function nope()"),
        ("Length(a)", "unknown function Length() (did you mean length()?)"),
        ("length()", "length() takes 1 argument (got 0)"),
        ("length(a, b)", "length() takes 1 argument (got 2)"),
        ("sort_by(a)", "sort_by() takes 2 arguments (got 1)"),
        ("not_null()", "not_null() takes at least 1 argument (got 0)"),
        ("x" * 4_000 + "(a)", f"unknown function {'x' * 64}()"),
    ],
)
def test_validate_refuses_calls_that_fail_on_every_document(source: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        bounded_jmespath.validate_expression(source)
    assert refused.value.code == "invalid_jmespath"
    assert refused.value.detail == f"Not a JMESPath expression: {reason}."


@pytest.mark.spec("SUB-05")
@pytest.mark.parametrize("name", sorted(Functions.FUNCTION_TABLE))
def test_validate_accepts_every_function_of_the_language(name: str) -> None:
    bounded_jmespath.validate_expression(
        f"{name}({', '.join(['@'] * len(Functions.FUNCTION_TABLE[name]['signature']))})"
    )


@pytest.mark.spec("SUB-05")
def test_validate_accepts_any_number_of_variadic_arguments() -> None:
    bounded_jmespath.validate_expression("not_null(a, b, c) || merge(a, b)")


@pytest.mark.spec("SUB-05")
def test_parse_still_reads_stored_expressions_with_unknown_functions() -> None:
    assert bounded_jmespath.parse_expression("a || nope(b)").search({"a": 1}) == 1
