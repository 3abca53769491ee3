"""Parse term-level and full-text clauses."""

from collections.abc import Callable
from typing import Any

from storage.search.documents import KEYWORD_SUFFIX
from storage.search.grammar.clauses import (
    Clause,
    ExistsClause,
    Fuzziness,
    FuzzyClause,
    IdsClause,
    MatchAllClause,
    MatchClause,
    MatchNoneClause,
    MatchPhraseClause,
    PrefixClause,
    QueryField,
    QueryFields,
    RangeBound,
    RangeClause,
    RegexpClause,
    TermClause,
    TermsClause,
    WildcardClause,
)
from storage.search.grammar.parameters import (
    COMMON_PARAMETERS,
    ClauseNode,
    make_query_error,
    parse_field,
    parse_single_field,
)
from storage.search.patterns import REGEXP_OPERATORS, regexp_to_re2
from storage.search.words import split_words

# OpenSearch's own default limits on these two.
MAX_REGEXP_CHARACTERS = 1000
MAX_TERMS = 65_536

RANGE_BOUNDS = ("gt", "gte", "lt", "lte", "from", "to", "include_lower", "include_upper")
RANGE_PARAMETERS = (*RANGE_BOUNDS, "format", "time_zone", "relation")


def parse_match_all(node: ClauseNode) -> Clause:
    """Parse `match_all`."""
    node.check_parameters()
    return MatchAllClause()


def parse_match_none(node: ClauseNode) -> Clause:
    """Parse `match_none`."""
    node.check_parameters()
    return MatchNoneClause()


def parse_ids(node: ClauseNode) -> Clause:
    """Parse `ids`: a list of `<uuid>.<version>`, or a single one."""
    node.check_parameters("values")
    values = node.body.get("values", [])
    listed = values if isinstance(values, list) else [values]
    return IdsClause(tuple(node.as_text(value, "values", at) for at, value in enumerate(listed)))


def parse_term(node: ClauseNode) -> Clause:
    """Parse `term`."""
    fields, inner = parse_single_field(node, "value")
    inner.check_parameters("value", "case_insensitive")
    return TermClause(fields, inner.scalar("value"), inner.flag("case_insensitive", False))


def parse_terms(node: ClauseNode) -> Clause:
    """Parse `terms` of one field; lists only, since a stored query cannot look up documents."""
    node.check_parameters(*node.body)
    names = [name for name in node.body if name not in COMMON_PARAMETERS]
    if len(names) != 1:
        raise make_query_error("'terms' takes exactly one field", node.pointer)
    pointer = node.pointer_to(names[0])
    values = node.body[names[0]]
    if not isinstance(values, list) or len(values) > MAX_TERMS:
        raise make_query_error(f"'terms' takes a list of at most {MAX_TERMS} values", pointer)
    texts = tuple(node.as_text(value, names[0], at) for at, value in enumerate(values))
    return TermsClause((parse_field(names[0], pointer),), texts)


def parse_range(node: ClauseNode) -> Clause:
    """Parse `range`; `format` and `time_zone` concern dates, which no field has."""
    fields, inner = parse_single_field(node)
    inner.check_parameters(*RANGE_PARAMETERS)
    inner.text("format", "")
    inner.text("time_zone", "")
    inner.choice("relation", ("intersects", "within", "contains"), "intersects")
    low = _parse_bound(inner, ("gt", "gte", "from"), inner.flag("include_lower", True))
    high = _parse_bound(inner, ("lt", "lte", "to"), inner.flag("include_upper", True))
    # Without bounds this means `exists`, as in the engines.
    return RangeClause(fields, low, high) if low or high else ExistsClause(fields)


def _parse_bound(
    inner: ClauseNode, keys: tuple[str, str, str], inclusive: bool
) -> RangeBound | None:
    given = [key for key in keys if inner.has(key)]
    if len(given) > 1:
        raise inner.error(given[1], f"contradicts '{given[0]}'")
    if not given:
        return None
    strict, closed, _ = keys
    key = given[0]
    return RangeBound(inner.scalar(key), key == closed or (key != strict and inclusive))


