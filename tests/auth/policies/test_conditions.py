"""Condition operators: present, absent, multiple and negated values."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from auth.policies.patterns import Value
from tests.auth.policies.builders import decide, statement

pytestmark = pytest.mark.spec("POL-05")

KEY = "store:a"


def holds(operator: str, wanted: Any, found: Any = None, key: str = KEY) -> bool:
    """Whether an Allow with this condition allows; None as `found`: the key is absent."""
    context: Mapping[str, Value] = {} if found is None else {key: found}
    return decide(statement(Condition={operator: {key: wanted}}), context=context).allowed


@pytest.mark.parametrize(
    ("operator", "wanted", "matching", "others"),
    [
        ("StringEquals", "abc", ["abc"], ["ABC", "ab", "abcd", ""]),
        ("StringEquals", "a*", ["a*"], ["abc"]),
        ("StringEquals", ["a", "b"], ["a", "b"], ["c", "ab"]),
        ("StringEquals", "7", [7, "7"], [7.5, True]),
        ("StringEquals", True, ["true", True], ["True", False]),
        ("StringEquals", "${*}", ["*"], ["x"]),
        ("StringEquals", "${store:user_email}", ["ada@example.org"], ["x", "${store:user_email}"]),
        ("StringEquals", "${store:groups}", ["readers", "lab-7"], ["curator"]),
        ("StringEqualsIgnoreCase", "Straße", ["STRASSE", "straße"], ["strase"]),
        ("StringLike", "a*c?", ["acd", "abbcd"], ["ac", "Acd", "xacd"]),
        ("StringLike", "a${*}", ["a*"], ["ab"]),
        ("StringLike", ["x*", "*y"], ["xa", "ay"], ["a"]),
        ("NumericEquals", 10, [10, 10.0, "10", "1e1"], [11, "ten", True, ""]),
        ("NumericEquals", ["1", "2"], [1, 2], [3]),
        ("NumericLessThan", "10", [9, -1, "9.99"], [10, 11]),
        ("NumericLessThanEquals", 10, [9, 10], [10.01]),
        ("NumericGreaterThan", 2**60, [2**60 + 1], [2**60, "x"]),
        ("NumericGreaterThanEquals", 10, [10, "11"], [9]),
        ("DateEquals", "2026-01-01T00:00:00Z", [1767225600, "2026-01-01T01:00:00+01:00"], [0]),
        ("DateEquals", "2026-01-01", ["2026-01-01T000000.000000Z"], ["2026-01-02"]),
        ("DateLessThan", "2026-01-01T00:00:00Z", ["2025-12-31T23:59:59Z", "0"], ["2026-01-01"]),
        ("DateLessThanEquals", "1767225600", [1767225600], [1767225601, "never"]),
        ("DateGreaterThan", 0, [1, "2000-01-01T00:00:00"], [0, -1]),
        ("DateGreaterThanEquals", 0, [0, "1970-01-01"], [-1]),
        ("Bool", "true", [True, "true", "TRUE"], [False, "false", "1", 1]),
        ("Bool", False, [False, "false"], [True]),
        ("IpAddress", "192.0.2.0/24", ["192.0.2.1", "::ffff:192.0.2.1"], ["192.0.3.1", "x", 7]),
        ("IpAddress", "192.0.2.7", ["192.0.2.7"], ["192.0.2.8", "192.0.2.7/32"]),
        ("IpAddress", ["10.0.0.0/8", "2001:db8::/32"], ["10.9.9.9", "2001:db8::1"], ["2002::1"]),
        ("ArnLike", "arn:a:*:c:d:e*", ["arn:a:b:c:d:ef:g", "arn:a::c:d:e"], ["arn:a:b:b:c:d:e"]),
        ("ArnLike", "arn:a:*:c:d:e:*:g", ["arn:a:b:c:d:e:x:y:g"], ["arn:a:b:c:d:e:g"]),
        ("ArnEquals", "arn:a:*:c:d:e", ["arn:a:b:c:d:e"], ["arn:a:b:x:c:d:e", "arn:a:b:c:d"]),
        (
            "ArnLike",
            "arn:store:local:*:bundles/*",
            ["arn:store:local:aws:bundles/1"],
            ["arn:store:local:aws:x:bundles/1", "bundles/1"],
        ),
        ("ArnLike", "arn:a:b:c:${store:groups}", ["arn:a:b:c:lab-7"], ["arn:a:b:c:lab-8"]),
        ("ArnLike", "*", ["arn:anything"], ["anything"]),
    ],
)
def test_values_match(operator: str, wanted: Any, matching: list[Any], others: list[Any]) -> None:
    assert [found for found in matching if not holds(operator, wanted, found)] == []
    assert [found for found in others if holds(operator, wanted, found)] == []


def test_a_time_without_a_zone_is_utc_wherever_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "XST-9")
    time.tzset()
    try:
        assert holds("DateEquals", 0, "1970-01-01T00:00:00")
    finally:
        monkeypatch.undo()
        time.tzset()


CONTRARIES = {
    "StringNotEquals": ("StringEquals", "a"),
    "StringNotEqualsIgnoreCase": ("StringEqualsIgnoreCase", "A"),
    "StringNotLike": ("StringLike", "a*"),
    "NumericNotEquals": ("NumericEquals", 1),
    "DateNotEquals": ("DateEquals", 1),
    "NotIpAddress": ("IpAddress", "192.0.2.0/24"),
    "ArnNotEquals": ("ArnEquals", "arn:a:b:c:d"),
    "ArnNotLike": ("ArnLike", "arn:a:b:c:*"),
}


@pytest.mark.parametrize("operator", CONTRARIES)
@pytest.mark.parametrize(
    "found", ["a", "b", 1, 2, "192.0.2.1", "arn:a:b:c:d", ("a", "b"), ("b", "c")]
)
def test_negated_operator_is_true_where_operator_is_false(operator: str, found: Any) -> None:
    plain, wanted = CONTRARIES[operator]
    assert holds(operator, wanted, found) is not holds(plain, wanted, found)


@pytest.mark.parametrize("found", [None, ()])
def test_an_absent_key_is_like_nothing_and_so_unlike_all(found: Any) -> None:
    for contrary, (plain, wanted) in CONTRARIES.items():
        assert not holds(plain, wanted, found)
        assert holds(contrary, wanted, found)
        assert holds(f"{plain}IfExists", wanted, found)
        assert holds(f"{contrary}IfExists", wanted, found)
        assert holds(f"ForAllValues:{plain}", wanted, found)
        assert holds(f"ForAllValues:{contrary}", wanted, found)
        assert not holds(f"ForAnyValue:{plain}", wanted, found)
        assert not holds(f"ForAnyValue:{contrary}", wanted, found)
        assert not holds(f"ForAnyValue:{plain}IfExists", wanted, found)
        assert not holds(f"ForAnyValue:{contrary}IfExists", wanted, found)
    for operator in ("NumericLessThan", "DateGreaterThan", "Bool"):
        assert not holds(operator, "1" if operator != "Bool" else "false", found)


@pytest.mark.parametrize(
    ("operator", "found", "expected"),
    [
        ("ForAllValues:StringEquals", ("a", "b"), True),
        ("ForAllValues:StringEquals", ("a", "c"), False),
        ("ForAllValues:StringNotEquals", ("c", "d"), True),
        ("ForAllValues:StringNotEquals", ("a", "c"), False),
        ("ForAnyValue:StringEquals", ("c", "b"), True),
        ("ForAnyValue:StringEquals", ("c", "d"), False),
        ("ForAnyValue:StringNotEquals", ("a", "c"), True),
        ("ForAnyValue:StringNotEquals", ("a", "b"), False),
        ("ForAllValues:StringEquals", "a", True),
        ("ForAnyValue:StringEquals", "c", False),
        ("StringEquals", ("c", "a"), True),
        ("StringNotEquals", ("c", "a"), False),
        ("StringEqualsIfExists", ("c",), False),
    ],
)
def test_multi_valued_keys_match_any_or_all(operator: str, found: Any, expected: bool) -> None:
    assert holds(operator, ["a", "b"], found) is expected


@pytest.mark.parametrize("wanted", ["true", True, ["true"]])
def test_null_operator_tests_absence(wanted: Any) -> None:
    assert holds("Null", wanted)
    assert holds("Null", wanted, ())
    assert not holds("Null", wanted, "")
    assert not holds("Null", "false")
    assert holds("Null", "false", 0)
    assert holds("Null", ["true", "false"])


def test_every_operator_and_key_must_match() -> None:
    both = {"StringEquals": {"store:a": "1", "store:b": "2"}, "NumericLessThan": {"store:c": 3}}
    whole: dict[str, Value] = {"store:a": "1", "store:b": "2", "store:c": 2}
    assert decide(statement(Condition=both), context=whole).allowed
    for key in whole:
        assert not decide(statement(Condition=both), context={**whole, key: "9"}).allowed


def test_conditional_deny_applies_only_if_condition_holds() -> None:
    denying = statement("Deny", Condition={"StringNotEquals": {"store:a": "x"}})
    assert decide(statement(), denying, context={"store:a": "x"}).allowed
    assert decide(statement(), denying, context={"store:a": "y"}).reason == "explicit_deny"
    assert decide(statement(), denying).reason == "explicit_deny"


def test_the_case_of_a_key_does_not_count_but_that_of_its_value_does() -> None:
    asked = statement(Condition={"StringEquals": {"Store:A": "x"}})
    assert decide(asked, context={"sTORE:a": "x"}).allowed
    assert not decide(asked, context={"sTORE:a": "X"}).allowed


def test_principal_keys_work_like_any_key() -> None:
    member = {"ForAnyValue:StringEquals": {"store:groups": "lab-7"}}
    assert decide(statement(Condition=member)).allowed
    assert not decide(statement(Condition=member), variables={"store:groups": ("x",)}).allowed
    assert not decide(statement(Condition=member), variables={}).allowed
    own = {"StringEquals": {"store:a": "${store:user_email}"}}
    assert decide(statement(Condition=own), context={"store:a": "ada@example.org"}).allowed
