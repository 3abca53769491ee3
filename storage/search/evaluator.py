"""Evaluate a query on one document within a step budget."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, assert_never

from storage.errors import TimedOut
from storage.search.documents import KEYWORD_SUFFIX, FlatDocument, flatten_document, parent_paths
from storage.search.grammar.clauses import (
    BoolClause,
    BoostingClause,
    Clause,
    ConstantScoreClause,
    DisMaxClause,
    ExistsClause,
    IdsClause,
    MatchAllClause,
    MatchNoneClause,
    QueryField,
    QueryFields,
    count_required,
)
from storage.search.patterns import escape_code_point, make_matcher
from storage.search.predicates import (
    LeafPredicate,
    NumberBetween,
    NumberIn,
    NumberTest,
    TermBetween,
    TermIn,
    TermMatches,
    TermTest,
    WordPhrase,
    WordTally,
    compile_leaf,
)

MAX_PHRASE_STEPS = 1_000_000
"""Steps of one phrase search in one text: a text that repeats a word thousands of times, but never
the phrase, would take hours."""


class StepSpender(Protocol):
    """A budget of steps; raises if too few are left."""

    def pay(self, steps: int, /) -> None: ...


class QueryBudget:
    """Steps that are left; TimedOut if there are too few."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def pay(self, steps: int, /) -> None:
        """Spend steps."""
        self._left -= steps
        if self._left < 0:
            raise TimedOut("The query needs more steps on one document than allowed: simplify it.")


def is_in_phrase(
    words: Sequence[str],
    slop: int,
    positions: Mapping[str, Sequence[int]],
    pay: Callable[[int], None] | None = None,
) -> bool:
    """Return whether each word has a position of its own such that all are within `slop` of the
    phrase.

    TimedOut if that takes more steps than the budget has.
    """
    pay = pay or QueryBudget(MAX_PHRASE_STEPS).pay
    if not words or not all(positions.get(word, ()) for word in words):
        return False
    start: int | None = -len(words)
    while start is not None:
        met, start = _place_words(words, slop, positions, start)
        if met == len(words):
            return True
        pay(met + 1)
    return False


def _place_words(
    words: Sequence[str], slop: int, positions: Mapping[str, Sequence[int]], start: int
) -> tuple[int, int | None]:
    """Place words in order within `start .. start + slop` of their offset.

    Returns how many could be placed, each at the first free position, and the least start at which
    more may, if any. Positions only grow with the start, so no start before that is worth a try.
    """
    free: dict[str, int] = {}
    for offset, word in enumerate(words):
        places = positions[word]
        at = bisect_left(places, start + offset, free.get(word, 0))
        if at == len(places):
            return offset, None
        shift = places[at] - offset
        if shift > start + slop:
            return offset, shift - slop
        free[word] = at + 1
    return len(words), None


MAX_QUERY_STEPS = 1_000_000
"""Words, values and names of one document that one query may look at; patterns and fuzzy words cost
more."""
NAME_CHARACTERS_PER_STEP = 16
"""Characters of a field name per step when names are matched with a pattern."""

T = TypeVar("T")


class DocumentMatcher(Protocol):
    """Returns whether a document matches, within a budget (default: that of one query)."""

    def __call__(
        self, document: Mapping[str, Any] | FlatDocument, allowance: StepSpender | None = None
    ) -> bool: ...


class _DocumentView:
    """One document as a query sees it, with the budget of the query."""

    def __init__(self, flat: FlatDocument, allowance: StepSpender) -> None:
        self.flat, self.pay = flat, allowance.pay


ClauseTest = Callable[[_DocumentView], bool]


def compile_query(clause: Clause) -> DocumentMatcher:
    """Compile a query to a function of a document; pass it flattened if several queries share it.

    The function raises TimedOut for what would take very long, since other queries wait.
    """
    holds = _compile_clause(clause)

    def matches(
        document: Mapping[str, Any] | FlatDocument, allowance: StepSpender | None = None
    ) -> bool:
        flat = document if isinstance(document, FlatDocument) else flatten_document(document)
        return holds(_DocumentView(flat, allowance or QueryBudget(MAX_QUERY_STEPS)))

    return matches


