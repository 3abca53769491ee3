"""Find the documents of clauses in the tables of the embedded index.

Each leaf clause is a few statements; their documents are sets, which boolean clauses combine.
"""

import json
import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from operator import and_

from storage.search.documents import KEYWORD_SUFFIX
from storage.search.embedded.document_sets import (
    DocumentSet,
    SetCache,
    find_weighty,
    list_documents,
    list_flags,
    make_set,
    unite,
)
from storage.search.embedded.fields import last_document
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

# A longer list of numbers is one parameter.
MAX_INLINE_NUMBERS = 50
# Looking one posting up costs as much as passing over so many.
LOOKUP_COST = 4
DOCUMENTS_A_READ = 1_000
"""Documents of which the places of a phrase's words are in memory at once."""
POSTINGS_OF_TERMS = "term t CROSS JOIN posting p ON p.term = t.id"

WeightedTests = tuple[tuple[TermTest, int], ...]
TermsByTest = Mapping[int, Sequence[int]]
"""Numbers of terms by the position of the test that holds for them."""


def format_numbers(found: Iterable[int]) -> tuple[str, SqlParameters]:
    """Return the right side of an IN, with its parameters."""
    numbers = list(found)
    if len(numbers) <= MAX_INLINE_NUMBERS:
        return ",".join(map(str, numbers)), []
    return "SELECT value FROM json_each(?)", [json.dumps(numbers)]


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


