"""Compile leaf clauses to predicates on words, strings and numbers.

Both engines and the evaluator compile these predicates, so a clause means the same to all.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.search.grammar.clauses import (
    Fuzziness,
    FuzzyClause,
    LeafClause,
    MatchClause,
    MatchPhraseClause,
    PrefixClause,
    RangeBound,
    RangeClause,
    RegexpClause,
    TermClause,
    TermsClause,
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


def estimate_edit_cost(left: str, right: str, edits: int) -> int:
    """Estimate the steps of `is_within_edits`: most words differ too much long before their end."""
    if abs(len(left) - len(right)) > edits:
        return 0
    return edits * min(len(left), len(right)) // 2


def is_within_edits(left: str, right: str, edits: int, *, transpositions: bool = True) -> bool:
    """Return whether at most `edits` edits turn `left` into `right`; fills only a band of the
    table."""
    if left == right:
        return True
    if edits == 0 or abs(len(left) - len(right)) > edits:
        return False
    left, right = _strip_common_ends(left, right)
    far, width = edits + 1, 2 * edits + 1
    # Place `n` of a row is column `row - edits + n`: the one above it has place `n + 1`.
    before: list[int] = []
    last = [far] * edits + list(range(edits + 1)) + [far]
    for row, character in enumerate(left, 1):
        current = [far] * (width + 1)
        for place in range(max(0, edits - row), min(width, len(right) - row + edits + 1)):
            column = row - edits + place
            best = min(last[place + 1], current[place - 1] if place else far) + 1
            if column:
                best = min(best, last[place] + (character != right[column - 1]))
            if transpositions and _is_transposition(left, right, row, column):
                best = min(best, before[place] + 1)
            current[place] = min(best, far)
        if min(current) > edits:
            return False
        before, last = last, current
    return last[len(right) - len(left) + edits] <= edits


def _is_transposition(left: str, right: str, row: int, column: int) -> bool:
    if row < 2 or column < 2:
        return False
    return left[row - 1] == right[column - 2] and left[row - 2] == right[column - 1]


def _strip_common_ends(left: str, right: str) -> tuple[str, str]:
    start = 0
    shorter = min(len(left), len(right))
    while start < shorter and left[start] == right[start]:
        start += 1
    end = 0
    while end < shorter - start and left[-1 - end] == right[-1 - end]:
        end += 1
    return left[start : len(left) - end], right[start : len(right) - end]


NUMBER_TEXT = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
BOOLEAN_VALUES = {"true": 1.0, "false": 0.0}


PatternClause = PrefixClause | WildcardClause | RegexpClause | FuzzyClause


@dataclass(frozen=True, slots=True)
class TermIn:
    """A term is in this set."""

    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class TermBetween:
    """A term is in a range, in code point order; None is open."""

    low: str | None
    high: str | None
    low_inclusive: bool = True
    high_inclusive: bool = True


@dataclass(frozen=True, slots=True)
class TermMatches:
    """A term begins with `prefix` and, if `matches` is set, satisfies it.

    `cost` estimates the microseconds of `matches`. `pattern` is the same test as a clause without
    fields, for an engine with its own automata.
    """

    matches: Callable[[str], bool] | None
    prefix: str = ""
    cost: Callable[[str], int] = field(default=lambda term: 0, kw_only=True)
    pattern: PatternClause = field(kw_only=True)


TermTest = TermIn | TermBetween | TermMatches


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
class NumberIn:
    """A number is in this set."""

    numbers: frozenset[float]


@dataclass(frozen=True, slots=True)
class NumberBetween:
    """A number is in a range; infinities are open."""

    low: float = -math.inf
    high: float = math.inf
    low_inclusive: bool = True
    high_inclusive: bool = True


NumberTest = NumberIn | NumberBetween


@dataclass(frozen=True, slots=True)
class LeafPredicate:
    """Predicates on a text's words, a whole string, a number, a boolean (as 0 and 1).

    None: nothing of that kind can match.
    """

    text: WordTally | WordPhrase | None = None
    whole: TermTest | None = None
    number: NumberTest | None = None
    boolean: NumberTest | None = None


def compile_leaf(clause: LeafClause) -> LeafPredicate:
    """Compile a leaf clause."""
    match clause:
        case TermClause():
            return _compile_term(clause)
        case TermsClause():
            return _match_values(frozenset(clause.values))
        case RangeClause():
            return _compile_range(clause)
        case MatchClause():
            return _compile_match(clause)
        case MatchPhraseClause():
            return _compile_phrase(clause)
        case FuzzyClause() | PrefixClause() | WildcardClause() | RegexpClause():
            return _match_terms(lambda fold: _compile_pattern(clause, fold), clause.folded)


def match_one(test: TermTest) -> WordTally:
    """Return a predicate: some word satisfies the test."""
    return WordTally(((test, 1),), 1)


def parse_double(text: str) -> float | None:
    """Parse a number of a query; None if it is malformed or beyond a double."""
    if not NUMBER_TEXT.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _compile_term(clause: TermClause) -> LeafPredicate:
    exact = _match_values(frozenset({clause.value}))
    if not clause.case_insensitive:
        return exact
    expression = "".join(escape_character(character, True) for character in clause.value)
    test = _match_expression(
        expression, pattern_clause=WildcardClause((), escape_wildcard(clause.value), True)
    )
    return LeafPredicate(match_one(test), test, exact.number, exact.boolean)


def _match_expression(
    expression: str, prefix: str = "", *, pattern_clause: PatternClause
) -> TermMatches:
    return TermMatches(
        make_matcher(expression),
        prefix,
        cost=make_cost_estimate(expression),
        pattern=pattern_clause,
    )


def _match_values(values: frozenset[str]) -> LeafPredicate:
    test = TermIn(values)
    numbers = frozenset(number for number in map(parse_double, values) if number is not None)
    booleans = frozenset(BOOLEAN_VALUES[value] for value in values if value in BOOLEAN_VALUES)
    return LeafPredicate(match_one(test), test, NumberIn(numbers), NumberIn(booleans))


def _compile_range(clause: RangeClause) -> LeafPredicate:
    low, high = clause.low, clause.high
    fold = fold_case if clause.folded else str
    text = _make_term_range(low, high, fold)
    return LeafPredicate(
        match_one(text),
        _make_term_range(low, high, str),
        _make_number_range(low, high, parse_double),
        _make_number_range(low, high, BOOLEAN_VALUES.get),
    )


def _make_term_range(
    low: RangeBound | None, high: RangeBound | None, fold: Callable[[str], str]
) -> TermBetween:
    return TermBetween(
        fold(low.value) if low else None,
        fold(high.value) if high else None,
        low.inclusive if low else True,
        high.inclusive if high else True,
    )


def _make_number_range(
    low: RangeBound | None, high: RangeBound | None, read: Callable[[str], float | None]
) -> NumberTest | None:
    ends = [
        read(bound.value) if bound else infinity
        for bound, infinity in _pair_with_infinities(low, high)
    ]
    if ends[0] is None or ends[1] is None:
        return None
    return NumberBetween(
        ends[0],
        ends[1],
        low.inclusive if low else True,
        high.inclusive if high else True,
    )


def _pair_with_infinities(
    low: RangeBound | None, high: RangeBound | None
) -> list[tuple[RangeBound | None, float]]:
    return [(low, -math.inf), (high, math.inf)]


def _match_terms(test: Callable[[bool], TermTest], fold: bool) -> LeafPredicate:
    """Match strings only; folding applies to their words, not to whole values."""
    return LeafPredicate(match_one(test(fold)), test(False))


def _compile_pattern(
    clause: FuzzyClause | PrefixClause | WildcardClause | RegexpClause, fold: bool
) -> TermTest:
    match clause:
        case FuzzyClause():
            return _compile_fuzzy(clause, fold)
        case PrefixClause():
            return _compile_prefix(clause, fold)
        case WildcardClause():
            return _compile_wildcard(clause, fold)
        case RegexpClause():
            return _compile_regexp(clause, fold)


def _compile_fuzzy(clause: FuzzyClause, fold: bool) -> TermTest:
    value = fold_case(clause.value) if fold else clause.value
    edits = clause.fuzziness.allowed_edits(value)
    return match_near(value, edits, clause.prefix_length, transpositions=clause.transpositions)


def match_near(value: str, edits: int, prefix_length: int, *, transpositions: bool) -> TermTest:
    """Return a test for terms within some edits of a value that share its prefix."""
    if edits == 0:
        return TermIn(frozenset({value}))
    prefix = value[:prefix_length]
    pattern_clause = FuzzyClause((), value, Fuzziness(edits), prefix_length, transpositions)
    return TermMatches(
        lambda term: is_within_edits(value, term, edits, transpositions=transpositions),
        prefix,
        cost=lambda term: estimate_edit_cost(value, term, edits),
        pattern=pattern_clause,
    )


def _compile_prefix(clause: PrefixClause, fold: bool) -> TermTest:
    value = fold_case(clause.value) if fold else clause.value
    pattern_clause = PrefixClause((), value, clause.case_insensitive)
    if not clause.case_insensitive:
        return TermMatches(None, value, pattern=pattern_clause)
    expression = "".join(escape_character(character, True) for character in value)
    return _match_expression(f"{expression}.*", pattern_clause=pattern_clause)


def _compile_wildcard(clause: WildcardClause, fold: bool) -> TermTest:
    pattern = fold_case(clause.pattern) if fold else clause.pattern
    expression = wildcard_to_re2(pattern, case_insensitive=clause.case_insensitive)
    pattern_clause = WildcardClause((), pattern, clause.case_insensitive)
    if clause.case_insensitive:
        return _match_expression(expression, pattern_clause=pattern_clause)
    prefix = wildcard_prefix(pattern)
    only_prefix = expression == wildcard_to_re2(prefix) + ".*" and "\\" not in pattern
    return (
        TermMatches(None, prefix, pattern=pattern_clause)
        if only_prefix
        else _match_expression(expression, prefix, pattern_clause=pattern_clause)
    )


def _compile_regexp(clause: RegexpClause, fold: bool) -> TermTest:
    pattern = fold_case(clause.pattern) if fold else clause.pattern
    expression = regexp_to_re2(pattern, clause.operators, case_insensitive=clause.case_insensitive)
    pattern_clause = RegexpClause((), pattern, clause.operators, clause.case_insensitive)
    return _match_expression(expression, pattern_clause=pattern_clause)


def _compile_match(clause: MatchClause) -> LeafPredicate:
    exact = _match_values(frozenset({clause.text}))
    found = split_words(clause.text)
    needed = _count_required_words(clause, len(found))
    tests = tuple((_make_word_test(clause, word), count) for word, count in Counter(found).items())
    text = WordTally(tests, needed) if found else None
    if clause.fuzziness is None:
        return LeafPredicate(text, exact.whole, exact.number, exact.boolean)
    return LeafPredicate(text, _make_word_test(clause, clause.text))


def _count_required_words(clause: MatchClause, count: int) -> int:
    if clause.match_every:
        return count
    if count < 2 or clause.minimum_should_match is None:
        return 1
    return max(1, count_required(count, clause.minimum_should_match))


def _make_word_test(clause: MatchClause, word: str) -> TermTest:
    edits = clause.fuzziness.allowed_edits(word) if clause.fuzziness else 0
    return match_near(word, edits, clause.prefix_length, transpositions=clause.transpositions)


def _compile_phrase(clause: MatchPhraseClause) -> LeafPredicate:
    exact = _match_values(frozenset({clause.text}))
    found = tuple(split_words(clause.text))
    text = (
        match_one(TermIn(frozenset(found))) if len(found) == 1 else WordPhrase(found, clause.slop)
    )
    return LeafPredicate(text if found else None, exact.whole, exact.number, exact.boolean)
