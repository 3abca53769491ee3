"""A query under construction: named sets of documents, and the algebra that joins them.

Sets are common table expressions rather than nested selects, so that no depth of clauses meets the
limits of SQLite's parser.
"""

import json
import sqlite3
from array import array
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field

from storage.query.asks import Phrase
from storage.query.phrases import in_phrase

Parameters = list[str | int | float]

# SQLite takes 500 selects in one compound; numbers of fields are kept well below its variables.
SETS_AT_ONCE = 200
SHORT_LIST = 50


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


def marks(values: Sized) -> str:
    """As many question marks as there are values."""
    return ",".join("?" * len(values))
