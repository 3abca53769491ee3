"""Compile clauses to SQL over the tables of the embedded index.

Sets are common table expressions, not nested selects, so deep clauses stay within SQLite's parser
limits.
"""

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field

from storage.search.documents import KEYWORD_SUFFIX
from storage.search.evaluator import (
    count_required_should,
    deciding_clauses,
    is_in_phrase,
    make_name_matcher,
)
from storage.search.grammar.clauses import (
    BoolClause,
    BoostingClause,
    Clause,
    ConstantScoreClause,
    DisMaxClause,
    ExistsClause,
    IdsClause,
    LeafClause,
    MatchAllClause,
    MatchNoneClause,
    QueryField,
)
from storage.search.predicates import (
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

    def numbers(self, found: Sequence[int]) -> str:
        """Return the right side of an IN; a long list is named once and shared."""
        if len(found) <= MAX_INLINE_NUMBERS:
            return ",".join(map(str, found))
        key = tuple(found)
        if key not in self.lists:
            self.lists[key] = self.name_set("SELECT value FROM json_each(?)", [json.dumps(key)])
        return f"SELECT doc FROM {self.lists[key]}"

    def name_set(self, sql: str, parameters: Sequence[str | int | float] = ()) -> str:
        """Name the set of documents of a select of one column."""
        name = f"s{len(self.sets)}"
        self.sets.append(f"{name} (doc) AS ({sql})")
        self.parameters.extend(parameters)
        return name

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


def name_empty_set(search: SetQuery) -> str:
    """Name the empty set."""
    return search.name_set("SELECT 0 WHERE 0")


def join_sets(search: SetQuery, names: Sequence[str], operator: str) -> str:
    """Name the UNION ALL or INTERSECT of sets."""
    while len(names) > 1:
        groups = [
            names[at : at + MAX_COMPOUND_SETS] for at in range(0, len(names), MAX_COMPOUND_SETS)
        ]
        sql = [f" {operator} ".join(f"SELECT doc FROM {n}" for n in group) for group in groups]
        names = [search.name_set(each) for each in sql]
    return names[0] if names else name_empty_set(search)


def placeholders(values: Sized) -> str:
    """Return one question mark per value."""
    return ",".join("?" * len(values))


@dataclass(frozen=True, slots=True)
class ResolvedPaths:
    """Numbers of paths by the way their leaves are searched."""

    text: Sequence[int]
    whole: Sequence[int]
    number: Sequence[int]
    boolean: Sequence[int]
    inside: Sequence[int]


KIND_VIEWS = {"string": "text", "number": "number", "boolean": "boolean", "object": "inside"}


def resolve_fields(connection: sqlite3.Connection, fields: Iterable[QueryField]) -> ResolvedPaths:
    """Resolve fields and patterns to paths; `inside` are those of objects."""
    found: dict[str, set[int]] = {view: set() for view in ("whole", *KIND_VIEWS.values())}
    for query_field in fields:
        fits = (
            make_name_matcher(query_field.name) if query_field.pattern else query_field.name.__eq__
        )
        for number, name, kind in _find_candidates(connection, query_field):
            for alias, view in _path_names(name, kind):
                if fits(alias):
                    found[view].add(number)
    return ResolvedPaths(**{view: sorted(numbers) for view, numbers in found.items()})


def _path_names(name: str, kind: str) -> Iterator[tuple[str, str]]:
    """Iterate over the names under which a path can be found, each with its kind of search."""
    yield name, KIND_VIEWS[kind]
    if kind == "string":
        yield name + KEYWORD_SUFFIX, "whole"


def _find_candidates(
    connection: sqlite3.Connection, field: QueryField
) -> list[tuple[int, str, str]]:
    """Return the candidate paths: all for a pattern, else the field and its text."""
    if field.pattern:
        return connection.execute("SELECT id, name, kind FROM path").fetchall()
    return connection.execute(
        "SELECT id, name, kind FROM path WHERE name IN (?, ?)",
        (field.name, field.name.removesuffix(KEYWORD_SUFFIX)),
    ).fetchall()


MATCHING_SQL = (
    "SELECT {columns} FROM term t CROSS JOIN posting p ON p.term = t.id"
    " WHERE t.field IN ({fields}) AND {condition}"
)


def compile_leaf_set(search: SetQuery, clause: LeafClause) -> str:
    """Name the set of documents of which some field satisfies a leaf clause."""
    question = compile_leaf(clause)
    found = resolve_fields(search.connection, clause.fields)
    names = []
    if question.text is not None and found.text:
        names.append(_compile_text(search, question.text, found))
    if question.whole is not None and found.whole:
        fields = search.numbers([2 * path + 1 for path in found.whole])
        names.append(_compile_term_set(search, question.whole, fields))
    for test, paths in ((question.number, found.number), (question.boolean, found.boolean)):
        if test is not None and paths:
            names.append(_compile_number(search, test, paths))
    return join_sets(search, names, "UNION ALL")


def _compile_text(search: SetQuery, question: WordTally | WordPhrase, found: ResolvedPaths) -> str:
    fields = search.numbers([2 * path for path in found.text])
    if isinstance(question, WordPhrase):
        return _compile_phrase(search, question, fields)
    if question.needed == 1:
        tests = _merge_terms([test for test, _ in question.tests])
        return join_sets(
            search, [_compile_term_set(search, test, fields) for test in tests], "UNION ALL"
        )
    if question.needed > sum(weight for _, weight in question.tests):
        return name_empty_set(search)
    return _compile_tally(search, question, fields)


def _merge_terms(tests: Sequence[TermTest]) -> list[TermTest]:
    """Merge alternative tests: all tests for given terms become one."""
    terms = frozenset(term for test in tests if isinstance(test, TermIn) for term in test.terms)
    others: list[TermTest] = [test for test in tests if not isinstance(test, TermIn)]
    return [TermIn(terms), *others] if terms else others


def _compile_term_set(search: SetQuery, test: TermTest, fields: str) -> str:
    condition, parameters = _make_condition(search, test)
    sql = MATCHING_SQL.format(columns="p.doc", fields=fields, condition=condition)
    return search.name_set(sql, parameters)


def _compile_tally(search: SetQuery, question: WordTally, fields: str) -> str:
    """Name the documents with a text in which enough tests hold."""
    names = []
    for test, weight in question.tests:
        condition, parameters = _make_condition(search, test)
        columns = f"DISTINCT t.field, p.doc, {weight}"
        sql = MATCHING_SQL.format(columns=columns, fields=fields, condition=condition)
        name = f"w{len(search.sets)}"
        search.sets.append(f"{name} (field, doc, weight) AS ({sql})")
        search.parameters.extend(parameters)
        names.append(name)
    return search.name_set(
        f"SELECT doc FROM {_stack_sets(search, names)}"
        f" GROUP BY field, doc HAVING sum(weight) >= {question.needed}"
    )


def _stack_sets(search: SetQuery, names: Sequence[str]) -> str:
    while len(names) > 1:
        groups = [
            names[at : at + MAX_COMPOUND_SETS] for at in range(0, len(names), MAX_COMPOUND_SETS)
        ]
        stacked = []
        for group in groups:
            stacked.append(f"w{len(search.sets)}")
            sql = " UNION ALL ".join(f"SELECT field, doc, weight FROM {name}" for name in group)
            search.sets.append(f"{stacked[-1]} (field, doc, weight) AS ({sql})")
        names = stacked
    return names[0]


def _compile_phrase(search: SetQuery, phrase: WordPhrase, fields: str) -> str:
    search.phrases.append(phrase)
    condition, parameters = _make_condition(search, TermIn(frozenset(phrase.words)))
    words = len(set(phrase.words))
    placed = f"in_phrase({len(search.phrases) - 1}, t.word, p.places)"
    sql = MATCHING_SQL.format(columns="p.doc", fields=fields, condition=condition)
    return search.name_set(
        f"{sql} GROUP BY t.field, p.doc HAVING count(*) = {words} AND {placed}", parameters
    )


def _make_condition(search: SetQuery, test: TermTest) -> tuple[str, SqlParameters]:
    """Return the test as a condition on `t.word` that the index can use."""
    match test:
        case TermIn(terms):
            return f"t.word IN ({placeholders(terms)})", SqlParameters(sorted(terms))
        case TermBetween():
            return _make_range_condition("t.word", test.low, test.high, test)
        case TermMatches(fits, prefix):
            condition, parameters = _make_prefix_condition(prefix)
            if fits is not None:
                search.fits.append(fits)
                condition += f" AND fits({len(search.fits) - 1}, t.word)"
            return condition, parameters


def _make_prefix_condition(prefix: str) -> tuple[str, SqlParameters]:
    after = next_prefix(prefix)
    if after is None:
        return "t.word >= ?", [prefix]
    return "t.word >= ? AND t.word < ?", [prefix, after]


def next_prefix(prefix: str) -> str | None:
    """Return the least text greater than all with this prefix; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    point = ord(kept[-1]) + 1
    # No text holds half of a surrogate pair.
    return kept[:-1] + chr(0xE000 if point == 0xD800 else point)


def _make_range_condition(
    column: str,
    low: str | float | None,
    high: str | float | None,
    test: TermBetween | NumberBetween,
) -> tuple[str, SqlParameters]:
    conditions, parameters = ["1"], SqlParameters()
    if low is not None:
        conditions.append(f"{column} >{'=' if test.low_inclusive else ''} ?")
        parameters.append(low)
    if high is not None:
        conditions.append(f"{column} <{'=' if test.high_inclusive else ''} ?")
        parameters.append(high)
    return " AND ".join(conditions), parameters


def _compile_number(search: SetQuery, test: NumberTest, paths: Sequence[int]) -> str:
    match test:
        case NumberIn(numbers):
            condition, parameters = f"value IN ({placeholders(numbers)})", SqlParameters(numbers)
        case NumberBetween():
            condition, parameters = _make_range_condition("value", test.low, test.high, test)
    sql = f"SELECT doc FROM number WHERE path IN ({search.numbers(paths)}) AND {condition}"
    return search.name_set(sql, parameters)


def compile_set(search: SetQuery, clause: Clause) -> str:
    """Name the set of matching documents; may hold duplicates and stubs."""
    match clause:
        case MatchAllClause():
            return search.name_set("SELECT id FROM doc WHERE live = 1")
        case MatchNoneClause():
            return name_empty_set(search)
        case IdsClause():
            return _compile_ids(search, clause)
        case ExistsClause():
            return _compile_exists(search, clause)
        case BoolClause():
            return _compile_bool(search, clause)
        case ConstantScoreClause() | BoostingClause() | DisMaxClause():
            return join_sets(
                search,
                [compile_set(search, part) for part in deciding_clauses(clause)],
                "UNION ALL",
            )
        case _:
            return compile_leaf_set(search, clause)


def _compile_ids(search: SetQuery, clause: IdsClause) -> str:
    uuids = sorted({value.partition(".")[0] for value in clause.values})
    ids = sorted(set(clause.values))
    return search.name_set(
        f"SELECT id FROM doc WHERE uuid IN ({placeholders(uuids)})"
        f" AND uuid || '.' || version IN ({placeholders(ids)})",
        [*uuids, *ids],
    )


def _compile_exists(search: SetQuery, clause: ExistsClause) -> str:
    found = resolve_fields(search.connection, clause.fields)
    numbers = search.numbers([*found.number, *found.boolean])
    text, whole = search.numbers([*found.text, *found.inside]), search.numbers(found.whole)
    names = [
        search.name_set(f"SELECT doc FROM present WHERE path IN ({text})"),
        search.name_set(f"SELECT doc FROM present WHERE whole AND path IN ({whole})"),
        search.name_set(f"SELECT doc FROM number WHERE path IN ({numbers})"),
    ]
    return join_sets(search, names, "UNION ALL")


def _compile_bool(search: SetQuery, clause: BoolClause) -> str:
    needed = [compile_set(search, part) for part in clause.must + clause.filter]
    minimum = count_required_should(clause)
    if minimum > 0:
        needed.append(_compile_should(search, clause.should, minimum))
    if not needed and clause.must_not and not clause.should and not clause.adjust_pure_negative:
        return name_empty_set(search)
    base = join_sets(search, needed or [compile_set(search, MatchAllClause())], "INTERSECT")
    if not clause.must_not:
        return base
    forbidden = join_sets(
        search, [compile_set(search, part) for part in clause.must_not], "UNION ALL"
    )
    return search.name_set(f"SELECT doc FROM {base} EXCEPT SELECT doc FROM {forbidden}")


def _compile_should(search: SetQuery, should: Sequence[Clause], minimum: int) -> str:
    if minimum > len(should):
        return name_empty_set(search)
    names = [compile_set(search, part) for part in should]
    if minimum == 1:
        return join_sets(search, names, "UNION ALL")
    each = join_sets(
        search, [search.name_set(f"SELECT DISTINCT doc FROM {n}") for n in names], "UNION ALL"
    )
    return search.name_set(f"SELECT doc FROM {each} GROUP BY doc HAVING count(*) >= {minimum}")
