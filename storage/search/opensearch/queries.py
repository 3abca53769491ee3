"""Compile clauses to OpenSearch queries.

Patterns are parsed by `storage/search/patterns.py` and written again for Lucene, whose own parser
changes between releases in escapes and case.
"""

import re
from typing import assert_never

from storage.search.documents import KEYWORD_SUFFIX
from storage.search.grammar import clauses
from storage.search.grammar.clauses import (
    Clause,
    FuzzyClause,
    PrefixClause,
    QueryField,
    QueryFields,
    RegexpClause,
    WildcardClause,
)
from storage.search.opensearch.client import (
    MATCH_ALL_QUERY,
    MATCH_NONE_QUERY,
    Dsl,
    exclude_matches,
    match_every,
    match_some,
)
from storage.search.opensearch.documents import drop_zero_sign, index_name
from storage.search.patterns import escape_wildcard, parse_wildcard_pattern, regexp_to_re2
from storage.search.predicates import (
    NumberTest,
    PatternClause,
    TermMatches,
    TermTest,
    ValueBetween,
    ValueIn,
    WordPhrase,
    WordTally,
    compile_leaf,
)

MATCH_NOTHING = r"[^\x{0}-\x{10FFFF}]"
"""As the shared reader writes down what nothing fits; Lucene has a sign for it."""
REGEXP_FLAGS = "EMPTY"
"""The only optional operators that the patterns of this module use."""

CODE_POINT = re.compile(r"\\x\{([0-9a-fA-F]+)\}")
ESCAPED_BLANK = re.compile(r"\\([tnr])")
BLANK_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r"}


def make_lucene_regexp(clause: RegexpClause) -> str:
    """Return the expression without operators that flags or case could change."""
    shared = regexp_to_re2(clause.value, clause.operators, case_insensitive=clause.case_insensitive)
    marked = shared.replace(MATCH_NOTHING, "#").replace("(?:", "(")
    marked = ESCAPED_BLANK.sub(lambda found: BLANK_CHARACTERS[found[1]], marked)
    return CODE_POINT.sub(lambda found: _escape_lucene(chr(int(found[1], 16))), marked)


def _escape_lucene(character: str) -> str:
    """Escape signs; before a letter a backslash would mean a class."""
    plain = not character.isascii() or character.isalnum() or not character.isprintable()
    return character if plain else "\\" + character


def make_lucene_wildcard(clause: WildcardClause) -> str:
    """Return the pattern with needed backslashes only: an escaped character keeps its case."""
    return "".join(
        character if special else escape_wildcard(character)
        for character, special in parse_wildcard_pattern(clause.value)
    )


# The engine's default refuses patterns that are no burden within the time limit of a search.
MAX_AUTOMATON_STATES = 100_000
MAX_SLOP = 2**31 - 1


def make_text_query(field: str, predicate: WordTally | WordPhrase) -> Dsl:
    """Return a query for the words of one text."""
    if isinstance(predicate, WordPhrase):
        text = " ".join(predicate.words)
        slop = min(predicate.slop, MAX_SLOP)
        return {"match_phrase": {field: {"query": text, "slop": slop}}}
    tests = [(make_value_query(field, test), weight) for test, weight in predicate.tests]
    if predicate.needed == sum(weight for _, weight in tests):
        return match_every([query for query, _ in tests])
    return match_some([query for query, weight in tests for _ in range(weight)], predicate.needed)


def make_value_query(field: str, test: TermTest | NumberTest | None) -> Dsl:
    """Return a query for one term or number."""
    match test:
        case None:
            return MATCH_NONE_QUERY
        case ValueIn(values):
            given = sorted(map(drop_zero_sign, values))
            return {"terms": {field: given}} if given else MATCH_NONE_QUERY
        case ValueBetween():
            bounds: Dsl = {}
            if test.low is not None:
                bounds["gte" if test.low_inclusive else "gt"] = drop_zero_sign(test.low)
            if test.high is not None:
                bounds["lte" if test.high_inclusive else "lt"] = drop_zero_sign(test.high)
            return {"range": {field: bounds}}
        case TermMatches():
            return _make_pattern_query(field, test.pattern)
    assert_never(test)