@dataclass(slots=True)
class Snapshot:
    """One state of an index file, which a read transaction keeps; finds documents in it.

    `check_time` raises once the time of the request is over; SQLite's statements do so themselves.
    """

    connection: sqlite3.Connection
    cache: SetCache
    check_time: Callable[[], None]
    file: str = field(init=False)
    last: int = field(init=False)

    def __post_init__(self) -> None:
        sql = "SELECT file FROM pragma_database_list WHERE name = 'main'"
        (self.file,) = self.connection.execute(sql).fetchone()
        self.last = last_document(self.connection)

    def find_hits(self, query: Clause) -> DocumentSet:
        """Return the live documents that match."""
        live = self.find_live()
        return live & self._find(query) if not isinstance(query, clauses.MatchAllClause) else live

    def find_live(self) -> DocumentSet:
        """Return the live documents; after a write, only new ones are read if none went."""
        last, known = self.cache.live.get(self.file, (0, 0))
        if last == self.last:
            return known
        if last > self.last:
            last, known = 0, 0
        sql = "SELECT id FROM doc WHERE live = 1 AND id > ?"
        live = known | make_set(self.connection.execute(sql, (last,)), self.last)
        (total,) = self.connection.execute("SELECT count(*) FROM doc WHERE live = 1").fetchone()
        if live.bit_count() != total:
            live = make_set(self.connection.execute(sql, (0,)), self.last)
        self.cache.set_live(self.file, self.last, live)
        return live

    def _find(self, clause: Clause) -> DocumentSet:
        """Return the documents that match; the set may have stubs and documents that are gone."""
        match clause:
            case clauses.MatchAllClause():
                return self.find_live()
            case clauses.MatchNoneClause():
                return 0
            case clauses.BoolClause():
                return self._find_bool(clause)
        self.check_time()
        key = (self.file, self.last, sha256(repr(clause).encode()).digest())
        found = self.cache.get(key)
        if found is None:
            found = self._find_leaf(clause)
            self.cache.put(key, found)
        return found

    def _find_bool(self, clause: clauses.BoolClause) -> DocumentSet:
        needed = [self._find(part) for part in clause.must + clause.filter]
        minimum = clause.required_should()
        if minimum > 0:
            optional = ((self._find(part), 1) for part in clause.should)
            needed.append(find_weighty(optional, minimum))
        found = reduce(and_, needed) if needed else self.find_live()
        return found & ~unite(self._find(part) for part in clause.must_not)

    def _find_leaf(
        self, clause: clauses.IdsClause | clauses.ExistsClause | clauses.LeafClause
    ) -> DocumentSet:
        match clause:
            case clauses.IdsClause():
                uuids = sorted({value.partition(".")[0] for value in clause.values})
                ids = sorted(set(clause.values))
                return self._select(
                    f"SELECT id FROM doc WHERE uuid IN ({placeholders(uuids)})"
                    f" AND uuid || '.' || version IN ({placeholders(ids)})",
                    [*uuids, *ids],
                )
            case clauses.ExistsClause():
                return self._find_existing(clause)
            case _:
                return self._find_values(clause)

    def _select(self, sql: str, parameters: Sequence[str | int | float]) -> DocumentSet:
        return make_set(self.connection.execute(sql, parameters), self.last)

    def _find_existing(self, clause: clauses.ExistsClause) -> DocumentSet:
        found = resolve_fields(self.connection, clause.fields)
        tables = {
            "present WHERE": found["string"] + found["object"],
            "present WHERE whole AND": found["whole"],
            "number WHERE": found["number"] + found["boolean"],
        }
        numbered = {table: format_numbers(paths) for table, paths in tables.items() if paths}
        return unite(
            self._select(f"SELECT doc FROM {table} path IN ({paths})", parameters)
            for table, (paths, parameters) in numbered.items()
        )

    def _find_values(self, clause: clauses.LeafClause) -> DocumentSet:
        """Return the documents of which some field satisfies a leaf clause."""
        predicate = compile_leaf(clause)
        found = resolve_fields(self.connection, clause.fields)
        result = 0
        if predicate.text is not None and found["string"]:
            result |= self._find_text(predicate.text, [2 * path for path in found["string"]])
        if predicate.whole is not None and found["whole"]:
            result |= self._find_terms(predicate.whole, [2 * path + 1 for path in found["whole"]])
        for test, kind in ((predicate.number, "number"), (predicate.boolean, "boolean")):
            if test is not None and found[kind]:
                paths, numbers = format_numbers(found[kind])
                condition, bounds = self._make_condition(test, "value")
                sql = f"SELECT doc FROM number WHERE path IN ({paths}) AND {condition}"
                result |= self._select(sql, numbers + bounds)
        return result

    def _find_terms(self, test: TermTest, fields: Sequence[int]) -> DocumentSet:
        """Return the documents with a term in one of the fields for which the test holds."""
        return make_set(self._read_terms("p.doc", POSTINGS_OF_TERMS, test, fields), self.last)

    def _read_terms(
        self, columns: str, tables: str, test: TermTest, fields: Sequence[int]
    ) -> sqlite3.Cursor:
        numbers, parameters = format_numbers(fields)
        condition, bounds = self._make_condition(test, "t.word")
        sql = f"SELECT {columns} FROM {tables} WHERE t.field IN ({numbers}) AND {condition}"
        return self.connection.execute(sql, parameters + bounds)

    def _make_condition(
        self, test: TermTest | NumberTest, column: str
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
            self.connection.create_function("fits", 1, test.matches)
            conditions.append(f"fits({column})")
        return " AND ".join(conditions), [bound for _, bound in given]

    def _find_text(self, predicate: WordTally | WordPhrase, fields: Sequence[int]) -> DocumentSet:
        """Return the documents with a text for which the predicate holds."""
        if isinstance(predicate, WordPhrase):
            return self._find_phrase(predicate, fields)
        if predicate.needed == 1:
            return unite(self._find_terms(test, fields) for test, _ in predicate.tests)
        return unite(
            self._find_tally(predicate, terms)
            for terms in self._list_terms(predicate.tests, predicate.needed, fields)
        )

    def _list_terms(
        self, tests: WeightedTests, needed: int, fields: Sequence[int]
    ) -> Iterator[TermsByTest]:
        """Iterate over the fields in which enough tests hold for some term."""
        by_field: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        for at, (test, _) in enumerate(tests):
            for number, term in self._read_terms("t.field, t.id", "term t", test, fields):
                by_field[number].setdefault(at, []).append(term)
        for terms in by_field.values():
            if sum(tests[at][1] for at in terms) >= needed:
                self.check_time()
                yield terms

    def _find_tally(self, tally: WordTally, terms: TermsByTest) -> DocumentSet:
        weighted = (
            (self._find_postings(numbers), tally.tests[at][1]) for at, numbers in terms.items()
        )
        return find_weighty(weighted, tally.needed)

    def _find_postings(self, terms: Sequence[int]) -> DocumentSet:
        numbers, parameters = format_numbers(terms)
        return self._select(f"SELECT doc FROM posting WHERE term IN ({numbers})", parameters)

    def _find_phrase(self, phrase: WordPhrase, fields: Sequence[int]) -> DocumentSet:
        words = list(dict.fromkeys(phrase.words))
        tests = tuple((ValueIn(frozenset({word})), 1) for word in words)
        found = []
        for terms in self._list_terms(tests, len(words), fields):
            sets = (self._find_postings(numbers) for numbers in terms.values())
            candidates = list_documents(list_flags(reduce(and_, sets, self.find_live()), self.last))
            by_word = {words[at]: term for at, (term,) in terms.items()}
            for start in range(0, len(candidates), DOCUMENTS_A_READ):
                self.check_time()
                documents = candidates[start : start + DOCUMENTS_A_READ]
                found += self._match_phrase(phrase, by_word, documents)
        return make_set(found, self.last)

    def _match_phrase(
        self, phrase: WordPhrase, terms: Mapping[str, int], documents: Sequence[int]
    ) -> list[tuple[int]]:
        """Return those of the documents, which have all the words, that have the phrase."""
        low, high = documents[0], documents[-1]
        if high - low > LOOKUP_COST * len(documents):
            numbers, parameters = format_numbers(documents)
            condition = f"doc IN ({numbers})"
        else:
            condition, parameters = "doc BETWEEN ? AND ?", [low, high]
        sql = f"SELECT doc, places FROM posting WHERE term = ? AND {condition}"
        places: dict[str, Mapping[int, int | bytes]] = {
            word: dict(self.connection.execute(sql, [term, *parameters]))
            for word, term in terms.items()
        }
        return [
            (document,)
            for document in documents
            if is_in_phrase(
                phrase.words,
                phrase.slop,
                {word: _read_places(found[document]) for word, found in places.items()},
            )
        ]


def _read_places(places: int | bytes) -> Sequence[int]:
    return (places,) if isinstance(places, int) else array("I", places)


def next_prefix(prefix: str) -> str | None:
    """Return the least text greater than all with this prefix; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    point = ord(kept[-1]) + 1
    # No text holds half of a surrogate pair.
    return kept[:-1] + chr(0xE000 if point == 0xD800 else point)
