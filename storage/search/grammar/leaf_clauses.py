"""Parse term-level and full-text clauses."""

from storage.search.documents import KEYWORD_SUFFIX
from storage.search.grammar import clauses
from storage.search.grammar.clauses import (
    Clause,
    Fuzziness,
    QueryField,
    QueryFields,
    RangeBound,
    RegexpClause,
)
from storage.search.grammar.parameters import (
    ClauseNode,
    find_single_field,
    make_query_error,
    parse_field,
    parse_single_field,
)
from storage.search.patterns import REGEXP_OPERATORS, regexp_to_re2
from storage.search.words import split_words

# OpenSearch's own default limits on these two.
MAX_REGEXP_CHARACTERS = 1000
MAX_TERMS = 65_536

RANGE_PARAMETERS = "gt gte lt lte from to include_lower include_upper format time_zone relation"


def parse_match_all(node: ClauseNode) -> Clause:
    """Parse `match_all`."""
    node.check_parameters()
    return clauses.MatchAllClause()


def parse_match_none(node: ClauseNode) -> Clause:
    """Parse `match_none`."""
    node.check_parameters()
    return clauses.MatchNoneClause()


def parse_ids(node: ClauseNode) -> Clause:
    """Parse `ids`: a list of `<uuid>.<version>`, or a single one."""
    node.check_parameters("values")
    values = node.body.get("values", [])
    listed = values if isinstance(values, list) else [values]
    return clauses.IdsClause(
        tuple(node.as_text(value, "values", at) for at, value in enumerate(listed))
    )


def parse_term(node: ClauseNode) -> Clause:
    """Parse `term`."""
    fields, inner = parse_single_field(node, "value case_insensitive", "value")
    return clauses.TermClause(fields, inner.scalar("value"), inner.flag("case_insensitive", False))


def parse_terms(node: ClauseNode) -> Clause:
    """Parse `terms` of one field; lists only, since a stored query cannot look up documents."""
    node.check_common_parameters()
    name = find_single_field(node)
    pointer = node.pointer_to(name)
    values = node.body[name]
    if not isinstance(values, list) or len(values) > MAX_TERMS:
        raise make_query_error(f"'terms' takes a list of at most {MAX_TERMS} values", pointer)
    texts = tuple(node.as_text(value, name, at) for at, value in enumerate(values))
    return clauses.TermsClause((parse_field(name, pointer),), texts)


def parse_range(node: ClauseNode) -> Clause:
    """Parse `range`; `format` and `time_zone` concern dates, which no field has."""
    fields, inner = parse_single_field(node, RANGE_PARAMETERS)
    inner.text("format", "")
    inner.text("time_zone", "")
    inner.choice("relation", ("intersects", "within", "contains"), "intersects")
    low = _parse_bound(inner, ("gt", "gte", "from"), inner.flag("include_lower", True))
    high = _parse_bound(inner, ("lt", "lte", "to"), inner.flag("include_upper", True))
    return make_range(fields, low, high)


def make_range(
    fields: QueryFields, low: RangeBound | None, high: RangeBound | None, *, folded: bool = False
) -> Clause:
    """Make a range clause; without bounds it means `exists`, as in the engines."""
    if low is None and high is None:
        return clauses.ExistsClause(fields)
    return clauses.RangeClause(fields, low, high, folded)


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
    return clauses.ExistsClause((parse_field(name, node.pointer_to("field"), pattern=True),))


def parse_prefix(node: ClauseNode) -> Clause:
    """Parse `prefix`."""
    fields, inner = parse_single_field(node, "value case_insensitive rewrite", "value")
    inner.check_rewrite()
    insensitive = inner.flag("case_insensitive", False)
    return clauses.PrefixClause(fields, inner.scalar("value"), insensitive)


def parse_wildcard(node: ClauseNode) -> Clause:
    """Parse `wildcard`; the pattern is `value` or `wildcard`."""
    fields, inner = parse_single_field(node, "value wildcard case_insensitive rewrite", "value")
    inner.check_rewrite()
    key = "wildcard" if inner.has("wildcard") else "value"
    insensitive = inner.flag("case_insensitive", False)
    return clauses.WildcardClause(fields, inner.scalar(key), insensitive)


def parse_regexp(node: ClauseNode) -> Clause:
    """Parse `regexp`; `max_determinized_states` guards another kind of engine and is ignored."""
    allowed = "value flags case_insensitive rewrite max_determinized_states"
    fields, inner = parse_single_field(node, allowed, "value")
    inner.check_rewrite()
    inner.count("max_determinized_states", 10_000)
    value, operators = inner.scalar("value"), _parse_operators(inner)
    insensitive = inner.flag("case_insensitive", False)
    return check_regexp(
        RegexpClause(fields, value, operators, insensitive), inner.pointer_to("value")
    )