def _make_pattern_query(field: str, clause: PatternClause) -> Dsl:
    match clause:
        case PrefixClause():
            options = {"value": clause.value, "case_insensitive": clause.case_insensitive}
            return {"prefix": {field: options}}
        case WildcardClause():
            pattern = make_lucene_wildcard(clause)
            options = {"value": pattern, "case_insensitive": clause.case_insensitive}
            query: Dsl = {"wildcard": {field: options}}
        case RegexpClause():
            pattern = make_lucene_regexp(clause)
            states = {"max_determinized_states": MAX_AUTOMATON_STATES}
            query = {"regexp": {field: {"value": pattern, "flags": REGEXP_FLAGS, **states}}}
        case FuzzyClause():
            options = {
                "value": clause.value,
                "fuzziness": clause.fuzziness.allowed_edits(clause.value),
                "prefix_length": clause.prefix_length,
                "transpositions": clause.transpositions,
                # Other rewrite methods keep only some of the terms.
                "rewrite": "constant_score",
            }
            return {"fuzzy": {field: options}}
    # The engine rejects a pattern that matches nothing.
    return query if pattern else {"term": {field: ""}}


def compile_live_query(clause: Clause) -> Dsl:
    """Return a query for the live documents that match."""
    return match_every([{"term": {"live": True}}, compile_dsl(clause)])


def compile_dsl(clause: Clause) -> Dsl:
    """Return a query for the documents that match."""
    match clause:
        case clauses.MatchAllClause():
            return MATCH_ALL_QUERY
        case clauses.MatchNoneClause() | clauses.IdsClause(values=()):
            return MATCH_NONE_QUERY
        case clauses.IdsClause():
            return {"ids": {"values": sorted(set(clause.values))}}
        case clauses.ExistsClause():
            return _match_names("exists", clause.fields)
        case clauses.BoolClause():
            needed = [compile_dsl(part) for part in clause.must + clause.filter]
            optional = [compile_dsl(part) for part in clause.should]
            needed.append(match_some(optional, clause.required_should()))
            forbidden = match_some([compile_dsl(part) for part in clause.must_not])
            return exclude_matches(match_every(needed), forbidden)
        case _:
            return _compile_leaf(clause)


def _compile_leaf(clause: clauses.LeafClause) -> Dsl:
    """Match one leaf with a requested name that satisfies the predicate of its kind."""
    predicate = compile_leaf(clause)
    values = [
        make_text_query("leaf.words", predicate.text) if predicate.text else MATCH_NONE_QUERY,
        make_value_query("leaf.number", predicate.number),
        make_value_query("leaf.boolean", predicate.boolean),
    ]
    by_name = match_every([_match_names("leaf.name", clause.fields), match_some(values)])
    # These may name whole strings.
    keywords = tuple(f for f in clause.fields if f.pattern or f.name.endswith(KEYWORD_SUFFIX))
    whole = make_value_query("leaf.whole", predicate.whole)
    by_keyword = match_every([_match_names("leaf.keyword", keywords), whole])
    query = match_some([by_name, by_keyword])
    return query if query == MATCH_NONE_QUERY else {"nested": {"path": "leaf", "query": query}}


def _match_names(field: str, wanted: QueryFields) -> Dsl:
    """Match a term with names and patterns."""
    names = sorted({index_name(each.name) for each in wanted if not each.pattern})
    patterns = {each.name: _match_name_pattern(field, each) for each in wanted if each.pattern}
    return match_some(
        [{"terms": {field: names}} if names else MATCH_NONE_QUERY, *patterns.values()]
    )


def _match_name_pattern(field: str, wanted: QueryField) -> Dsl:
    if not wanted.name.strip("*"):
        return (
            MATCH_ALL_QUERY if field.startswith("leaf.") else {"wildcard": {field: {"value": "*"}}}
        )
    escaped = wanted.name.replace("\\", "\\\\").replace("?", "\\?")
    return {"wildcard": {field: {"value": escaped}}}
