"""Operators of conditions: what a value of the policy asks of a value of the request."""

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

from auth.policies.globs import Glob, Token, glob
from auth.policies.patterns import Fault, Pattern, Value, read, text_of

Scalar = str | int | float | bool
Test = Callable[[Scalar], bool]
Prepared = Callable[[Mapping[str, Value]], Iterable[Test]]
"""The tests of one value of a policy for somebody's variables; none when one has no value."""

ARN_PARTS = 6
LEAST_ARN_PARTS = 5
"""`arn:store:<deployment>:<replica>:<resource>`."""


@dataclass(frozen=True, slots=True)
class Operator:
    """How one operator reads what a policy gives it, and whether it asks for the contrary."""

    prepare: Callable[[Scalar, bool], Prepared]
    negated: bool


def _string(compare: Callable[[str, Scalar], bool], value: Scalar, variables: bool) -> Prepared:
    pattern = read(text_of(value), wild=False, variables=variables)
    return lambda given: [
        partial(compare, "".join(map(str, tokens))) for tokens in pattern.resolve(given)
    ]


def _equal(wanted: str, found: Scalar) -> bool:
    return wanted == text_of(found)


def _equal_ignoring_case(wanted: str, found: Scalar) -> bool:
    return wanted.casefold() == text_of(found).casefold()


def _like(value: Scalar, variables: bool) -> Prepared:
    pattern = read(text_of(value), wild=True, variables=variables)
    return lambda given: [partial(_is_like, glob(tokens)) for tokens in pattern.resolve(given)]


def _is_like(wanted: Glob, found: Scalar) -> bool:
    return wanted.matches(text_of(found))


def _arn(value: Scalar, variables: bool) -> Prepared:
    pattern = read(text_of(value), wild=True, variables=variables)
    parts = pattern.split(":", ARN_PARTS)
    if value != "*" and (len(parts) < LEAST_ARN_PARTS or not str(value).startswith("arn:")):
        raise Fault("is no ARN: `arn:` and at least four more parts, parted by colons")
    return partial(_arn_tests, parts)


def _arn_tests(parts: tuple[Pattern, ...], given: Mapping[str, Value]) -> Iterable[Test]:
    resolved = itertools.product(*(tuple(part.resolve(given)) for part in parts))
    return [partial(_is_arn_like, _globs(tokens)) for tokens in resolved]


def _globs(parts: Iterable[tuple[Token, ...]]) -> tuple[Glob, ...]:
    return tuple(glob(tokens) for tokens in parts)


def _is_arn_like(wanted: tuple[Glob, ...], found: Scalar) -> bool:
    """Each part for itself: no star reaches over a colon, but in the last part."""
    text = text_of(found)
    if not text.startswith("arn:"):
        return False
    parts = [text] if len(wanted) == 1 else text.split(":", ARN_PARTS - 1)
    return len(parts) == len(wanted) and all(map(Glob.matches, wanted, parts))


Order = Callable[[float, float], bool]


def _ordered(
    measure: Callable[[Scalar], float | None],
    kind: str,
    compare: Order,
    value: Scalar,
    variables: bool,
) -> Prepared:
    wanted = measure(value)
    if wanted is None:
        raise Fault(f"is no {kind}")
    return _always(partial(_compares, measure, compare, wanted))


def _compares(
    measure: Callable[[Scalar], float | None], compare: Order, wanted: float, found: Scalar
) -> bool:
    measured = measure(found)
    return measured is not None and compare(measured, wanted)


_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")


def number(value: Scalar) -> float | None:
    """A number, or a text that spells one; None for anything else."""
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value)
        if found is None:
            return None
        value = float(value) if found[1] or found[2] else int(value)
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def moment(value: Scalar) -> float | None:
    """Microseconds since 1970 of an ISO 8601 time or of seconds since then; None for no time."""
    seconds = number(value)
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


def boolean(value: Scalar) -> bool | None:
    """True or false, or their names; None for anything else."""
    return {"true": True, "false": False}.get(text_of(value).lower())


def _bool(value: Scalar, variables: bool) -> Prepared:
    wanted = boolean(value)
    if wanted is None:
        raise Fault("is neither true nor false")
    return _always(lambda found: boolean(found) is wanted)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _ip(value: Scalar, variables: bool) -> Prepared:
    try:
        network = ipaddress.ip_network(text_of(value), strict=False)
    except ValueError as error:
        raise Fault("is no IP address or range of them") from error
    return _always(partial(_is_in, network))


def _is_in(network: Network, found: Scalar) -> bool:
    try:
        address: Address = ipaddress.ip_address(text_of(found))
    except ValueError:
        return False
    # Of IPv4 in IPv6: a policy about 192.0.2.0/24 means ::ffff:192.0.2.1 too.
    mapped = getattr(address, "ipv4_mapped", None)
    return address in network or (mapped is not None and mapped in network)


def _always(test: Test) -> Prepared:
    tests = (test,)
    return lambda given: tests


def _both(name: str, prepare: Callable[[Scalar, bool], Prepared]) -> dict[str, Operator]:
    """An operator and its contrary."""
    # StringEquals, StringNotEquals; IpAddress, NotIpAddress
    kind = re.match(r"(String|Arn|Numeric|Date)?", name)
    at = kind.end() if kind else 0
    return {
        name: Operator(prepare, negated=False),
        f"{name[:at]}Not{name[at:]}": Operator(prepare, negated=True),
    }


def _orders(name: str, measure: Callable[[Scalar], float | None], kind: str) -> dict[str, Operator]:
    prepare = partial(partial, _ordered, measure, kind)
    ordered: Mapping[str, Order] = {
        "LessThan": operator.lt,
        "LessThanEquals": operator.le,
        "GreaterThan": operator.gt,
        "GreaterThanEquals": operator.ge,
    }
    only = {f"{name}{order}": Operator(prepare(by), False) for order, by in ordered.items()}
    return _both(f"{name}Equals", prepare(operator.eq)) | only


OPERATORS: Mapping[str, Operator] = MappingProxyType(
    _both("StringEquals", partial(_string, _equal))
    | _both("StringEqualsIgnoreCase", partial(_string, _equal_ignoring_case))
    | _both("StringLike", _like)
    | _both("ArnEquals", _arn)
    | _both("ArnLike", _arn)
    | _both("IpAddress", _ip)
    | _orders("Numeric", number, "number")
    | _orders("Date", moment, "time, neither ISO 8601 nor seconds since 1970")
    | {"Bool": Operator(_bool, negated=False), "Null": Operator(_bool, negated=False)}
)
"""All operators by name, without the prefixes for sets and without `IfExists`."""