def _compile_clause(clause: Clause) -> ClauseTest:
    match clause:
        case MatchAllClause() | MatchNoneClause():
            every = isinstance(clause, MatchAllClause)
            return lambda view: every
        case IdsClause():
            ids = frozenset(clause.values)
            return lambda view: view.flat.id in ids
        case ExistsClause():
            return _compile_exists(clause.fields)
        case BoolClause():
            return _compile_bool(clause)
        case ConstantScoreClause() | BoostingClause() | DisMaxClause():
            return _any_holds([_compile_clause(part) for part in deciding_clauses(clause)])
        case _:
            return _compile_leaf_test(clause.fields, compile_leaf(clause))


def _any_holds(parts: list[ClauseTest]) -> ClauseTest:
    return lambda view: any(part(view) for part in parts)


def deciding_clauses(
    clause: ConstantScoreClause | BoostingClause | DisMaxClause,
) -> tuple[Clause, ...]:
    """Return the parts of which any decides what a compound matches; others only change scores."""
    match clause:
        case ConstantScoreClause():
            return (clause.filter,)
        case BoostingClause():
            return (clause.positive,)
        case DisMaxClause():
            return clause.queries


def _compile_bool(clause: BoolClause) -> ClauseTest:
    needed = [_compile_clause(part) for part in clause.must + clause.filter]
    optional = [_compile_clause(part) for part in clause.should]
    forbidden = [_compile_clause(part) for part in clause.must_not]
    minimum = count_required_should(clause)
    if not needed and not optional and forbidden and not clause.adjust_pure_negative:
        return lambda view: False

    def holds(view: _DocumentView) -> bool:
        view.pay(1)
        if not all(part(view) for part in needed) or any(part(view) for part in forbidden):
            return False
        return minimum <= 0 or _reaches_minimum(minimum, optional, view)

    return holds


def _reaches_minimum(minimum: int, parts: list[ClauseTest], view: _DocumentView) -> bool:
    count = 0
    for part in parts:
        count += part(view)
        if count >= minimum:
            return True
    return False


def count_required_should(clause: BoolClause) -> int:
    """Return how many `should` clauses must hold; if there are fewer, nothing matches."""
    if not clause.should:
        return 0
    least = 0 if clause.must or clause.filter else 1
    if clause.minimum_should_match is None:
        return least
    return max(least, count_required(len(clause.should), clause.minimum_should_match))


def _expand_field(view: _DocumentView, field: QueryField) -> Iterator[str]:
    """Iterate over the document's fields that a field or pattern names."""
    if not field.pattern:
        yield field.name
        return
    flat = view.flat
    view.pay(_estimate_name_steps(flat))
    fits = make_name_matcher(field.name)
    yield from filter(fits, flat.paths())
    yield from filter(fits, (path + KEYWORD_SUFFIX for path in flat.strings))


