"""Condition operators, and conditions bound to one principal."""

import ipaddress
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Literal

from auth.policies.patterns import (
    Glob,
    PatternError,
    Value,
    compile_glob,
    format_value,
    parse_pattern,
)

Scalar = str | int | float | bool
ValueTest = Callable[[Scalar], bool]
TestFactory = Callable[[Mapping[str, Value]], Iterable[ValueTest]]
"""Build the tests of a policy value from variables; empty if a variable has no value."""

MAX_ARN_PARTS = 6
MIN_ARN_PARTS = 5
"""`arn:store:<deployment>:<replica>:<resource>`."""


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator parses policy values, and whether it is negated."""

    prepare: Callable[[Scalar, bool], TestFactory]
    negated: bool


def _prepare_string(
    compare: Callable[[str, Scalar], bool], value: Scalar, variables: bool
) -> TestFactory:
    pattern = parse_pattern(format_value(value), wild=False, variables=variables)
    return lambda values: [
        partial(compare, "".join(map(str, tokens))) for tokens in pattern.resolve(values)
    ]


def _is_equal(expected: str, value: Scalar) -> bool:
    return expected == format_value(value)


def _is_equal_ignoring_case(expected: str, value: Scalar) -> bool:
    return expected.casefold() == format_value(value).casefold()


def _prepare_like(value: Scalar, variables: bool) -> TestFactory:
    pattern = parse_pattern(format_value(value), wild=True, variables=variables)
    return lambda values: [
        partial(_is_like, compile_glob(tokens)) for tokens in pattern.resolve(values)
    ]


def _is_like(glob: Glob, value: Scalar) -> bool:
    return glob.matches(format_value(value))


def _prepare_arn(value: Scalar, variables: bool) -> TestFactory:
    pattern = parse_pattern(format_value(value), wild=True, variables=variables)
    parts = pattern.split(":", MAX_ARN_PARTS)
    if value != "*" and (len(parts) < MIN_ARN_PARTS or not str(value).startswith("arn:")):
        raise PatternError("is no ARN: `arn:` and at least four more parts, parted by colons")

    def build_tests(values: Mapping[str, Value]) -> Iterable[ValueTest]:
        resolved = itertools.product(*(tuple(part.resolve(values)) for part in parts))
        return [partial(_is_arn_like, tuple(map(compile_glob, tokens))) for tokens in resolved]

    return build_tests


def _is_arn_like(globs: tuple[Glob, ...], value: Scalar) -> bool:
    """Match part by part: only in the last part may a star match colons."""
    text = format_value(value)
    if not text.startswith("arn:"):
        return False
    parts = [text] if len(globs) == 1 else text.split(":", MAX_ARN_PARTS - 1)
    return len(parts) == len(globs) and all(map(Glob.matches, globs, parts))


Comparison = Callable[[float, float], bool]


def _prepare_ordered(
    measure: Callable[[Scalar], float | None],
    kind: str,
    compare: Comparison,
    value: Scalar,
    variables: bool,
) -> TestFactory:
    limit = measure(value)
    if limit is None:
        raise PatternError(f"is no {kind}")
    return _constant_tests(partial(_is_ordered, measure, compare, limit))


def _is_ordered(
    measure: Callable[[Scalar], float | None], compare: Comparison, limit: float, value: Scalar
) -> bool:
    measured = measure(value)
    return measured is not None and compare(measured, limit)


_NUMBER_REGEX = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")


def parse_number(value: Scalar) -> float | None:
    """Parse a number or a numeric string; None for anything else."""
    if isinstance(value, str):
        match = _NUMBER_REGEX.fullmatch(value)
        if match is None:
            return None
        value = float(value) if match[1] or match[2] else int(value)
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def parse_time(value: Scalar) -> float | None:
    """Parse an ISO 8601 time or seconds since 1970 to microseconds; None if invalid."""
    seconds = parse_number(value)
    if seconds is not None:
        return seconds * 1_000_000
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def parse_boolean(value: Scalar) -> bool | None:
    """Parse a boolean or its name; None for anything else."""
    return {"true": True, "false": False}.get(format_value(value).lower())


def _prepare_boolean(value: Scalar, variables: bool) -> TestFactory:
    expected = parse_boolean(value)
    if expected is None:
        raise PatternError("is neither true nor false")
    return _constant_tests(lambda candidate: parse_boolean(candidate) is expected)


IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def _prepare_ip(value: Scalar, variables: bool) -> TestFactory:
    try:
        network = ipaddress.ip_network(format_value(value), strict=False)
    except ValueError as error:
        raise PatternError("is no IP address or range of them") from error
    return _constant_tests(partial(_is_in_network, network))


def _is_in_network(network: IpNetwork, value: Scalar) -> bool:
    try:
        address: IpAddress = ipaddress.ip_address(format_value(value))
    except ValueError:
        return False
    # IPv4-mapped IPv6: a policy about 192.0.2.0/24 covers ::ffff:192.0.2.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return address in network or (mapped is not None and mapped in network)


def _constant_tests(test: ValueTest) -> TestFactory:
    tests = (test,)
    return lambda variables: tests


def _operator_pair(
    name: str, negation: str, prepare: Callable[[Scalar, bool], TestFactory]
) -> dict[str, Operator]:
    return {
        name: Operator(prepare, negated=False),
        negation: Operator(prepare, negated=True),
    }


def _order_operators(
    name: str, measure: Callable[[Scalar], float | None], kind: str
) -> dict[str, Operator]:
    prepare = partial(partial, _prepare_ordered, measure, kind)
    ordered: Mapping[str, Comparison] = {
        "LessThan": operator.lt,
        "LessThanEquals": operator.le,
        "GreaterThan": operator.gt,
        "GreaterThanEquals": operator.ge,
    }
    only = {f"{name}{order}": Operator(prepare(by), False) for order, by in ordered.items()}
    return _operator_pair(f"{name}Equals", f"{name}NotEquals", prepare(operator.eq)) | only


OPERATORS: Mapping[str, Operator] = MappingProxyType(
    _operator_pair("StringEquals", "StringNotEquals", partial(_prepare_string, _is_equal))
    | _operator_pair(
        "StringEqualsIgnoreCase",
        "StringNotEqualsIgnoreCase",
        partial(_prepare_string, _is_equal_ignoring_case),
    )
    | _operator_pair("StringLike", "StringNotLike", _prepare_like)
    | _operator_pair("ArnEquals", "ArnNotEquals", _prepare_arn)
    | _operator_pair("ArnLike", "ArnNotLike", _prepare_arn)
    | _operator_pair("IpAddress", "NotIpAddress", _prepare_ip)
    | _order_operators("Numeric", parse_number, "number")
    | _order_operators("Date", parse_time, "time, neither ISO 8601 nor seconds since 1970")
    | {
        "Bool": Operator(_prepare_boolean, negated=False),
        "Null": Operator(_prepare_boolean, negated=False),
    }
)
"""All operators by name, without set prefixes and the suffix `IfExists`."""

Quantifier = Literal["any", "all"]
QUANTIFIER_PREFIXES: Mapping[str, Quantifier] = {"ForAnyValue:": "any", "ForAllValues:": "all"}
IF_EXISTS_SUFFIX = "IfExists"
NULL_OPERATOR = "Null"


@dataclass(frozen=True, slots=True)
class ConditionOperator:
    """A full operator, for example `ForAnyValue:StringLikeIfExists`."""

    name: str
    quantifier: Quantifier | None
    if_exists: bool

    @property
    def is_negated(self) -> bool:
        """Whether no value may match."""
        return OPERATORS[self.name].negated


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one key, for any principal."""

    operator: ConditionOperator
    key: str
    wanted: tuple[TestFactory, ...]


