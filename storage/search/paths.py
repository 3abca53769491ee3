"""Fields of a query found among the paths that the indexed documents have."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from storage.query.analysis import KEYWORD, parents
from storage.query.clauses import Field
from storage.query.evaluate import name_matcher

Names = Callable[[str, str], Iterator[tuple[str, str]]]
"""The names under which a path of a kind can be found, each with how: as text, whole, and so on."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Numbers of paths, by how their leaves are to be looked at."""

    text: Sequence[int]
    whole: Sequence[int]
    number: Sequence[int]
    boolean: Sequence[int]


VIEWS = {"string": "text", "number": "number", "boolean": "boolean"}


def resolve(connection: sqlite3.Connection, fields: Iterable[Field]) -> Resolved:
    """The paths that the fields of a leaf clause stand for."""
    return _resolved(connection, fields, _leaf_names)


def resolve_existing(connection: sqlite3.Connection, fields: Iterable[Field]) -> Resolved:
    """The paths of which any shows that one of the fields exists: those below it count."""
    return _resolved(connection, fields, _existing_names)


def _leaf_names(name: str, kind: str) -> Iterator[tuple[str, str]]:
    yield name, VIEWS[kind]
    if kind == "string":
        yield name + KEYWORD, "whole"


def _existing_names(name: str, kind: str) -> Iterator[tuple[str, str]]:
    yield from _leaf_names(name, kind)
    for parent in parents(name):
        yield parent, VIEWS[kind]


def _resolved(connection: sqlite3.Connection, fields: Iterable[Field], names: Names) -> Resolved:
    found: dict[str, set[int]] = {view: set() for view in ("text", "whole", "number", "boolean")}
    for field in fields:
        fits = name_matcher(field.name) if field.pattern else field.name.__eq__
        for number, name, kind in _candidates(connection, field):
            for alias, view in names(name, kind):
                if fits(alias):
                    found[view].add(number)
    return Resolved(**{view: sorted(numbers) for view, numbers in found.items()})


def _candidates(connection: sqlite3.Connection, field: Field) -> list[tuple[int, str, str]]:
    """The paths that may be meant: all of them for a pattern, else the field, its text and those
    below it."""
    if field.pattern:
        return connection.execute("SELECT id, name, kind FROM path").fetchall()
    base = field.name.removesuffix(KEYWORD)
    # Everything below begins with the name and a dot; a slash is the next character after a dot.
    return connection.execute(
        "SELECT id, name, kind FROM path WHERE name IN (?, ?) OR (name > ? AND name < ?)",
        (field.name, base, f"{field.name}.", f"{field.name}/"),
    ).fetchall()
