"""A clause compiled to SQL: every clause becomes a named set of documents, joined by set algebra.

Sets are common table expressions rather than nested selects, so that no depth of clauses meets the
limits of SQLite's parser.
"""

import json
import sqlite3
from array import array
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field

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
    asks,
)
from storage.query.clauses import (
    Bool,
    Boosting,
    Clause,
    ConstantScore,
    DisMax,
    Exists,
    Ids,
    Leaf,
    MatchAll,
    MatchNone,
)
from storage.query.evaluate import counting, optional_needed
from storage.query.phrases import in_phrase
from storage.search.paths import Resolved, resolve

Parameters = list[str | int | float]

# SQLite takes 500 selects in one compound; numbers of fields are kept well below its variables.
SETS_AT_ONCE = 200
SHORT_LIST = 50

MATCHING = (
    "SELECT {columns} FROM term t CROSS JOIN posting p ON p.term = t.id"
    " WHERE t.field IN ({fields}) AND {condition}"
)


@dataclass(slots=True)
class Search:
    """A query under construction: its named sets in order, and the functions they call."""

    connection: sqlite3.Connection
    sets: list[str] = field(default_factory=list)
    parameters: Parameters = field(default_factory=list)
    fits: list[Callable[[str], bool]] = field(default_factory=list)
    phrases: list[Phrase] = field(default_factory=list)
    lists: dict[tuple[int, ...], str] = field(default_factory=dict)

    def numbers(self, found: Sequence[int]) -> str:
        """Numbers for the right of an IN; a long list is named once and shared."""
        if len(found) <= SHORT_LIST:
            return ",".join(map(str, found))
        key = tuple(found)
        if key not in self.lists:
            self.lists[key] = self.named("SELECT value FROM json_each(?)", [json.dumps(key)])
        return f"SELECT doc FROM {self.lists[key]}"

    def named(self, sql: str, parameters: Sequence[str | int | float] = ()) -> str:
        """Name the set of documents that a select of one column finds."""
        name = f"s{len(self.sets)}"
        self.sets.append(f"{name} (doc) AS ({sql})")
        self.parameters.extend(parameters)
        return name

    def statement(self, name: str, select: str) -> str:
        """A select over one of the sets, preceded by all of them."""
        return f"WITH {', '.join(self.sets)} {select.format(found=name)}"

    def install(self) -> None:
        """Give the connection the functions that the sets call."""
        fits, phrases = self.fits, self.phrases
        self.connection.create_function("fits", 2, lambda at, word: fits[at](word))
        aggregate = type("Placed", (_Placed,), {"phrases": phrases})
        self.connection.create_aggregate("in_phrase", 3, aggregate)


class _Placed:
    """The aggregate that collects the places of a phrase's words in one text."""

    phrases: Sequence[Phrase]

    def __init__(self) -> None:
        self.at = 0
        self.places: dict[str, Sequence[int]] = {}

    def step(self, at: int, word: str, places: int | bytes) -> None:
        self.at = at
        self.places[word] = [places] if isinstance(places, int) else array("I", places)

    def finalize(self) -> bool:
        phrase = self.phrases[self.at]
        return in_phrase(phrase.words, phrase.slop, self.places)


def find(search: Search, clause: Clause) -> str:
    """Name the set of documents that match; it may hold some twice, and some not live."""
    match clause:
        case MatchAll():
            return search.named("SELECT id FROM doc WHERE live = 1")
        case MatchNone():
            return nothing(search)
        case Ids():
            return _ids(search, clause)
        case Exists():
            return _exists(search, clause)
        case Bool():
            return _bool(search, clause)
        case ConstantScore() | Boosting() | DisMax():
            return joined(search, [find(search, part) for part in counting(clause)], "UNION ALL")
        case _:
            return _leaf(search, clause)


def nothing(search: Search) -> str:
    """Name the empty set."""
    return search.named("SELECT 0 WHERE 0")


