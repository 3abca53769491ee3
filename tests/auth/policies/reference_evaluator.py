"""A slow reference implementation of the policy evaluation rules.

Nothing here is shared with what is tested: patterns are tried place by place, documents are read
at each question, and every statement is looked at.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

STAR, ONE = object(), object()
STAR_IN_SEGMENT, ONE_IN_SEGMENT = object(), object()
Symbols = list[Any]


def matches(symbols: Sequence[Any], text: str) -> bool:
    """Whether a pattern, one symbol a place, is this whole text."""
    reached = {0}
    for symbol in symbols:
        if symbol is STAR:
            reached = {later for at in reached for later in range(at, len(text) + 1)}
        elif symbol is STAR_IN_SEGMENT:
            reached = {
                later
                for at in reached
                for later in range(at, len(text) + 1)
                if ":" not in text[at:later]
            }
        elif symbol is ONE_IN_SEGMENT:
            reached = {at + 1 for at in reached if at < len(text) and text[at] != ":"}
        else:
            reached = {
                at + 1 for at in reached if at < len(text) and (symbol is ONE or symbol == text[at])
            }
    return bool(reached) and len(text) in reached


def expanded(text: str, variables: Mapping[str, Any], *, wild: bool) -> list[Symbols]:
    """Every pattern that a text means for somebody; none when a variable has no value."""
    found: list[Symbols] = [[]]
    at = 0
    while at < len(text):
        if text.startswith("${", at):
            end = text.index("}", at)
            choices: list[Symbols] = [
                list(each) for each in _of_variable(text[at + 2 : end], variables)
            ]
            at = end + 1
        else:
            symbol = {"*": STAR, "?": ONE}.get(text[at], text[at]) if wild else text[at]
            choices, at = [[symbol]], at + 1
        found = [before + each for before in found for each in choices]
    return found


def expanded_arn(text: str, variables: Mapping[str, Any]) -> list[Symbols]:
    """The same of a resource: only a star that ends its segment matches colons."""
    marked = re.sub(r"(?<!\{)\*(?=:|$)", "\N{BLACK STAR}", text)
    kinds = {STAR: STAR_IN_SEGMENT, ONE: ONE_IN_SEGMENT, "\N{BLACK STAR}": STAR}
    found = expanded(marked, variables, wild=True)
    return [[kinds.get(symbol, symbol) for symbol in pattern] for pattern in found]


def _of_variable(inside: str, variables: Mapping[str, Any]) -> list[str]:
    if inside in ("*", "?", "$"):
        return [inside]
    name, _, default = inside.partition(",")
    value = variables.get(name)
    many = list(value) if isinstance(value, tuple) else [] if value is None else [str(value)]
    return many or ([default.strip().strip("'")] if default else [])


def decide(
    documents: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    action: str,
    resource: str,
    context: Mapping[str, Any],
) -> str:
    """explicit_deny, allow or implicit_deny."""
    said = {
        statement["Effect"]
        for document in documents
        for statement in _many(document["Statement"])
        if _applies(statement, variables, action, resource, {**context, **variables})
    }
    return "explicit_deny" if "Deny" in said else "allow" if "Allow" in said else "implicit_deny"


def _applies(
    statement: Mapping[str, Any],
    variables: Mapping[str, Any],
    action: str,
    resource: str,
    context: Mapping[str, Any],
) -> bool:
    if statement["Effect"] == "Allow" and _lacks(statement, variables):
        return False
    actions = _many(statement.get("Action", statement.get("NotAction")))
    named = any(
        matches(expanded(each.lower(), {}, wild=True)[0], action.lower()) for each in actions
    )
    resources = _many(statement.get("Resource", statement.get("NotResource")))
    meant = any(
        matches(pattern, resource)
        for each in resources
        for pattern in expanded_arn(each, variables)
    )
    return (
        named == ("Action" in statement)
        and meant == ("Resource" in statement)
        and all(
            _holds(operator, _many(wanted), _many(context.get(key, ())), variables)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _lacks(statement: Mapping[str, Any], variables: Mapping[str, Any]) -> bool:
    """Whether what is excepted names a value that this principal does not have."""
    excepted = _many(statement.get("NotResource", []))
    for operator, keys in statement.get("Condition", {}).items():
        if "Not" in operator:
            excepted = excepted + [each for wanted in keys.values() for each in _many(wanted)]
    return any(not expanded(str(each), variables, wild=True) for each in excepted)


def _holds(
    operator: str, wanted: list[Any], found: list[Any], variables: Mapping[str, Any]
) -> bool:
    if operator == "Null":
        return any((str(each).lower() == "true") == (not found) for each in wanted)
    quantifier, _, name = operator.rpartition(":")
    if name.endswith("IfExists"):
        if not found and quantifier != "ForAnyValue":
            return True
        name = name.removesuffix("IfExists")
    negated = "Not" in name
    compare = COMPARISONS[name.replace("Not", "")]

    def alike(value: Any) -> bool:
        return any(compare(each, value, variables) for each in wanted)

    if quantifier == "ForAllValues":
        return all(alike(value) != negated for value in found)
    if quantifier == "ForAnyValue":
        return any(alike(value) != negated for value in found)
    return any(alike(value) for value in found) != negated


def _string(wanted: Any, value: Any, variables: Mapping[str, Any]) -> bool:
    return any("".join(each) == str(value) for each in expanded(str(wanted), variables, wild=False))


def _string_folded(wanted: Any, value: Any, variables: Mapping[str, Any]) -> bool:
    texts = ("".join(each) for each in expanded(str(wanted), variables, wild=False))
    return any(each.casefold() == str(value).casefold() for each in texts)


def _like(wanted: Any, value: Any, variables: Mapping[str, Any]) -> bool:
    return any(matches(each, str(value)) for each in expanded(str(wanted), variables, wild=True))


def _arn(wanted: Any, value: Any, variables: Mapping[str, Any]) -> bool:
    if not str(value).startswith("arn:"):
        return False
    if wanted == "*":
        return True
    patterns, parts = wanted.split(":", 5), str(value).split(":", 5)
    return len(patterns) == len(parts) and all(
        _like(pattern, part, variables) for pattern, part in zip(patterns, parts, strict=True)
    )


def _number(value: Any) -> float | None:
    is_text = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value)
    return float(value) if is_text or type(value) in (int, float) else None


def _moment(value: Any) -> float | None:
    seconds = _number(value)
    if seconds is not None:
        return seconds
    try:
        at = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _ordered(measure: Any, compare: Any) -> Any:
    def holds(wanted: Any, value: Any, variables: Mapping[str, Any]) -> bool:
        measured = measure(value)
        return measured is not None and bool(compare(measured, measure(wanted)))

    return holds


def _boolean(wanted: Any, value: Any, variables: Mapping[str, Any]) -> bool:
    return str(wanted).lower() == str(value).lower()


def _address(wanted: Any, value: Any, variables: Mapping[str, Any]) -> bool:
    try:
        address = ipaddress.ip_address(str(value))
    except ValueError:
        return False
    return address in ipaddress.ip_network(wanted, strict=False)


def _orders(name: str, measure: Any) -> Iterator[tuple[str, Any]]:
    yield f"{name}Equals", _ordered(measure, lambda a, b: a == b)
    yield f"{name}LessThan", _ordered(measure, lambda a, b: a < b)
    yield f"{name}LessThanEquals", _ordered(measure, lambda a, b: a <= b)
    yield f"{name}GreaterThan", _ordered(measure, lambda a, b: a > b)
    yield f"{name}GreaterThanEquals", _ordered(measure, lambda a, b: a >= b)


COMPARISONS: Mapping[str, Any] = {
    "StringEquals": _string,
    "StringEqualsIgnoreCase": _string_folded,
    "StringLike": _like,
    "ArnEquals": _arn,
    "ArnLike": _arn,
    "Bool": _boolean,
    "IpAddress": _address,
    **dict(_orders("Numeric", _number)),
    **dict(_orders("Date", _moment)),
}


def _many(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
