"""What is asked of words, whole strings and numbers as queries of OpenSearch."""

import math
from typing import assert_never

from storage.query.asks import (
    Between,
    Fits,
    NumberBetween,
    NumberIn,
    NumberTest,
    OneOf,
    Phrase,
    Tally,
    TermTest,
)
from storage.query.clauses import Fuzzy, Prefix, Regexp, Wildcard
from storage.search.opensearch_combined import NONE, Dsl, every, some
from storage.search.opensearch_documents import unsigned
from storage.search.opensearch_patterns import FLAGS, lucene_regexp, lucene_wildcard

# The engine's default refuses patterns that are no burden within the time limit of a search.
MAX_STATES = 100_000
MAX_SLOP = 2**31 - 1


def text_query(field: str, question: Tally | Phrase) -> Dsl:
    """What is asked of the words of one text."""
    if isinstance(question, Phrase):
        text = " ".join(question.words)
        slop = min(question.slop, MAX_SLOP)
        return {"match_phrase": {field: {"query": text, "slop": slop}}}
    return _tally(field, question)


def _tally(field: str, question: Tally) -> Dsl:
    tests = [(term_query(field, test), weight) for test, weight in question.tests]
    if question.needed == 1:
        return _any_term(field, question)
    if question.needed == sum(weight for _, weight in tests):
        return every([query for query, _ in tests])
    return some([query for query, weight in tests for _ in range(weight)], question.needed)


def _any_term(field: str, question: Tally) -> Dsl:
    """The tests of which any may hold, those for given terms made one."""
    tests = [test for test, _ in question.tests]
    terms = frozenset(term for test in tests if isinstance(test, OneOf) for term in test.terms)
    others = [term_query(field, test) for test in tests if not isinstance(test, OneOf)]
    return some([term_query(field, OneOf(terms)), *others])


def term_query(field: str, test: TermTest) -> Dsl:
    """What is asked of one term."""
    match test:
        case OneOf(terms):
            return {"terms": {field: sorted(terms)}} if terms else NONE
        case Between():
            # Without any bound it would mean that the field exists, words or not.
            low = test.low if test.low is not None else "" if test.high is None else None
            return _range(field, low, test.high, test)
        case Fits():
            return _told(field, test.told)
    assert_never(test)


def _told(field: str, told: Prefix | Wildcard | Regexp | Fuzzy) -> Dsl:
    match told:
        case Prefix():
            options = {"value": told.value, "case_insensitive": told.case_insensitive}
            return {"prefix": {field: options}}
        case Wildcard():
            return _wildcard(field, told)
        case Regexp():
            return _regexp(field, told)
        case Fuzzy():
            return _fuzzy(field, told)
    assert_never(told)


def _wildcard(field: str, told: Wildcard) -> Dsl:
    pattern = lucene_wildcard(told)
    if not pattern:
        # The engine takes no pattern for a pattern that nothing fits.
        return {"term": {field: ""}}
    return {"wildcard": {field: {"value": pattern, "case_insensitive": told.case_insensitive}}}


def _regexp(field: str, told: Regexp) -> Dsl:
    pattern = lucene_regexp(told)
    if not pattern:
        return {"term": {field: ""}}
    options = {"value": pattern, "flags": FLAGS, "max_determinized_states": MAX_STATES}
    return {"regexp": {field: options}}


def _fuzzy(field: str, told: Fuzzy) -> Dsl:
    return {
        "fuzzy": {
            field: {
                "value": told.value,
                "fuzziness": told.fuzziness.edits(told.value),
                "prefix_length": told.prefix_length,
                "transpositions": told.transpositions,
                # The other ways keep only some of the terms.
                "rewrite": "constant_score",
            }
        }
    }


def number_query(field: str, test: NumberTest) -> Dsl:
    """What is asked of a number."""
    match test:
        case NumberIn(numbers):
            return {"terms": {field: sorted(map(unsigned, numbers))}} if numbers else NONE
        case NumberBetween():
            low = None if math.isinf(test.low) else unsigned(test.low)
            high = None if math.isinf(test.high) else unsigned(test.high)
            if low is None and high is None:
                return {"exists": {"field": field}}
            return _range(field, low, high, test)
    assert_never(test)


def _range(
    field: str, low: str | float | None, high: str | float | None, test: Between | NumberBetween
) -> Dsl:
    bounds: Dsl = {}
    if low is not None:
        bounds["gte" if test.low_inclusive else "gt"] = low
    if high is not None:
        bounds["lte" if test.high_inclusive else "lt"] = high
    return {"range": {field: bounds}}
