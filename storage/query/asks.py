"""What a leaf clause asks of one field, by the kind of its leaves.

The search engine turns this into its index's terms, the evaluator into plain functions: neither
interprets a clause by itself, so that they cannot mean different things.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.query.clauses import (
    Bound,
    Fuzziness,
    Fuzzy,
    Leaf,
    Match,
    MatchPhrase,
    Prefix,
    Range,
    Regexp,
    Term,
    Terms,
    Wildcard,
)
from storage.query.edits import price, within
from storage.query.minimum import required
from storage.query.patterns import (
    literal,
    matcher,
    pricing,
    regexp_to_re2,
    wildcard_prefix,
    wildcard_to_re2,
    wildcard_verbatim,
)
from storage.query.words import folded, words

NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
BOOLEANS = {"true": 1.0, "false": 0.0}


Told = Prefix | Wildcard | Regexp | Fuzzy


@dataclass(frozen=True, slots=True)
class OneOf:
    """A term is one of these."""

    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class Between:
    """A term lies between, in the order of code points; None is open."""

    low: str | None
    high: str | None
    low_inclusive: bool = True
    high_inclusive: bool = True


@dataclass(frozen=True, slots=True)
class Fits:
    """A term begins with `prefix` and, if that is not all, satisfies a function, which takes about
    so many microseconds; `told` is the same as a clause of no field, for an engine that has
    automata of its own."""

    fits: Callable[[str], bool] | None
    prefix: str = ""
    price: Callable[[str], int] = field(default=lambda term: 0, kw_only=True)
    told: Told = field(kw_only=True)


TermTest = OneOf | Between | Fits


@dataclass(frozen=True, slots=True)
class Tally:
    """In one text, tests of a weight of at least `needed` hold, each for some word."""

    tests: tuple[tuple[TermTest, int], ...]
    needed: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """In one text these words stand close together."""

    words: tuple[str, ...]
    slop: int


@dataclass(frozen=True, slots=True)
class NumberIn:
    """A number is one of these."""

    numbers: frozenset[float]


@dataclass(frozen=True, slots=True)
class NumberBetween:
    """A number lies between; infinities are open."""

    low: float = -math.inf
    high: float = math.inf
    low_inclusive: bool = True
    high_inclusive: bool = True


NumberTest = NumberIn | NumberBetween


@dataclass(frozen=True, slots=True)
class Asks:
    """The question to a text's words, to a whole string, to a number, to a boolean (as 0 and 1);
    None: nothing of that kind can match."""

    text: Tally | Phrase | None = None
    whole: TermTest | None = None
    number: NumberTest | None = None
    boolean: NumberTest | None = None


def asks(clause: Leaf) -> Asks:
    """What the clause asks."""
    match clause:
        case Term():
            return _term(clause)
        case Terms():
            return _values(frozenset(clause.values))
        case Range():
            return _range(clause)
        case Match():
            return _match(clause)
        case MatchPhrase():
            return _phrase(clause)
        case Fuzzy() | Prefix() | Wildcard() | Regexp():
            return _on_terms(lambda fold: _single_term(clause, fold), clause.folded)


def one(test: TermTest) -> Tally:
    """Some word satisfies the test."""
    return Tally(((test, 1),), 1)


def double(text: str) -> float | None:
    """A number written in a query, if it is one and a double can hold it."""
    if not NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _term(clause: Term) -> Asks:
    exact = _values(frozenset({clause.value}))
    if not clause.case_insensitive:
        return exact
    expression = "".join(literal(character, True) for character in clause.value)
    test = _fitting(expression, told=Wildcard((), wildcard_verbatim(clause.value), True))
    return Asks(one(test), test, exact.number, exact.boolean)


def _fitting(expression: str, prefix: str = "", *, told: Told) -> Fits:
    return Fits(matcher(expression), prefix, price=pricing(expression), told=told)


def _values(values: frozenset[str]) -> Asks:
    test = OneOf(values)
    numbers = frozenset(number for number in map(double, values) if number is not None)
    booleans = frozenset(BOOLEANS[value] for value in values if value in BOOLEANS)
    return Asks(one(test), test, NumberIn(numbers), NumberIn(booleans))


def _range(clause: Range) -> Asks:
    low, high = clause.low, clause.high
    fold = folded if clause.folded else str
    text = _between(low, high, fold)
    return Asks(
        one(text),
        _between(low, high, str),
        _numbers_between(low, high, double),
        _numbers_between(low, high, BOOLEANS.get),
    )


def _between(low: Bound | None, high: Bound | None, fold: Callable[[str], str]) -> Between:
    return Between(
        fold(low.value) if low else None,
        fold(high.value) if high else None,
        low.inclusive if low else True,
        high.inclusive if high else True,
    )


def _numbers_between(
    low: Bound | None, high: Bound | None, read: Callable[[str], float | None]
) -> NumberTest | None:
    ends = [read(bound.value) if bound else infinity for bound, infinity in _ends(low, high)]
    if ends[0] is None or ends[1] is None:
        return None
    return NumberBetween(
        ends[0],
        ends[1],
        low.inclusive if low else True,
        high.inclusive if high else True,
    )


def _ends(low: Bound | None, high: Bound | None) -> list[tuple[Bound | None, float]]:
    return [(low, -math.inf), (high, math.inf)]


def _on_terms(test: Callable[[bool], TermTest], fold: bool) -> Asks:
    """A question that only strings understand; folding is for their words, not whole values."""
    return Asks(one(test(fold)), test(False))


def _single_term(clause: Fuzzy | Prefix | Wildcard | Regexp, fold: bool) -> TermTest:
    match clause:
        case Fuzzy():
            return _fuzzy(clause, fold)
        case Prefix():
            return _prefix(clause, fold)
        case Wildcard():
            return _wildcard(clause, fold)
        case Regexp():
            return _regexp(clause, fold)


def _fuzzy(clause: Fuzzy, fold: bool) -> TermTest:
    value = folded(clause.value) if fold else clause.value
    edits = clause.fuzziness.edits(value)
    return near(value, edits, clause.prefix_length, transpositions=clause.transpositions)


def near(value: str, edits: int, prefix_length: int, *, transpositions: bool) -> TermTest:
    """Terms within some edits of a value that begin as it does."""
    if edits == 0:
        return OneOf(frozenset({value}))
    prefix = value[:prefix_length]
    told = Fuzzy((), value, Fuzziness(edits), prefix_length, transpositions)
    return Fits(
        lambda term: within(value, term, edits, transpositions=transpositions),
        prefix,
        price=lambda term: price(value, term, edits),
        told=told,
    )


def _prefix(clause: Prefix, fold: bool) -> TermTest:
    value = folded(clause.value) if fold else clause.value
    told = Prefix((), value, clause.case_insensitive)
    if not clause.case_insensitive:
        return Fits(None, value, told=told)
    expression = "".join(literal(character, True) for character in value)
    return _fitting(f"{expression}.*", told=told)


def _wildcard(clause: Wildcard, fold: bool) -> TermTest:
    pattern = folded(clause.pattern) if fold else clause.pattern
    expression = wildcard_to_re2(pattern, case_insensitive=clause.case_insensitive)
    told = Wildcard((), pattern, clause.case_insensitive)
    if clause.case_insensitive:
        return _fitting(expression, told=told)
    prefix = wildcard_prefix(pattern)
    only_prefix = expression == wildcard_to_re2(prefix) + ".*" and "\\" not in pattern
    return Fits(None, prefix, told=told) if only_prefix else _fitting(expression, prefix, told=told)


def _regexp(clause: Regexp, fold: bool) -> TermTest:
    pattern = folded(clause.pattern) if fold else clause.pattern
    expression = regexp_to_re2(pattern, clause.operators, case_insensitive=clause.case_insensitive)
    told = Regexp((), pattern, clause.operators, clause.case_insensitive)
    return _fitting(expression, told=told)


def _match(clause: Match) -> Asks:
    exact = _values(frozenset({clause.text}))
    found = words(clause.text)
    needed = _needed(clause, len(found))
    tests = tuple((_word_test(clause, word), count) for word, count in Counter(found).items())
    text = Tally(tests, needed) if found else None
    if clause.fuzziness is None:
        return Asks(text, exact.whole, exact.number, exact.boolean)
    return Asks(text, _word_test(clause, clause.text))


def _needed(clause: Match, count: int) -> int:
    if clause.every:
        return count
    if count < 2 or clause.minimum_should_match is None:
        return 1
    return max(1, required(count, clause.minimum_should_match))


def _word_test(clause: Match, word: str) -> TermTest:
    edits = clause.fuzziness.edits(word) if clause.fuzziness else 0
    return near(word, edits, clause.prefix_length, transpositions=clause.transpositions)


def _phrase(clause: MatchPhrase) -> Asks:
    exact = _values(frozenset({clause.text}))
    found = tuple(words(clause.text))
    text = one(OneOf(frozenset(found))) if len(found) == 1 else Phrase(found, clause.slop)
    return Asks(text if found else None, exact.whole, exact.number, exact.boolean)