def joined(search: Search, names: Sequence[str], operator: str) -> str:
    """Name what UNION ALL or INTERSECT makes of sets."""
    while len(names) > 1:
        groups = [names[at : at + SETS_AT_ONCE] for at in range(0, len(names), SETS_AT_ONCE)]
        sql = [f" {operator} ".join(f"SELECT doc FROM {n}" for n in group) for group in groups]
        names = [search.named(each) for each in sql]
    return names[0] if names else nothing(search)


def _ids(search: Search, clause: Ids) -> str:
    uuids = sorted({value.partition(".")[0] for value in clause.values})
    ids = sorted(set(clause.values))
    return search.named(
        f"SELECT id FROM doc WHERE uuid IN ({_marks(uuids)})"
        f" AND uuid || '.' || version IN ({_marks(ids)})",
        [*uuids, *ids],
    )


def _marks(values: Sized) -> str:
    return ",".join("?" * len(values))


def _exists(search: Search, clause: Exists) -> str:
    found = resolve(search.connection, clause.fields)
    numbers = search.numbers([*found.number, *found.boolean])
    text, whole = search.numbers([*found.text, *found.inside]), search.numbers(found.whole)
    names = [
        search.named(f"SELECT doc FROM present WHERE path IN ({text})"),
        search.named(f"SELECT doc FROM present WHERE whole AND path IN ({whole})"),
        search.named(f"SELECT doc FROM number WHERE path IN ({numbers})"),
    ]
    return joined(search, names, "UNION ALL")


def _bool(search: Search, clause: Bool) -> str:
    needed = [find(search, part) for part in clause.must + clause.filter]
    minimum = optional_needed(clause)
    if minimum > 0:
        needed.append(_enough(search, clause.should, minimum))
    if not needed and clause.must_not and not clause.should and not clause.adjust_pure_negative:
        return nothing(search)
    base = joined(search, needed or [find(search, MatchAll())], "INTERSECT")
    if not clause.must_not:
        return base
    forbidden = joined(search, [find(search, part) for part in clause.must_not], "UNION ALL")
    return search.named(f"SELECT doc FROM {base} EXCEPT SELECT doc FROM {forbidden}")


def _enough(search: Search, should: Sequence[Clause], minimum: int) -> str:
    if minimum > len(should):
        return nothing(search)
    names = [find(search, part) for part in should]
    if minimum == 1:
        return joined(search, names, "UNION ALL")
    each = joined(
        search, [search.named(f"SELECT DISTINCT doc FROM {n}") for n in names], "UNION ALL"
    )
    return search.named(f"SELECT doc FROM {each} GROUP BY doc HAVING count(*) >= {minimum}")


def _leaf(search: Search, clause: Leaf) -> str:
    question = asks(clause)
    found = resolve(search.connection, clause.fields)
    names = []
    if question.text is not None and found.text:
        names.append(_in_text(search, question.text, found))
    if question.whole is not None and found.whole:
        fields = search.numbers([2 * path + 1 for path in found.whole])
        names.append(_matching(search, question.whole, fields))
    for test, paths in ((question.number, found.number), (question.boolean, found.boolean)):
        if test is not None and paths:
            names.append(_of_number(search, test, paths))
    return joined(search, names, "UNION ALL")


def _in_text(search: Search, question: Tally | Phrase, found: Resolved) -> str:
    fields = search.numbers([2 * path for path in found.text])
    if isinstance(question, Phrase):
        return _phrase(search, question, fields)
    if question.needed == 1:
        tests = _united([test for test, _ in question.tests])
        return joined(search, [_matching(search, test, fields) for test in tests], "UNION ALL")
    if question.needed > sum(weight for _, weight in question.tests):
        return nothing(search)
    return _tally(search, question, fields)


def _united(tests: Sequence[TermTest]) -> list[TermTest]:
    """The tests of which any may hold, those for given terms made one."""
    terms = frozenset(term for test in tests if isinstance(test, OneOf) for term in test.terms)
    others: list[TermTest] = [test for test in tests if not isinstance(test, OneOf)]
    return [OneOf(terms), *others] if terms else others


