"""Compile leaf clauses to predicates on words, strings and numbers.

Both engines and the evaluator compile these predicates, so a clause means the same to all.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from storage.search.grammar import clauses
from storage.search.grammar.clauses import (
    FuzzyClause,
    PrefixClause,
    RegexpClause,
    WildcardClause,
    count_required,
)
from storage.search.patterns import (
    escape_character,
    escape_wildcard,
    make_cost_estimate,
    make_matcher,
    regexp_to_re2,
    wildcard_prefix,
    wildcard_to_re2,
)
from storage.search.words import fold_case, split_words

T = TypeVar("T", str, float)


def estimate_edit_cost(left: str, right: str, edits: int) -> int:
    """Estimate the steps of `is_within_edits`: most words differ too much long before their end."""
    if abs(len(left) - len(right)) > edits:
        return 0
    return edits * min(len(left), len(right)) // 2


def is_within_edits(left: str, right: str, edits: int, *, transpositions: bool = True) -> bool:
    """Return whether at most `edits` edits (2 at most) turn `left` into `right`."""
    if abs(len(left) - len(right)) > edits:
        return False
    start, shorter = 0, min(len(left), len(right))
    while start < shorter and left[start] == right[start]:
        start += 1
    left, right = left[start:], right[start:]
    if edits == 0 or not left or not right:
        return not left or not right
    ways = [(left[1:], right[1:]), (left[1:], right), (left, right[1:])]
    if transpositions and left[:2] == right[1::-1]:
        ways.append((left[2:], right[2:]))
    return any(is_within_edits(*way, edits - 1, transpositions=transpositions) for way in ways)


NUMBER_TEXT = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
BOOLEAN_VALUES = {"true": 1.0, "false": 0.0}


PatternClause = PrefixClause | WildcardClause | RegexpClause | FuzzyClause


@dataclass(frozen=True, slots=True)
class ValueIn(Generic[T]):
    """A term or number is in this set."""

    values: frozenset[T]

    def fits(self, value: T) -> bool:
        """Return whether the test holds."""
        return value in self.values


@dataclass(frozen=True, slots=True)
class ValueBetween(Generic[T]):
    """A term (in code point order) or number is in a range; None is open."""

    low: T | None
    high: T | None
    low_inclusive: bool = True
    high_inclusive: bool = True

    def fits(self, value: T) -> bool:
        """Return whether the test holds."""
        low, high = self.low, self.high
        above = low is None or value > low or (self.low_inclusive and value == low)
        return above and (high is None or value < high or (self.high_inclusive and value == high))


@dataclass(frozen=True, slots=True)
class TermMatches:
    """A term begins with `prefix` and, if `matches` is set, satisfies it.

    `cost` estimates the microseconds of `matches`. `pattern` is the same test as a clause without
    fields, for an engine with its own automata.
    """

    matches: Callable[[str], bool] | None
    prefix: str
    pattern: PatternClause
    cost: Callable[[str], int] = field(default=lambda term: 0)

    def fits(self, value: str) -> bool:
        """Return whether the test holds."""
        return value.startswith(self.prefix) and (self.matches is None or self.matches(value))


TermTest = ValueIn[str] | ValueBetween[str] | TermMatches
NumberTest = ValueIn[float] | ValueBetween[float]


@dataclass(frozen=True, slots=True)
class WordTally:
    """In one text, tests that hold for some word have a total weight of at least `needed`."""

    tests: tuple[tuple[TermTest, int], ...]
    needed: int


@dataclass(frozen=True, slots=True)
class WordPhrase:
    """In one text these words are close together."""

    words: tuple[str, ...]
    slop: int


@dataclass(frozen=True, slots=True)
class LeafPredicate:
    """Predicates on a text's words, a whole string, a number, a boolean (as 0 and 1).

    None: nothing of that kind can match.
    """

    text: WordTally | WordPhrase | None = None
    whole: TermTest | None = None
    number: NumberTest | None = None
    boolean: NumberTest | None = None


def compile_leaf(clause: clauses.LeafClause) -> LeafPredicate:
    """Compile a leaf clause."""
    match clause:
        case clauses.TermClause():
            return _compile_term(clause)
        case clauses.TermsClause():
            return _match_values(frozenset(clause.values))
        case clauses.RangeClause():
            return LeafPredicate(
                match_any([_make_range(clause, fold_case if clause.folded else str)]),
                _make_range(clause, str),
                _make_range(clause, parse_double),
                _make_range(clause, BOOLEAN_VALUES.get),
            )
        case clauses.MatchClause():
            return _compile_match(clause)
        case clauses.MatchPhraseClause():
            return _compile_phrase(clause)
        case FuzzyClause() | PrefixClause() | WildcardClause() | RegexpClause():
            # Folding applies to words, not to whole values.
            words = match_any([_compile_pattern(clause, fold=clause.folded)])
            return LeafPredicate(words, _compile_pattern(clause, fold=False))


def match_any(tests: Iterable[TermTest | None]) -> WordTally:
    """Return a predicate: some word satisfies some test; tests for given terms become one."""
    given = [test for test in tests if test is not None]
    terms = frozenset(term for test in given if isinstance(test, ValueIn) for term in test.values)
    others: list[TermTest] = [test for test in given if not isinstance(test, ValueIn)]
    return WordTally(
        tuple((test, 1) for test in [*([ValueIn(terms)] if terms else []), *others]), 1
    )


def parse_double(text: str) -> float | None:
    """Parse a number of a query; None if it is malformed or beyond a double."""
    if not NUMBER_TEXT.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _compile_term(clause: clauses.TermClause) -> LeafPredicate:
    exact = _match_values(frozenset({clause.value}))
    if not clause.case_insensitive:
        return exact
    pattern = WildcardClause((), escape_wildcard(clause.value), case_insensitive=True)
    test = _compile_pattern(pattern, fold=False)
    return replace(exact, text=match_any([test]), whole=test)


def _match_values(values: frozenset[str]) -> LeafPredicate:
    test = ValueIn(values)
    numbers = frozenset(number for number in map(parse_double, values) if number is not None)
    booleans = frozenset(BOOLEAN_VALUES[value] for value in values if value in BOOLEAN_VALUES)
    return LeafPredicate(match_any([test]), test, ValueIn(numbers), ValueIn(booleans))


def _make_range(
    clause: clauses.RangeClause, read: Callable[[str], T | None]
) -> ValueBetween[T] | None:
    """Return the range between the bounds as `read` returns them; None if it cannot read one."""
    low = read(clause.low.value) if clause.low else None
    high = read(clause.high.value) if clause.high else None
    if (clause.low and low is None) or (clause.high and high is None):
        return None
    return ValueBetween(
        low,
        high,
        clause.low is None or clause.low.inclusive,
        clause.high is None or clause.high.inclusive,
    )


def _compile_pattern(clause: PatternClause, *, fold: bool) -> TermTest:
    value = fold_case(clause.value) if fold else clause.value
    pattern = replace(clause, fields=(), value=value, folded=False)
    if isinstance(pattern, FuzzyClause):
        return match_near(pattern)
    prefix = ""
    match pattern:
        case PrefixClause(case_insensitive=True):
            expression = "".join(escape_character(each, True) for each in value) + ".*"
        case PrefixClause():
            return TermMatches(None, value, pattern)
        case WildcardClause():
            expression = wildcard_to_re2(value, case_insensitive=pattern.case_insensitive)
            prefix = "" if pattern.case_insensitive else wildcard_prefix(value)
            if value == f"{prefix}*" and not pattern.case_insensitive:
                return TermMatches(None, prefix, pattern)
        case RegexpClause():
            expression = regexp_to_re2(
                value, pattern.operators, case_insensitive=pattern.case_insensitive
            )
    return TermMatches(make_matcher(expression), prefix, pattern, make_cost_estimate(expression))


def match_near(clause: FuzzyClause) -> TermTest:
    """Return a test for terms within some edits of a value that share its prefix."""
    value, swaps = clause.value, clause.transpositions
    edits = clause.fuzziness.allowed_edits(value)
    if edits == 0:
        return ValueIn(frozenset({value}))
    return TermMatches(
        lambda term: is_within_edits(value, term, edits, transpositions=swaps),
        value[: clause.prefix_length],
        clause,
        lambda term: estimate_edit_cost(value, term, edits),
    )


def _compile_match(clause: clauses.MatchClause) -> LeafPredicate:
    exact = _match_values(frozenset({clause.text}))
    found = Counter(split_words(clause.text))
    needed = _count_required_words(clause, found.total())
    tests = [(_make_word_test(clause, word), count) for word, count in found.items()]
    text = match_any(test for test, _ in tests) if needed == 1 else WordTally(tuple(tests), needed)
    exact = replace(exact, text=text if found else None)
    if clause.fuzziness is None:
        return exact
    return LeafPredicate(exact.text, _make_word_test(clause, clause.text))


def _count_required_words(clause: clauses.MatchClause, count: int) -> int:
    if clause.match_every:
        return count
    if count < 2 or clause.minimum_should_match is None:
        return 1
    return max(1, count_required(count, clause.minimum_should_match))


def _make_word_test(clause: clauses.MatchClause, word: str) -> TermTest:
    if clause.fuzziness is None:
        return ValueIn(frozenset({word}))
    return match_near(
        FuzzyClause((), word, clause.fuzziness, clause.prefix_length, clause.transpositions)
    )


def _compile_phrase(clause: clauses.MatchPhraseClause) -> LeafPredicate:
    exact = _match_values(frozenset({clause.text}))
    found = tuple(split_words(clause.text))
    text = (
        match_any([ValueIn(frozenset(found))])
        if len(found) == 1
        else WordPhrase(found, clause.slop)
    )
    return replace(exact, text=text if found else None)
