"""Compile clauses to SQL over the tables of the embedded index.

Sets are common table expressions, not nested selects, so deep clauses stay within SQLite's parser
limits.
"""

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, field

from storage.search.documents import KEYWORD_SUFFIX
from storage.search.evaluator import is_in_phrase, make_name_matcher
from storage.search.grammar import clauses
from storage.search.grammar.clauses import Clause, QueryField
from storage.search.predicates import (
    NumberTest,
    TermMatches,
    TermTest,
    ValueBetween,
    ValueIn,
    WordPhrase,
    WordTally,
    compile_leaf,
)

SqlParameters = list[str | int | float]

# SQLite takes 500 selects in one compound; numbers of fields are kept well below its variables.
MAX_COMPOUND_SETS = 200
MAX_INLINE_NUMBERS = 50


@dataclass(slots=True)
class SetQuery:
    """A query under construction: its named sets in order, and the functions they call."""

    connection: sqlite3.Connection
    sets: list[str] = field(default_factory=list)
    parameters: SqlParameters = field(default_factory=list)
    fits: list[Callable[[str], bool]] = field(default_factory=list)
    phrases: list[WordPhrase] = field(default_factory=list)
    lists: dict[tuple[int, ...], str] = field(default_factory=dict)

    def numbers(self, found: Iterable[int]) -> str:
        """Return the right side of an IN; a long list is named once and shared."""
        key = tuple(found)
        if len(key) <= MAX_INLINE_NUMBERS:
            return ",".join(map(str, key))
        if key not in self.lists:
            self.lists[key] = self.name_set("SELECT value FROM json_each(?)", [json.dumps(key)])
        return f"SELECT doc FROM {self.lists[key]}"

    def name_set(
        self, sql: str, parameters: Sequence[str | int | float] = (), columns: str = "doc"
    ) -> str:
        """Name the set of the rows of a select."""
        name = f"s{len(self.sets)}"
        self.sets.append(f"{name} ({columns}) AS ({sql})")
        self.parameters.extend(parameters)
        return name

    def join(self, names: Sequence[str], operator: str = "UNION ALL", columns: str = "doc") -> str:
        """Name the UNION ALL or INTERSECT of sets."""
        while len(names) > 1:
            starts = range(0, len(names), MAX_COMPOUND_SETS)
            groups = [names[at : at + MAX_COMPOUND_SETS] for at in starts]
            selects = [[f"SELECT * FROM {name}" for name in group] for group in groups]
            names = [self.name_set(f" {operator} ".join(s), columns=columns) for s in selects]
        return names[0] if names else self.name_set("SELECT 0 WHERE 0")

    def statement(self, name: str, select: str) -> str:
        """Return a select over a set, preceded by all sets."""
        return f"WITH {', '.join(self.sets)} {select.format(found=name)}"

    def install(self) -> None:
        """Register the functions that the sets call."""
        fits, phrases = self.fits, self.phrases
        self.connection.create_function("fits", 2, lambda at, word: fits[at](word))
        aggregate = type("Placed", (_PhraseAggregate,), {"phrases": phrases})
        self.connection.create_aggregate("in_phrase", 3, aggregate)


class _PhraseAggregate:
    """Aggregate that collects the positions of a phrase's words in one text."""

    phrases: Sequence[WordPhrase]

    def __init__(self) -> None:
        self.at = 0
        self.places: dict[str, Sequence[int]] = {}

    def step(self, at: int, word: str, places: int | bytes) -> None:
        self.at = at
        self.places[word] = [places] if isinstance(places, int) else array("I", places)

    def finalize(self) -> bool:
        phrase = self.phrases[self.at]
        return is_in_phrase(phrase.words, phrase.slop, self.places)


def placeholders(values: Sized) -> str:
    """Return one question mark per value."""
    return ",".join("?" * len(values))


PATH_KINDS = ("string", "whole", "number", "boolean", "object")


def resolve_fields(
    connection: sqlite3.Connection, fields: Iterable[QueryField]
) -> dict[str, list[int]]:
    """Resolve fields and patterns to paths by kind; `whole` are the keywords of strings."""
    found: dict[str, set[int]] = {kind: set() for kind in PATH_KINDS}
    for each in fields:
        sql = "SELECT id, name, kind FROM path"
        if each.pattern:
            fits, rows = make_name_matcher(each.name), connection.execute(sql)
        else:
            names = (each.name, each.name.removesuffix(KEYWORD_SUFFIX))
            fits, rows = each.name.__eq__, connection.execute(f"{sql} WHERE name IN (?, ?)", names)
        for number, name, kind in rows:
            if fits(name):
                found[kind].add(number)
            if kind == "string" and fits(name + KEYWORD_SUFFIX):
                found["whole"].add(number)
    return {kind: sorted(numbers) for kind, numbers in found.items()}


MATCHING_SQL = (
    "SELECT {columns} FROM term t CROSS JOIN posting p ON p.term = t.id"
    " WHERE t.field IN ({fields}) AND {condition}"
)


def compile_leaf_set(search: SetQuery, clause: clauses.LeafClause) -> str:
    """Name the set of documents of which some field satisfies a leaf clause."""
    predicate = compile_leaf(clause)
    found = resolve_fields(search.connection, clause.fields)
    names = []
    if predicate.text is not None and found["string"]:
        fields = search.numbers(2 * path for path in found["string"])
        names.append(_compile_text(search, predicate.text, fields))
    if predicate.whole is not None and found["whole"]:
        fields = search.numbers(2 * path + 1 for path in found["whole"])
        names.append(_compile_term_set(search, predicate.whole, fields))
    for test, kind in ((predicate.number, "number"), (predicate.boolean, "boolean")):
        if test is not None and found[kind]:
            condition, parameters = _make_condition(search, test, "value")
            fields = search.numbers(found[kind])
            sql = f"SELECT doc FROM number WHERE path IN ({fields}) AND {condition}"
            names.append(search.name_set(sql, parameters))
    return search.join(names)


