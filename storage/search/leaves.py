"""Leaf clauses as SQL: what is asked of words, whole strings and numbers, put to the tables."""

from collections.abc import Sequence

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
from storage.query.clauses import Leaf
from storage.search.paths import Resolved, resolve
from storage.search.sets import SETS_AT_ONCE, Parameters, Search, joined, marks, nothing

MATCHING = (
    "SELECT {columns} FROM term t CROSS JOIN posting p ON p.term = t.id"
    " WHERE t.field IN ({fields}) AND {condition}"
)


def find_leaf(search: Search, clause: Leaf) -> str:
    """Name the set of documents of which some field answers what the clause asks."""
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
            return f"t.word IN ({marks(terms)})", Parameters(sorted(terms))
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
            condition, parameters = f"value IN ({marks(numbers)})", Parameters(numbers)
        case NumberBetween():
            condition, parameters = _between("value", test.low, test.high, test)
    sql = f"SELECT doc FROM number WHERE path IN ({search.numbers(paths)}) AND {condition}"
    return search.named(sql, parameters)