@dataclass(frozen=True, slots=True)
class BoundCondition:
    """A condition of a principal."""

    operator: ConditionOperator
    key: str
    tests: tuple[ValueTest, ...]

    def holds(self, found: tuple[Scalar, ...]) -> bool:
        """Return whether the key's values satisfy it; `found` is empty if absent."""
        operator = self.operator
        if operator.name == NULL_OPERATOR:
            return self._matches(not found)
        if not found and operator.quantifier is not None:
            # `ForAnyValue` requires a value, even with `IfExists`; `ForAllValues` does not.
            return operator.quantifier == "all"
        if not found:
            return operator.is_negated or operator.if_exists
        if operator.quantifier == "all":
            return all(self._matches(value) != operator.is_negated for value in found)
        if operator.quantifier == "any":
            return any(self._matches(value) != operator.is_negated for value in found)
        return any(map(self._matches, found)) != operator.is_negated

    def _matches(self, value: Scalar) -> bool:
        return any(test(value) for test in self.tests)


def parse_operator(written: str) -> ConditionOperator | None:
    """Parse an operator; None if it is unknown."""
    prefix = next((prefix for prefix in QUANTIFIER_PREFIXES if written.startswith(prefix)), "")
    bare = written.removeprefix(prefix)
    name = bare.removesuffix(IF_EXISTS_SUFFIX)
    if name not in OPERATORS or (name == NULL_OPERATOR and written != NULL_OPERATOR):
        return None
    return ConditionOperator(name, QUANTIFIER_PREFIXES.get(prefix), name != bare)


def bind_condition(
    condition: Condition, variables: Mapping[str, Value]
) -> tuple[BoundCondition, bool]:
    """Bind to one principal; also return whether every required variable has a value."""
    tests = [tuple(prepared(variables)) for prepared in condition.wanted]
    return BoundCondition(condition.operator, condition.key, tuple(itertools.chain(*tests))), all(
        tests
    )