def _matching(search: Search, test: TermTest, fields: str) -> str:
    condition, parameters = _condition(search, test)
    sql = MATCHING.format(columns="p.doc", fields=fields, condition=condition)
    return search.named(sql, parameters)


def _tally(search: Search, question: Tally, fields: str) -> str:
    """Documents that have one text in which enough tests hold."""
    names = []
    for test, weight in question.tests:
        condition, parameters = _condition(search, test)
        columns = f"DISTINCT t.field, p.doc, {weight}"
        sql = MATCHING.format(columns=columns, fields=fields, condition=condition)
        name = f"w{len(search.sets)}"
        search.sets.append(f"{name} (field, doc, weight) AS ({sql})")
        search.parameters.extend(parameters)
        names.append(name)
    return search.named(
        f"SELECT doc FROM {_stacked(search, names)}"
        f" GROUP BY field, doc HAVING sum(weight) >= {question.needed}"
    )


def _stacked(search: Search, names: Sequence[str]) -> str:
    while len(names) > 1:
        groups = [names[at : at + SETS_AT_ONCE] for at in range(0, len(names), SETS_AT_ONCE)]
        stacked = []
        for group in groups:
            stacked.append(f"w{len(search.sets)}")
            sql = " UNION ALL ".join(f"SELECT field, doc, weight FROM {name}" for name in group)
            search.sets.append(f"{stacked[-1]} (field, doc, weight) AS ({sql})")
        names = stacked
    return names[0]


def _phrase(search: Search, phrase: Phrase, fields: str) -> str:
    search.phrases.append(phrase)
    condition, parameters = _condition(search, OneOf(frozenset(phrase.words)))
    words = len(set(phrase.words))
    placed = f"in_phrase({len(search.phrases) - 1}, t.word, p.places)"
    sql = MATCHING.format(columns="p.doc", fields=fields, condition=condition)
    return search.named(
        f"{sql} GROUP BY t.field, p.doc HAVING count(*) = {words} AND {placed}", parameters
    )


def _condition(search: Search, test: TermTest) -> tuple[str, Parameters]:
    """The test as a condition on `t.word` that the index can use."""
    match test:
        case OneOf(terms):
            return f"t.word IN ({_marks(terms)})", Parameters(sorted(terms))
        case Between():
            return _between("t.word", test.low, test.high, test)
        case Fits(fits, prefix):
            condition, parameters = _beginning(prefix)
            if fits is not None:
                search.fits.append(fits)
                condition += f" AND fits({len(search.fits) - 1}, t.word)"
            return condition, parameters


def _beginning(prefix: str) -> tuple[str, Parameters]:
    after = following(prefix)
    if after is None:
        return "t.word >= ?", [prefix]
    return "t.word >= ? AND t.word < ?", [prefix, after]


def following(prefix: str) -> str | None:
    """The least text greater than all that begin with the prefix; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    point = ord(kept[-1]) + 1
    # No text holds half of a surrogate pair.
    return kept[:-1] + chr(0xE000 if point == 0xD800 else point)


def _between(
    column: str, low: str | float | None, high: str | float | None, test: Between | NumberBetween
) -> tuple[str, Parameters]:
    conditions, parameters = ["1"], Parameters()
    if low is not None:
        conditions.append(f"{column} >{'=' if test.low_inclusive else ''} ?")
        parameters.append(low)
    if high is not None:
        conditions.append(f"{column} <{'=' if test.high_inclusive else ''} ?")
        parameters.append(high)
    return " AND ".join(conditions), parameters


def _of_number(search: Search, test: NumberTest, paths: Sequence[int]) -> str:
    match test:
        case NumberIn(numbers):
            condition, parameters = f"value IN ({_marks(numbers)})", Parameters(numbers)
        case NumberBetween():
            condition, parameters = _between("value", test.low, test.high, test)
    sql = f"SELECT doc FROM number WHERE path IN ({search.numbers(paths)}) AND {condition}"
    return search.named(sql, parameters)
