"""Fields of a query found among the paths that the indexed documents have."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from storage.query.analysis import KEYWORD
from storage.query.clauses import Field
from storage.query.evaluate import name_matcher


@dataclass(frozen=True, slots=True)
class Resolved:
    """Numbers of paths, by how their leaves are to be looked at."""

    text: Sequence[int]
    whole: Sequence[int]
    number: Sequence[int]
    boolean: Sequence[int]
    inside: Sequence[int]


VIEWS = {"string": "text", "number": "number", "boolean": "boolean", "object": "inside"}


def resolve(connection: sqlite3.Connection, fields: Iterable[Field]) -> Resolved:
    """The paths that fields and patterns stand for, `inside` those of objects."""
    found: dict[str, set[int]] = {view: set() for view in ("whole", *VIEWS.values())}
    for field in fields:
        fits = name_matcher(field.name) if field.pattern else field.name.__eq__
        for number, name, kind in _candidates(connection, field):
            for alias, view in _names(name, kind):
                if fits(alias):
                    found[view].add(number)
    return Resolved(**{view: sorted(numbers) for view, numbers in found.items()})


def _names(name: str, kind: str) -> Iterator[tuple[str, str]]:
    """The names under which a path of a kind can be found, each with how."""
    yield name, VIEWS[kind]
    if kind == "string":
        yield name + KEYWORD, "whole"


def _candidates(connection: sqlite3.Connection, field: Field) -> list[tuple[int, str, str]]:
    """The paths that may be meant: all of them for a pattern, else the field and its text."""
    if field.pattern:
        return connection.execute("SELECT id, name, kind FROM path").fetchall()
    return connection.execute(
        "SELECT id, name, kind FROM path WHERE name IN (?, ?)",
        (field.name, field.name.removesuffix(KEYWORD)),
    ).fetchall()
