"""Stored queries: a clause compiled to a function of one document, for either search engine."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, assert_never

from storage.query.analysis import KEYWORD, Flat, flatten, parents
from storage.query.asks import (
    Asks,
    Between,
    Fits,
    NumberBetween,
    NumberIn,
    NumberTest,
    OneOf,
    Phrase,
    Tally,
    TermTest,
    asks,
)
from storage.query.clauses import (
    Bool,
    Boosting,
    Clause,
    ConstantScore,
    DisMax,
    Exists,
    Field,
    Fields,
    Ids,
    MatchAll,
    MatchNone,
)
from storage.query.minimum import required
from storage.query.patterns import matcher
from storage.query.phrases import in_phrase

Holds = Callable[[Flat], bool]
Matcher = Callable[[Mapping[str, Any] | Flat], bool]


def compile_query(clause: Clause) -> Matcher:
    """Whether a document matches; give it flattened where several queries look at the same one."""
    holds = _compiled(clause)

    def matches(document: Mapping[str, Any] | Flat) -> bool:
        return holds(document if isinstance(document, Flat) else flatten(document))

    return matches


def _compiled(clause: Clause) -> Holds:
    match clause:
        case MatchAll() | MatchNone():
            every = isinstance(clause, MatchAll)
            return lambda flat: every
        case Ids():
            wanted = frozenset(clause.values)
            return lambda flat: flat.id in wanted
        case Exists():
            return _exists(clause.fields)
        case Bool():
            return _bool(clause)
        case ConstantScore() | Boosting() | DisMax():
            return _any([_compiled(part) for part in counting(clause)])
        case _:
            return _leaf(clause.fields, asks(clause))


def _any(parts: list[Holds]) -> Holds:
    return lambda flat: any(part(flat) for part in parts)


def counting(clause: ConstantScore | Boosting | DisMax) -> tuple[Clause, ...]:
    """The parts of which any one decides what a compound matches; others only change a score."""
    match clause:
        case ConstantScore():
            return (clause.filter,)
        case Boosting():
            return (clause.positive,)
        case DisMax():
            return clause.queries


def _bool(clause: Bool) -> Holds:
    needed = [_compiled(part) for part in clause.must + clause.filter]
    optional = [_compiled(part) for part in clause.should]
    forbidden = [_compiled(part) for part in clause.must_not]
    minimum = optional_needed(clause)
    if not needed and not optional and forbidden and not clause.adjust_pure_negative:
        return lambda flat: False

    def holds(flat: Flat) -> bool:
        if not all(part(flat) for part in needed) or any(part(flat) for part in forbidden):
            return False
        return minimum <= 0 or _reaches(minimum, optional, flat)

    return holds


def _reaches(minimum: int, parts: list[Holds], flat: Flat) -> bool:
    held = 0
    for part in parts:
        held += part(flat)
        if held >= minimum:
            return True
    return False


def optional_needed(clause: Bool) -> int:
    """How many `should` clauses have to hold; more than there are, and nothing matches."""
    if not clause.should:
        return 0
    least = 0 if clause.must or clause.filter else 1
    if clause.minimum_should_match is None:
        return least
    return max(least, required(len(clause.should), clause.minimum_should_match))


def field_names(flat: Flat, field: Field) -> Iterator[str]:
    """The names of a document's fields that a field or pattern stands for."""
    if not field.pattern:
        yield field.name
        return
    fits = name_matcher(field.name)
    yield from filter(fits, flat.paths())
    yield from filter(fits, (path + KEYWORD for path in flat.strings))


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a field's name fits a pattern; only `*` is special."""
    return matcher(".*".join("".join(map(_plain, part)) for part in pattern.split("*")))


def _plain(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


def _exists(fields: Fields) -> Holds:
    return lambda flat: any(_has(flat, field) for field in fields)


def _has(flat: Flat, field: Field) -> bool:
    if field.pattern:
        fits = name_matcher(field.name)
        return any(fits(name) for path in flat.paths() for name in _names_of(flat, path))
    name = field.name
    if name in flat.strings or name in flat.numbers or name in flat.booleans:
        return True
    if name.endswith(KEYWORD) and flat.wholes(name.removesuffix(KEYWORD)):
        return True
    return name in flat.objects and name in flat.parents()


def _names_of(flat: Flat, path: str) -> Iterator[str]:
    """The names by which one path can be found to exist: itself, its keyword, all above it."""
    yield path
    if path in flat.strings and flat.wholes(path):
        yield path + KEYWORD
    yield from parents(path)


def _leaf(fields: Fields, question: Asks) -> Holds:
    text = _text_test(question.text)
    whole = term_test(question.whole)
    number = _number_test(question.number)
    boolean = _number_test(question.boolean)

    def holds(flat: Flat, name: str) -> bool:
        if name in flat.strings and text(flat, name):
            return True
        if name in flat.numbers:
            return any(map(number, flat.numbers[name]))
        if name in flat.booleans:
            return any(map(boolean, flat.booleans[name]))
        base = name.removesuffix(KEYWORD)
        return base != name and any(map(whole, flat.wholes(base)))

    return lambda flat: any(
        holds(flat, name) for field in fields for name in field_names(flat, field)
    )


def _text_test(question: Tally | Phrase | None) -> Callable[[Flat, str], bool]:
    match question:
        case None:
            return lambda flat, path: False
        case Phrase(words, slop):
            return lambda flat, path: in_phrase(words, slop, flat.words(path))
        case Tally():
            return _tally(question)


def _tally(question: Tally) -> Callable[[Flat, str], bool]:
    tests = [(_word_test(test), weight) for test, weight in question.tests]

    def holds(flat: Flat, path: str) -> bool:
        found = flat.words(path)
        return sum(weight for test, weight in tests if test(found)) >= question.needed

    return holds


def _word_test(test: TermTest) -> Callable[[Mapping[str, Any]], bool]:
    if isinstance(test, OneOf):
        terms = test.terms
        return lambda found: any(term in found for term in terms)
    fits = term_test(test)
    return lambda found: any(map(fits, found))


def term_test(test: TermTest | None) -> Callable[[str], bool]:
    """The test as a function of one term."""
    match test:
        case None:
            return lambda term: False
        case OneOf(terms):
            return lambda term: term in terms
        case Between():
            return lambda term: _between(term, test)
        case Fits(fits, prefix):
            if fits is None:
                return lambda term: term.startswith(prefix)
            return lambda term: term.startswith(prefix) and fits(term)
    assert_never(test)


def _between(term: str, test: Between) -> bool:
    low, high = test.low, test.high
    above = low is None or term > low or (test.low_inclusive and term == low)
    return above and (high is None or term < high or (test.high_inclusive and term == high))


def _number_test(test: NumberTest | None) -> Callable[[float], bool]:
    match test:
        case None:
            return lambda number: False
        case NumberIn(numbers):
            return lambda number: number in numbers
        case NumberBetween():
            return lambda number: _number_between(number, test)
    assert_never(test)


def _number_between(number: float, test: NumberBetween) -> bool:
    above = number > test.low or (test.low_inclusive and number == test.low)
    return above and (number < test.high or (test.high_inclusive and number == test.high))