def _compile_text(search: SetQuery, predicate: WordTally | WordPhrase, fields: str) -> str:
    if isinstance(predicate, WordPhrase):
        return _compile_phrase(search, predicate, fields)
    if predicate.needed == 1:
        return search.join([_compile_term_set(search, test, fields) for test, _ in predicate.tests])
    if predicate.needed > sum(weight for _, weight in predicate.tests):
        return search.join([])
    return _compile_tally(search, predicate, fields)


def _compile_term_set(
    search: SetQuery, test: TermTest, fields: str, select: str = "p.doc", columns: str = "doc"
) -> str:
    condition, parameters = _make_condition(search, test, "t.word")
    sql = MATCHING_SQL.format(columns=select, fields=fields, condition=condition)
    return search.name_set(sql, parameters, columns)


def _compile_tally(search: SetQuery, predicate: WordTally, fields: str) -> str:
    """Name the documents with a text in which enough tests hold."""
    columns = "field, doc, weight"
    names = [
        _compile_term_set(search, test, fields, f"DISTINCT t.field, p.doc, {weight}", columns)
        for test, weight in predicate.tests
    ]
    return search.name_set(
        f"SELECT doc FROM {search.join(names, columns=columns)}"
        f" GROUP BY field, doc HAVING sum(weight) >= {predicate.needed}"
    )


def _compile_phrase(search: SetQuery, phrase: WordPhrase, fields: str) -> str:
    search.phrases.append(phrase)
    condition, parameters = _make_condition(search, ValueIn(frozenset(phrase.words)), "t.word")
    words = len(set(phrase.words))
    placed = f"in_phrase({len(search.phrases) - 1}, t.word, p.places)"
    sql = MATCHING_SQL.format(columns="p.doc", fields=fields, condition=condition)
    return search.name_set(
        f"{sql} GROUP BY t.field, p.doc HAVING count(*) = {words} AND {placed}", parameters
    )


def _make_condition(
    search: SetQuery, test: TermTest | NumberTest, column: str
) -> tuple[str, SqlParameters]:
    """Return the test as a condition on a column that the index can use."""
    match test:
        case ValueIn(values):
            return f"{column} IN ({placeholders(values)})", SqlParameters(sorted(values))
        case ValueBetween(low, high):
            below, above = test.low_inclusive, test.high_inclusive
            bounds = [(">=" if below else ">", low), ("<=" if above else "<", high)]
        case TermMatches(_, prefix):
            bounds = [(">=", prefix), ("<", next_prefix(prefix))]
    given = [(sign, bound) for sign, bound in bounds if bound is not None]
    conditions = [f"{column} {sign} ?" for sign, _ in given]
    if isinstance(test, TermMatches) and test.matches is not None:
        search.fits.append(test.matches)
        conditions.append(f"fits({len(search.fits) - 1}, {column})")
    return " AND ".join(conditions), [bound for _, bound in given]


def next_prefix(prefix: str) -> str | None:
    """Return the least text greater than all with this prefix; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    point = ord(kept[-1]) + 1
    # No text holds half of a surrogate pair.
    return kept[:-1] + chr(0xE000 if point == 0xD800 else point)


def compile_set(search: SetQuery, clause: Clause) -> str:
    """Name the set of matching documents; may hold duplicates and stubs."""
    match clause:
        case clauses.MatchAllClause():
            return search.name_set("SELECT id FROM doc WHERE live = 1")
        case clauses.MatchNoneClause():
            return search.join([])
        case clauses.IdsClause():
            uuids = sorted({value.partition(".")[0] for value in clause.values})
            ids = sorted(set(clause.values))
            return search.name_set(
                f"SELECT id FROM doc WHERE uuid IN ({placeholders(uuids)})"
                f" AND uuid || '.' || version IN ({placeholders(ids)})",
                [*uuids, *ids],
            )
        case clauses.ExistsClause():
            return _compile_exists(search, clause)
        case clauses.BoolClause():
            return _compile_bool(search, clause)
        case _:
            return compile_leaf_set(search, clause)


def _compile_exists(search: SetQuery, clause: clauses.ExistsClause) -> str:
    found = resolve_fields(search.connection, clause.fields)
    tables = {
        "present WHERE": found["string"] + found["object"],
        "present WHERE whole AND": found["whole"],
        "number WHERE": found["number"] + found["boolean"],
    }
    return search.join(
        [
            search.name_set(f"SELECT doc FROM {table} path IN ({search.numbers(paths)})")
            for table, paths in tables.items()
        ]
    )


def _compile_bool(search: SetQuery, clause: clauses.BoolClause) -> str:
    needed = [compile_set(search, part) for part in clause.must + clause.filter]
    minimum = clause.required_should()
    if minimum > 0:
        needed.append(_compile_should(search, clause.should, minimum))
    base = search.join(needed or [compile_set(search, clauses.MatchAllClause())], "INTERSECT")
    if not clause.must_not:
        return base
    forbidden = search.join([compile_set(search, part) for part in clause.must_not])
    return search.name_set(f"SELECT doc FROM {base} EXCEPT SELECT doc FROM {forbidden}")


def _compile_should(search: SetQuery, should: Sequence[Clause], minimum: int) -> str:
    if minimum > len(should):
        return search.join([])
    names = [compile_set(search, part) for part in should]
    if minimum == 1:
        return search.join(names)
    each = search.join([search.name_set(f"SELECT DISTINCT doc FROM {name}") for name in names])
    return search.name_set(f"SELECT doc FROM {each} GROUP BY doc HAVING count(*) >= {minimum}")
