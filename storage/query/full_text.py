"""Parsing of the clauses that analyse their text: match, match_phrase, multi_match."""

from collections.abc import Callable

from storage.query.analysis import KEYWORD
from storage.query.clauses import Clause, Field, Fields, Match, MatchAll, MatchPhrase
from storage.query.node import Node, field_named, one_field
from storage.query.words import words

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


def parse_match(node: Node) -> Clause:
    """`match`."""
    fields, inner = one_field(node, "query")
    inner.only("query", *MATCH_PARAMETERS)
    return match_of(fields, inner, inner.scalar("query"))


def match_of(fields: Fields, inner: Node, text: str) -> Clause:
    """A match with the parameters that `inner` gives."""
    inner.rewrite("fuzzy_rewrite")
    # Fields always read leniently, and there are no synonyms: both are checked, neither matters.
    inner.flag("lenient", True)
    inner.flag("auto_generate_synonyms_phrase_query", True)
    clause = Match(
        fields,
        text,
        inner.choice("operator", ("or", "and"), "or") == "and",
        inner.minimum(),
        inner.fuzziness(),
        inner.count("prefix_length", 0),
        inner.flag("fuzzy_transpositions", True),
    )
    return _without_terms(clause, inner)


def parse_match_phrase(node: Node) -> Clause:
    """`match_phrase`."""
    fields, inner = one_field(node, "query")
    inner.only("query", "slop", "zero_terms_query")
    return phrase_of(fields, inner, inner.scalar("query"))


def phrase_of(fields: Fields, inner: Node, text: str) -> Clause:
    """A phrase with the parameters that `inner` gives."""
    return _without_terms(MatchPhrase(fields, text, inner.count("slop", 0)), inner)


def _without_terms(clause: Match | MatchPhrase, inner: Node) -> Clause:
    every = inner.choice("zero_terms_query", ("none", "all"), "none") == "all"
    return MatchAll() if every and no_words(clause.fields, clause.text) else clause


def no_words(fields: Fields, text: str) -> bool:
    """Whether analysis leaves nothing of the text, in fields that are analysed at all."""
    return not words(text) and not any(field.name.endswith(KEYWORD) for field in fields)


def _best_fields(fields: Fields, node: Node, text: str) -> Clause:
    if node.has("slop"):
        node.count("slop", 0)
    return match_of(fields, node, text)


def _phrase(fields: Fields, node: Node, text: str) -> Clause:
    if node.has("fuzziness"):
        raise node.error("fuzziness", "is not allowed for type 'phrase'")
    return phrase_of(fields, node, text)


TYPES: dict[str, Callable[[Fields, Node, str], Clause]] = {
    "best_fields": _best_fields,
    "most_fields": _best_fields,
    "phrase": _phrase,
}


def parse_multi_match(node: Node) -> Clause:
    """`multi_match`, of the types that ask every field by itself."""
    node.only("query", "fields", "type", "tie_breaker", "slop", *MATCH_PARAMETERS)
    node.number("tie_breaker", 0.0)
    kind = node.choice("type", TYPES, "best_fields")
    return TYPES[kind](fields_of(node), node, node.scalar("query"))


def fields_of(node: Node, key: str = "fields", default: str = "*") -> Fields:
    """A list of fields, patterns with `^boost` allowed; all of them when none is named."""
    found = node.body.get(key)
    listed = [default] if found is None or found == [] else found
    names = listed if isinstance(listed, list) else [listed]
    return tuple(_weighted(node, name, (key, at)) for at, name in enumerate(names))


def _weighted(node: Node, name: object, where: tuple[str, int]) -> Field:
    text = node.as_text(name, *where)
    bare, caret, boost = text.rpartition("^")
    if not caret:
        return field_named(text, node.at(*where), pattern=True)
    Node(node.name, node.at(*where), {"boost": boost}).only()
    return field_named(bare, node.at(*where), pattern=True)