def parse_exists(node: ClauseNode) -> Clause:
    """Parse `exists`; the field may be a pattern."""
    node.check_parameters("field")
    name = node.require("field")
    if not isinstance(name, str):
        raise node.error("field", "must be a string")
    return ExistsClause((parse_field(name, node.pointer_to("field"), pattern=True),))


def parse_prefix(node: ClauseNode) -> Clause:
    """Parse `prefix`."""
    fields, inner = parse_single_field(node, "value")
    inner.check_parameters("value", "case_insensitive", "rewrite")
    inner.check_rewrite()
    return PrefixClause(fields, inner.scalar("value"), inner.flag("case_insensitive", False))


def parse_wildcard(node: ClauseNode) -> Clause:
    """Parse `wildcard`; the pattern is `value` or `wildcard`."""
    fields, inner = parse_single_field(node, "value")
    inner.check_parameters("value", "wildcard", "case_insensitive", "rewrite")
    inner.check_rewrite()
    key = "wildcard" if inner.has("wildcard") else "value"
    return WildcardClause(fields, inner.scalar(key), inner.flag("case_insensitive", False))


def parse_regexp(node: ClauseNode) -> Clause:
    """Parse `regexp`; `max_determinized_states` guards another kind of engine and is ignored."""
    fields, inner = parse_single_field(node, "value")
    inner.check_parameters(
        "value", "flags", "case_insensitive", "rewrite", "max_determinized_states"
    )
    inner.check_rewrite()
    inner.count("max_determinized_states", 10_000)
    clause = RegexpClause(
        fields,
        inner.scalar("value"),
        _parse_operators(inner),
        inner.flag("case_insensitive", False),
    )
    return check_regexp(clause, inner.pointer_to("value"))


def check_regexp(clause: RegexpClause, pointer: str) -> RegexpClause:
    """Return the clause; Invalid if its expression cannot be translated."""
    if len(clause.pattern) > MAX_REGEXP_CHARACTERS:
        limit = f"a regular expression has at most {MAX_REGEXP_CHARACTERS} characters"
        raise make_query_error(limit, pointer)
    try:
        regexp_to_re2(clause.pattern, clause.operators, case_insensitive=clause.case_insensitive)
    except ValueError as error:
        raise make_query_error(f"bad regular expression: {error}", pointer) from error
    return clause


def _parse_operators(inner: ClauseNode) -> frozenset[str]:
    names = [name.strip() for name in inner.text("flags", "ALL").upper().split("|")]
    unknown = [
        name for name in names if name not in ("", "ALL", "NONE") and name not in REGEXP_OPERATORS
    ]
    if unknown:
        raise inner.error("flags", f"has no flag '{unknown[0]}'")
    if "ALL" in names:
        return frozenset(REGEXP_OPERATORS.values())
    return frozenset(REGEXP_OPERATORS[name] for name in names if name in REGEXP_OPERATORS)


def parse_fuzzy(node: ClauseNode) -> Clause:
    """Parse `fuzzy`; a limit on expansions is rejected, since a stored query sees one document."""
    fields, inner = parse_single_field(node, "value")
    inner.check_parameters("value", "fuzziness", "prefix_length", "transpositions", "rewrite")
    inner.check_rewrite()
    return make_fuzzy(fields, inner, inner.scalar("value"))


def make_fuzzy(fields: QueryFields, inner: ClauseNode, value: Any) -> FuzzyClause:
    """Make a fuzzy clause from the parameters in `inner`."""
    return FuzzyClause(
        fields,
        value,
        inner.fuzziness() or Fuzziness(),
        inner.count("prefix_length", 0),
        inner.flag("transpositions", True),
    )


MATCH_PARAMETERS = (
    "operator",
    "minimum_should_match",
    "fuzziness",
    "prefix_length",
    "fuzzy_transpositions",
    "fuzzy_rewrite",
    "zero_terms_query",
    "lenient",
    "auto_generate_synonyms_phrase_query",
)


