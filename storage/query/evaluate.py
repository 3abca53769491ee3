"""Stored queries: a clause compiled to a function of one document, for either search engine."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol, TypeVar, assert_never

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
from storage.query.phrases import Allowance, Pays, in_phrase

MAX_TESTS = 1_000_000
"""Words, values and names of one document that one query may look at; patterns and near words cost
more, by their own size."""
NAME_CHARACTERS = 16
"""Characters of a name that count as one step where names are compared with a pattern."""

T = TypeVar("T")


class Matcher(Protocol):
    """Whether a document matches, within steps that are given or else are those of one query."""

    def __call__(
        self, document: Mapping[str, Any] | Flat, allowance: Pays | None = None
    ) -> bool: ...


class _Seen:
    """A document as one query looks at it, and how much more the query may look at."""

    def __init__(self, flat: Flat, allowance: Pays) -> None:
        self.flat, self.pay = flat, allowance.pay


Holds = Callable[[_Seen], bool]


def compile_query(clause: Clause) -> Matcher:
    """Whether a document matches; give it flattened where several queries look at the same one.

    TimedOut for what would take very long: the caller has other queries to ask.
    """
    holds = _compiled(clause)

    def matches(document: Mapping[str, Any] | Flat, allowance: Pays | None = None) -> bool:
        flat = document if isinstance(document, Flat) else flatten(document)
        return holds(_Seen(flat, allowance or Allowance(MAX_TESTS)))

    return matches


def _compiled(clause: Clause) -> Holds:
    match clause:
        case MatchAll() | MatchNone():
            every = isinstance(clause, MatchAll)
            return lambda seen: every
        case Ids():
            wanted = frozenset(clause.values)
            return lambda seen: seen.flat.id in wanted
        case Exists():
            return _exists(clause.fields)
        case Bool():
            return _bool(clause)
        case ConstantScore() | Boosting() | DisMax():
            return _any([_compiled(part) for part in counting(clause)])
        case _:
            return _leaf(clause.fields, asks(clause))


def _any(parts: list[Holds]) -> Holds:
    return lambda seen: any(part(seen) for part in parts)


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
        return lambda seen: False

    def holds(seen: _Seen) -> bool:
        seen.pay(1)
        if not all(part(seen) for part in needed) or any(part(seen) for part in forbidden):
            return False
        return minimum <= 0 or _reaches(minimum, optional, seen)

    return holds


def _reaches(minimum: int, parts: list[Holds], seen: _Seen) -> bool:
    held = 0
    for part in parts:
        held += part(seen)
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


def _field_names(seen: _Seen, field: Field) -> Iterator[str]:
    """The names of a document's fields that a field or pattern stands for."""
    if not field.pattern:
        yield field.name
        return
    flat = seen.flat
    seen.pay(_size_of_names(flat))
    fits = name_matcher(field.name)
    yield from filter(fits, flat.paths())
    yield from filter(fits, (path + KEYWORD for path in flat.strings))


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a field's name fits a pattern; only `*` is special."""
    return matcher(".*".join("".join(map(_plain, part)) for part in pattern.split("*")))


def _plain(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


def _exists(fields: Fields) -> Holds:
    return lambda seen: any(_has(seen, field) for field in fields)


def _size_of_names(flat: Flat) -> int:
    return sum(1 + len(path) // NAME_CHARACTERS for path in flat.paths())


def _has(seen: _Seen, field: Field) -> bool:
    flat = seen.flat
    seen.pay(1)
    if field.pattern:
        # Every path is compared, and so is whatever is above it.
        seen.pay(sum(3 + len(path) * path.count(".") // NAME_CHARACTERS for path in flat.paths()))
        fits = name_matcher(field.name)
        return any(fits(name) for path in flat.paths() for name in _names_of(flat, path))
    name = field.name
    if name in flat.strings or name in flat.numbers or name in flat.booleans:
        return True
    if name.endswith(KEYWORD) and flat.wholes(name.removesuffix(KEYWORD)):
        return True
    if name not in flat.objects:
        return False
    seen.pay(sum(1 + path.count(".") for path in flat.paths()))
    return name in flat.parents()


def _names_of(flat: Flat, path: str) -> Iterator[str]:
    """The names by which one path can be found to exist: itself, its keyword, all above it."""
    yield path
    if path in flat.strings and flat.wholes(path):
        yield path + KEYWORD
    yield from parents(path)


def _leaf(fields: Fields, question: Asks) -> Holds:
    text = _text_test(question.text)
    whole = question.whole
    number = _number_test(question.number)
    boolean = _number_test(question.boolean)

    def holds(seen: _Seen, name: str) -> bool:
        flat = seen.flat
        seen.pay(1)
        if name in flat.strings and text(seen, name):
            return True
        if name in flat.numbers:
            return _some(seen, number, flat.numbers[name])
        if name in flat.booleans:
            return _some(seen, boolean, flat.booleans[name])
        base = name.removesuffix(KEYWORD)
        return base != name and whole is not None and _some_term(seen, whole, flat.wholes(base))

    return lambda seen: any(
        holds(seen, name) for field in fields for name in _field_names(seen, field)
    )


def _some(seen: _Seen, test: Callable[[T], bool], values: Collection[T]) -> bool:
    seen.pay(len(values))
    return any(map(test, values))


def _some_term(seen: _Seen, test: TermTest, terms: Collection[str]) -> bool:
    if not isinstance(test, Fits) or test.fits is None:
        return _some(seen, term_test(test), terms)
    seen.pay(len(terms))
    for term in terms:
        if term.startswith(test.prefix):
            seen.pay(test.price(term))
            if test.fits(term):
                return True
    return False


def _text_test(question: Tally | Phrase | None) -> Callable[[_Seen, str], bool]:
    match question:
        case None:
            return lambda seen, path: False
        case Phrase():
            return lambda seen, path: _phrase(question, seen, path)
        case Tally():
            return _tally(question)


def _phrase(question: Phrase, seen: _Seen, path: str) -> bool:
    seen.pay(len(question.words))
    return in_phrase(question.words, question.slop, seen.flat.words(path), seen.pay)


def _tally(question: Tally) -> Callable[[_Seen, str], bool]:
    tests = [(_word_test(test), weight) for test, weight in question.tests]

    def holds(seen: _Seen, path: str) -> bool:
        found = seen.flat.words(path)
        return sum(weight for test, weight in tests if test(seen, found)) >= question.needed

    return holds


def _word_test(test: TermTest) -> Callable[[_Seen, Mapping[str, Any]], bool]:
    if isinstance(test, OneOf):
        terms = test.terms
        return lambda seen, found: _any_of(seen, terms, found)
    return lambda seen, found: _some_term(seen, test, found)


def _any_of(seen: _Seen, terms: frozenset[str], found: Mapping[str, Any]) -> bool:
    seen.pay(len(terms))
    return any(term in found for term in terms)


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