def make_name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a matcher of field names; only `*` is special."""
    return make_matcher(
        ".*".join("".join(map(escape_code_point, part)) for part in pattern.split("*"))
    )


def _compile_exists(fields: QueryFields) -> ClauseTest:
    return lambda view: any(_has_field(view, field) for field in fields)


def _estimate_name_steps(flat: FlatDocument) -> int:
    return sum(1 + len(path) // NAME_CHARACTERS_PER_STEP for path in flat.paths())


def _has_field(view: _DocumentView, field: QueryField) -> bool:
    flat = view.flat
    view.pay(1)
    if field.pattern:
        # Every path is compared, and so are its parents.
        view.pay(
            sum(
                3 + len(path) * path.count(".") // NAME_CHARACTERS_PER_STEP for path in flat.paths()
            )
        )
        fits = make_name_matcher(field.name)
        return any(fits(name) for path in flat.paths() for name in _existing_names(flat, path))
    name = field.name
    if name in flat.strings or name in flat.numbers or name in flat.booleans:
        return True
    if name.endswith(KEYWORD_SUFFIX) and flat.keyword_values(name.removesuffix(KEYWORD_SUFFIX)):
        return True
    if name not in flat.objects:
        return False
    view.pay(sum(1 + path.count(".") for path in flat.paths()))
    return name in flat.parent_paths()


def _existing_names(flat: FlatDocument, path: str) -> Iterator[str]:
    """Iterate over the names under which a path exists: itself, its keyword, its parents."""
    yield path
    if path in flat.strings and flat.keyword_values(path):
        yield path + KEYWORD_SUFFIX
    yield from parent_paths(path)


def _compile_leaf_test(fields: QueryFields, predicate: LeafPredicate) -> ClauseTest:
    text = _make_text_test(predicate.text)
    whole = predicate.whole
    number = _make_number_test(predicate.number)
    boolean = _make_number_test(predicate.boolean)

    def holds(view: _DocumentView, name: str) -> bool:
        flat = view.flat
        view.pay(1)
        if name in flat.strings and text(view, name):
            return True
        if name in flat.numbers:
            return _any_value(view, number, flat.numbers[name])
        if name in flat.booleans:
            return _any_value(view, boolean, flat.booleans[name])
        base = name.removesuffix(KEYWORD_SUFFIX)
        return (
            base != name and whole is not None and _any_term(view, whole, flat.keyword_values(base))
        )

    return lambda view: any(
        holds(view, name) for field in fields for name in _expand_field(view, field)
    )


def _any_value(view: _DocumentView, test: Callable[[T], bool], values: Collection[T]) -> bool:
    view.pay(len(values))
    return any(map(test, values))


def _any_term(view: _DocumentView, test: TermTest, terms: Collection[str]) -> bool:
    if not isinstance(test, TermMatches) or test.matches is None:
        return _any_value(view, make_term_test(test), terms)
    view.pay(len(terms))
    for term in terms:
        if term.startswith(test.prefix):
            view.pay(test.cost(term))
            if test.matches(term):
                return True
    return False


def _make_text_test(
    predicate: WordTally | WordPhrase | None,
) -> Callable[[_DocumentView, str], bool]:
    match predicate:
        case None:
            return lambda view, path: False
        case WordPhrase():
            return lambda view, path: _match_phrase(predicate, view, path)
        case WordTally():
            return _make_tally_test(predicate)


def _match_phrase(predicate: WordPhrase, view: _DocumentView, path: str) -> bool:
    view.pay(len(predicate.words))
    return is_in_phrase(predicate.words, predicate.slop, view.flat.word_positions(path), view.pay)


def _make_tally_test(predicate: WordTally) -> Callable[[_DocumentView, str], bool]:
    tests = [(_make_word_test(test), weight) for test, weight in predicate.tests]

    def holds(view: _DocumentView, path: str) -> bool:
        found = view.flat.word_positions(path)
        return sum(weight for test, weight in tests if test(view, found)) >= predicate.needed

    return holds


def _make_word_test(test: TermTest) -> Callable[[_DocumentView, Mapping[str, Any]], bool]:
    if isinstance(test, TermIn):
        terms = test.terms
        return lambda view, found: _contains_any(view, terms, found)
    return lambda view, found: _any_term(view, test, found)


def _contains_any(view: _DocumentView, terms: frozenset[str], found: Mapping[str, Any]) -> bool:
    view.pay(len(terms))
    return any(term in found for term in terms)


def make_term_test(test: TermTest | None) -> Callable[[str], bool]:
    """Return the test as a function of one term."""
    match test:
        case None:
            return lambda term: False
        case TermIn(terms):
            return lambda term: term in terms
        case TermBetween():
            return lambda term: _is_term_between(term, test)
        case TermMatches(fits, prefix):
            if fits is None:
                return lambda term: term.startswith(prefix)
            return lambda term: term.startswith(prefix) and fits(term)
    assert_never(test)


def _is_term_between(term: str, test: TermBetween) -> bool:
    low, high = test.low, test.high
    above = low is None or term > low or (test.low_inclusive and term == low)
    return above and (high is None or term < high or (test.high_inclusive and term == high))


def _make_number_test(test: NumberTest | None) -> Callable[[float], bool]:
    match test:
        case None:
            return lambda number: False
        case NumberIn(numbers):
            return lambda number: number in numbers
        case NumberBetween():
            return lambda number: _is_number_between(number, test)
    assert_never(test)


def _is_number_between(number: float, test: NumberBetween) -> bool:
    above = number > test.low or (test.low_inclusive and number == test.low)
    return above and (number < test.high or (test.high_inclusive and number == test.high))