def parse_match(node: ClauseNode) -> Clause:
    """Parse `match`."""
    fields, inner = parse_single_field(node, "query")
    inner.check_parameters("query", *MATCH_PARAMETERS)
    return make_match(fields, inner, inner.scalar("query"))


def make_match(fields: QueryFields, inner: ClauseNode, text: str) -> Clause:
    """Make a match clause from the parameters in `inner`."""
    inner.check_rewrite("fuzzy_rewrite")
    # Both are checked and ignored: fields are always lenient, and there are no synonyms.
    inner.flag("lenient", True)
    inner.flag("auto_generate_synonyms_phrase_query", True)
    clause = MatchClause(
        fields,
        text,
        inner.choice("operator", ("or", "and"), "or") == "and",
        inner.minimum(),
        inner.fuzziness(),
        inner.count("prefix_length", 0),
        inner.flag("fuzzy_transpositions", True),
    )
    return _apply_zero_terms(clause, inner)


def parse_match_phrase(node: ClauseNode) -> Clause:
    """Parse `match_phrase`."""
    fields, inner = parse_single_field(node, "query")
    inner.check_parameters("query", "slop", "zero_terms_query")
    return make_match_phrase(fields, inner, inner.scalar("query"))


def make_match_phrase(fields: QueryFields, inner: ClauseNode, text: str) -> Clause:
    """Make a phrase clause from the parameters in `inner`."""
    return _apply_zero_terms(MatchPhraseClause(fields, text, inner.count("slop", 0)), inner)


def _apply_zero_terms(clause: MatchClause | MatchPhraseClause, inner: ClauseNode) -> Clause:
    every = inner.choice("zero_terms_query", ("none", "all"), "none") == "all"
    return MatchAllClause() if every and has_no_words(clause.fields, clause.text) else clause


def has_no_words(fields: QueryFields, text: str) -> bool:
    """Return whether analysis leaves no word of the text in analysed fields."""
    return not split_words(text) and not any(
        field.name.endswith(KEYWORD_SUFFIX) for field in fields
    )


def _make_best_fields(fields: QueryFields, node: ClauseNode, text: str) -> Clause:
    if node.has("slop"):
        node.count("slop", 0)
    return make_match(fields, node, text)


def _make_phrase(fields: QueryFields, node: ClauseNode, text: str) -> Clause:
    if node.has("fuzziness"):
        raise node.error("fuzziness", "is not allowed for type 'phrase'")
    return make_match_phrase(fields, node, text)


MULTI_MATCH_TYPES: dict[str, Callable[[QueryFields, ClauseNode, str], Clause]] = {
    "best_fields": _make_best_fields,
    "most_fields": _make_best_fields,
    "phrase": _make_phrase,
}


def parse_multi_match(node: ClauseNode) -> Clause:
    """Parse `multi_match` of the types that query every field separately."""
    node.check_parameters("query", "fields", "type", "tie_breaker", "slop", *MATCH_PARAMETERS)
    node.number("tie_breaker", 0.0)
    kind = node.choice("type", MULTI_MATCH_TYPES, "best_fields")
    return MULTI_MATCH_TYPES[kind](parse_fields(node), node, node.scalar("query"))


def parse_fields(node: ClauseNode, key: str = "fields", default: str = "*") -> QueryFields:
    """Parse a list of fields, patterns with `^boost` included; all fields by default."""
    found = node.body.get(key)
    listed = [default] if found is None or found == [] else found
    names = listed if isinstance(listed, list) else [listed]
    return tuple(_parse_weighted_field(node, name, (key, at)) for at, name in enumerate(names))


def _parse_weighted_field(node: ClauseNode, name: object, where: tuple[str, int]) -> QueryField:
    text = node.as_text(name, *where)
    bare, caret, boost = text.rpartition("^")
    if not caret:
        return parse_field(text, node.pointer_to(*where), pattern=True)
    ClauseNode(node.name, node.pointer_to(*where), {"boost": boost}).check_parameters()
    return parse_field(bare, node.pointer_to(*where), pattern=True)
