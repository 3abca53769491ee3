"""Evaluate a query on one document within a step budget."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

from storage.errors import TimeLimitExceeded
from storage.search.documents import KEYWORD_SUFFIX, FlatDocument, flatten_document
from storage.search.grammar import clauses
from storage.search.grammar.clauses import Clause, QueryField, QueryFields
from storage.search.patterns import escape_code_point, make_matcher
from storage.search.predicates import (
    LeafPredicate,
    NumberTest,
    TermMatches,
    TermTest,
    ValueIn,
    WordPhrase,
    WordTally,
    compile_leaf,
)

MAX_PHRASE_STEPS = 1_000_000
"""Steps of one phrase search in one text: a text that repeats a word thousands of times, but never
the phrase, would take hours."""


PaySteps = Callable[[int], None]
"""Spends steps of a budget; raises if too few are left."""


class QueryBudget:
    """Steps that are left; TimeLimitExceeded if there are too few."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def pay(self, steps: int, /) -> None:
        """Spend steps."""
        self._left -= steps
        if self._left < 0:
            raise TimeLimitExceeded(
                "The query needs more steps on one document than allowed: simplify it."
            )


def is_in_phrase(
    words: Sequence[str],
    slop: int,
    positions: Mapping[str, Sequence[int]],
    pay: PaySteps | None = None,
) -> bool:
    """Return whether each word has its own position such that all are within `slop` of the
    phrase.

    TimeLimitExceeded if that takes more steps than the budget has.
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


class DocumentMatcher(Protocol):
    """Returns whether a document matches, within a budget (default: that of one query)."""

    def __call__(
        self, document: Mapping[str, Any] | FlatDocument, pay: PaySteps | None = None
    ) -> bool: ...


class _DocumentView(NamedTuple):
    """One document as a query sees it, with the budget of the query."""

    flat: FlatDocument
    pay: PaySteps


ClauseTest = Callable[[_DocumentView], bool]


def compile_query(clause: Clause) -> DocumentMatcher:
    """Compile a query to a function of a document; pass it flattened if several queries share it.

    The function raises TimeLimitExceeded for what would take very long, since other queries wait.
    """
    holds = _compile_clause(clause)

    def matches(document: Mapping[str, Any] | FlatDocument, pay: PaySteps | None = None) -> bool:
        flat = document if isinstance(document, FlatDocument) else flatten_document(document)
        return holds(_DocumentView(flat, pay or QueryBudget(MAX_QUERY_STEPS).pay))

    return matches


def _compile_clause(clause: Clause) -> ClauseTest:
    match clause:
        case clauses.MatchAllClause() | clauses.MatchNoneClause():
            every = isinstance(clause, clauses.MatchAllClause)
            return lambda view: every
        case clauses.IdsClause():
            ids = frozenset(clause.values)
            return lambda view: view.flat.id in ids
        case clauses.ExistsClause():
            return lambda view: any(_has_field(view, field) for field in clause.fields)
        case clauses.BoolClause():
            return _compile_bool(clause)
        case _:
            return _compile_leaf_test(clause.fields, compile_leaf(clause))


def _compile_bool(clause: clauses.BoolClause) -> ClauseTest:
    needed = [_compile_clause(part) for part in clause.must + clause.filter]
    optional = [_compile_clause(part) for part in clause.should]
    forbidden = [_compile_clause(part) for part in clause.must_not]
    minimum = clause.required_should()

    def holds(view: _DocumentView) -> bool:
        view.pay(1)
        if not all(part(view) for part in needed) or any(part(view) for part in forbidden):
            return False
        held = (part for part in optional if part(view))
        return minimum <= 0 or len(list(islice(held, minimum))) == minimum

    return holds


def _expand_field(view: _DocumentView, field: QueryField) -> Iterator[str]:
    """Iterate over the document's fields that a field or pattern names."""
    if not field.pattern:
        yield field.name
        return
    flat = view.flat
    view.pay(sum(1 + len(path) // NAME_CHARACTERS_PER_STEP for path in flat.paths()))
    fits = make_name_matcher(field.name)
    yield from filter(fits, flat.paths())
    yield from filter(fits, (path + KEYWORD_SUFFIX for path in flat.strings))


@lru_cache(maxsize=4096)
def make_name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a matcher of field names; only `*` is special."""
    if pattern == "*":
        # The field of most queries: it matches each name of each document.
        return lambda _name: True
    return make_matcher(
        ".*".join("".join(map(escape_code_point, part)) for part in pattern.split("*"))
    )


def _has_field(view: _DocumentView, field: QueryField) -> bool:
    view.pay(1)
    names = view.flat.existing_names
    if not field.pattern:
        return field.name in names
    view.pay(sum(1 + len(name) // NAME_CHARACTERS_PER_STEP for name in names))
    return any(map(make_name_matcher(field.name), names))


def _compile_leaf_test(fields: QueryFields, predicate: LeafPredicate) -> ClauseTest:
    text, whole = predicate.text, predicate.whole

    def holds(view: _DocumentView, name: str) -> bool:
        flat = view.flat
        view.pay(1)
        if name in flat.strings and text and _match_text(view, text, flat.word_positions(name)):
            return True
        if name in flat.numbers:
            return _any_value(view, predicate.number, flat.numbers[name])
        if name in flat.booleans:
            return _any_value(view, predicate.boolean, flat.booleans[name])
        base = name.removesuffix(KEYWORD_SUFFIX)
        return base != name and _any_value(view, whole, flat.keyword_values(base))

    return lambda view: any(
        holds(view, name) for field in fields for name in _expand_field(view, field)
    )


def _match_text(
    view: _DocumentView, predicate: WordTally | WordPhrase, found: Mapping[str, list[int]]
) -> bool:
    if isinstance(predicate, WordPhrase):
        view.pay(len(predicate.words))
        return is_in_phrase(predicate.words, predicate.slop, found, view.pay)
    return predicate.needed <= sum(
        weight for test, weight in predicate.tests if _any_word(view, test, found)
    )


def _any_word(view: _DocumentView, test: TermTest, found: Mapping[str, list[int]]) -> bool:
    if isinstance(test, ValueIn):
        view.pay(len(test.values))
        return any(word in found for word in test.values)
    return _any_value(view, test, found)


def _any_value(
    view: _DocumentView, test: TermTest | NumberTest | None, values: Collection[Any]
) -> bool:
    if test is None:
        return False
    view.pay(len(values))
    if not isinstance(test, TermMatches) or test.matches is None:
        return any(map(test.fits, values))
    for term in values:
        if term.startswith(test.prefix):
            view.pay(test.cost(term))
            if test.matches(term):
                return True
    return False