def check_regexp(clause: RegexpClause, pointer: str) -> RegexpClause:
    """Return the clause; Invalid if its expression cannot be translated."""
    if len(clause.value) > MAX_REGEXP_CHARACTERS:
        limit = f"a regular expression has at most {MAX_REGEXP_CHARACTERS} characters"
        raise make_query_error(limit, pointer)
    try:
        regexp_to_re2(clause.value, clause.operators, case_insensitive=clause.case_insensitive)
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
    allowed = "value fuzziness prefix_length transpositions rewrite"
    fields, inner = parse_single_field(node, allowed, "value")
    inner.check_rewrite()
    return clauses.FuzzyClause(
        fields,
        inner.scalar("value"),
        inner.fuzziness() or Fuzziness(),
        inner.count("prefix_length", 0),
        inner.flag("transpositions", True),
    )


MATCH_PARAMETERS = (
    "query operator minimum_should_match fuzziness prefix_length fuzzy_transpositions"
    " fuzzy_rewrite zero_terms_query lenient auto_generate_synonyms_phrase_query"
)


def parse_match(node: ClauseNode) -> Clause:
    """Parse `match`."""
    fields, inner = parse_single_field(node, MATCH_PARAMETERS, "query")
    return make_match(fields, inner, inner.scalar("query"))


def make_match(fields: QueryFields, inner: ClauseNode, text: str) -> Clause:
    """Make a match clause from the parameters in `inner`."""
    inner.check_rewrite("fuzzy_rewrite")
    # Both are checked and ignored: fields are always lenient, and there are no synonyms.
    inner.flag("lenient", True)
    inner.flag("auto_generate_synonyms_phrase_query", True)
    clause = clauses.MatchClause(
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
    fields, inner = parse_single_field(node, "query slop zero_terms_query", "query")
    return make_match_phrase(fields, inner, inner.scalar("query"))


def make_match_phrase(fields: QueryFields, inner: ClauseNode, text: str) -> Clause:
    """Make a phrase clause from the parameters in `inner`."""
    clause = clauses.MatchPhraseClause(fields, text, inner.count("slop", 0))
    return _apply_zero_terms(clause, inner)


def _apply_zero_terms(
    clause: clauses.MatchClause | clauses.MatchPhraseClause, inner: ClauseNode
) -> Clause:
    every = inner.choice("zero_terms_query", ("none", "all"), "none") == "all"
    if every and not split_words(clause.text) and not _has_keyword(clause.fields):
        return clauses.MatchAllClause()
    return clause


def _has_keyword(fields: QueryFields) -> bool:
    return any(field.name.endswith(KEYWORD_SUFFIX) for field in fields)


def drops_text(fields: QueryFields, text: str) -> bool:
    """Return whether a query string leaves this text out: no field can have its words."""
    patterns = any(field.pattern for field in fields)
    return not split_words(text) and not patterns and not _has_keyword(fields)


def parse_multi_match(node: ClauseNode) -> Clause:
    """Parse `multi_match` of the types that query every field separately."""
    node.check_parameters(f"fields type tie_breaker slop {MATCH_PARAMETERS}")
    node.number("tie_breaker", 0.0)
    kind = node.choice("type", ("best_fields", "most_fields", "phrase"), "best_fields")
    fields, text = parse_fields(node), node.scalar("query")
    if kind != "phrase":
        node.count("slop", 0)
        return make_match(fields, node, text)
    if node.has("fuzziness"):
        raise node.error("fuzziness", "is not allowed for type 'phrase'")
    return make_match_phrase(fields, node, text)


def parse_fields(node: ClauseNode, key: str = "fields") -> QueryFields:
    """Parse a list of fields, patterns with `^boost` included; all fields by default."""
    found = node.body.get(key)
    listed = ["*"] if found is None or found == [] else found
    names = listed if isinstance(listed, list) else [listed]
    return tuple(_parse_weighted_field(node, name, (key, at)) for at, name in enumerate(names))


def _parse_weighted_field(node: ClauseNode, name: object, where: tuple[str, int]) -> QueryField:
    text = node.as_text(name, *where)
    bare, caret, boost = text.rpartition("^")
    if not caret:
        return parse_field(text, node.pointer_to(*where), pattern=True)
    ClauseNode(node.name, node.pointer_to(*where), {"boost": boost}).check_parameters()
    return parse_field(bare, node.pointer_to(*where), pattern=True)
