"""Parsing of the clauses that are about single terms and are not analysed."""

from typing import Any

from storage.query.clauses import (
    Bound,
    Clause,
    Exists,
    Fields,
    Fuzziness,
    Fuzzy,
    Ids,
    MatchAll,
    MatchNone,
    Prefix,
    Range,
    Regexp,
    Term,
    Terms,
    Wildcard,
)
from storage.query.node import COMMON, Node, field_named, one_field, refuse
from storage.query.patterns import OPERATORS, regexp_to_re2

# OpenSearch's own default limits on these two.
MAX_REGEXP_CHARACTERS = 1000
MAX_TERMS = 65_536

RANGE_BOUNDS = ("gt", "gte", "lt", "lte", "from", "to", "include_lower", "include_upper")
RANGE_PARAMETERS = (*RANGE_BOUNDS, "format", "time_zone", "relation")


def parse_match_all(node: Node) -> Clause:
    """`match_all`."""
    node.only()
    return MatchAll()


def parse_match_none(node: Node) -> Clause:
    """`match_none`."""
    node.only()
    return MatchNone()


def parse_ids(node: Node) -> Clause:
    """`ids`: a list of `<uuid>.<version>`, or one."""
    node.only("values")
    values = node.body.get("values", [])
    listed = values if isinstance(values, list) else [values]
    return Ids(tuple(node.as_text(value, "values", at) for at, value in enumerate(listed)))


def parse_term(node: Node) -> Clause:
    """`term`."""
    fields, inner = one_field(node, "value")
    inner.only("value", "case_insensitive")
    return Term(fields, inner.scalar("value"), inner.flag("case_insensitive", False))


def parse_terms(node: Node) -> Clause:
    """`terms`: of one field, a list only (a look-up in another document is not for stored ones)."""
    node.only(*node.body)
    names = [name for name in node.body if name not in COMMON]
    if len(names) != 1:
        raise refuse("'terms' takes exactly one field", node.pointer)
    pointer = node.at(names[0])
    values = node.body[names[0]]
    if not isinstance(values, list) or len(values) > MAX_TERMS:
        raise refuse(f"'terms' takes a list of at most {MAX_TERMS} values", pointer)
    texts = tuple(node.as_text(value, names[0], at) for at, value in enumerate(values))
    return Terms((field_named(names[0], pointer),), texts)


def parse_range(node: Node) -> Clause:
    """`range`; `format` and `time_zone` concern dates, which no field is, and change nothing."""
    fields, inner = one_field(node)
    inner.only(*RANGE_PARAMETERS)
    inner.text("format", "")
    inner.text("time_zone", "")
    inner.choice("relation", ("intersects", "within", "contains"), "intersects")
    low = _bound(inner, ("gt", "gte", "from"), inner.flag("include_lower", True))
    high = _bound(inner, ("lt", "lte", "to"), inner.flag("include_upper", True))
    # Without any bound this asks for no more than a value, as the engines read it.
    return Range(fields, low, high) if low or high else Exists(fields)


def _bound(inner: Node, keys: tuple[str, str, str], inclusive: bool) -> Bound | None:
    given = [key for key in keys if inner.has(key)]
    if len(given) > 1:
        raise inner.error(given[1], f"contradicts '{given[0]}'")
    if not given:
        return None
    strict, closed, _ = keys
    key = given[0]
    return Bound(inner.scalar(key), key == closed or (key != strict and inclusive))


def parse_exists(node: Node) -> Clause:
    """`exists`; the field may be a pattern."""
    node.only("field")
    name = node.required("field")
    if not isinstance(name, str):
        raise node.error("field", "must be a string")
    return Exists((field_named(name, node.at("field"), pattern=True),))


def parse_prefix(node: Node) -> Clause:
    """`prefix`."""
    fields, inner = one_field(node, "value")
    inner.only("value", "case_insensitive", "rewrite")
    inner.rewrite()
    return Prefix(fields, inner.scalar("value"), inner.flag("case_insensitive", False))


def parse_wildcard(node: Node) -> Clause:
    """`wildcard`; the pattern is `value` or `wildcard`."""
    fields, inner = one_field(node, "value")
    inner.only("value", "wildcard", "case_insensitive", "rewrite")
    inner.rewrite()
    key = "wildcard" if inner.has("wildcard") else "value"
    return Wildcard(fields, inner.scalar(key), inner.flag("case_insensitive", False))


def parse_regexp(node: Node) -> Clause:
    """`regexp`; `max_determinized_states` guards an engine of another kind and changes nothing."""
    fields, inner = one_field(node, "value")
    inner.only("value", "flags", "case_insensitive", "rewrite", "max_determinized_states")
    inner.rewrite()
    inner.count("max_determinized_states", 10_000)
    clause = Regexp(
        fields, inner.scalar("value"), _operators(inner), inner.flag("case_insensitive", False)
    )
    return checked_regexp(clause, inner.at("value"))


def checked_regexp(clause: Regexp, pointer: str) -> Regexp:
    """The same, once it is known to be translatable."""
    if len(clause.pattern) > MAX_REGEXP_CHARACTERS:
        limit = f"a regular expression has at most {MAX_REGEXP_CHARACTERS} characters"
        raise refuse(limit, pointer)
    try:
        regexp_to_re2(clause.pattern, clause.operators, case_insensitive=clause.case_insensitive)
    except ValueError as error:
        raise refuse(f"bad regular expression: {error}", pointer) from error
    return clause


def _operators(inner: Node) -> frozenset[str]:
    names = [name.strip() for name in inner.text("flags", "ALL").upper().split("|")]
    unknown = [name for name in names if name not in ("", "ALL", "NONE") and name not in OPERATORS]
    if unknown:
        raise inner.error("flags", f"has no flag '{unknown[0]}'")
    if "ALL" in names:
        return frozenset(OPERATORS.values())
    return frozenset(OPERATORS[name] for name in names if name in OPERATORS)


def parse_fuzzy(node: Node) -> Clause:
    """`fuzzy`; a limit on expansions is refused, since a stored query knows no other document."""
    fields, inner = one_field(node, "value")
    inner.only("value", "fuzziness", "prefix_length", "transpositions", "rewrite")
    inner.rewrite()
    return fuzzy(fields, inner, inner.scalar("value"))


def fuzzy(fields: Fields, inner: Node, value: Any) -> Fuzzy:
    """A fuzzy clause with the parameters that `inner` gives."""
    return Fuzzy(
        fields,
        value,
        inner.fuzziness() or Fuzziness(),
        inner.count("prefix_length", 0),
        inner.flag("transpositions", True),
    )
