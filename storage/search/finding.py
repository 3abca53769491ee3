"""A clause compiled to SQL: each becomes a named set of documents, joined by set algebra."""

from collections.abc import Sequence

from storage.query.clauses import (
    Bool,
    Boosting,
    Clause,
    ConstantScore,
    DisMax,
    Exists,
    Ids,
    MatchAll,
    MatchNone,
)
from storage.query.evaluate import counting, optional_needed
from storage.search.leaves import find_leaf
from storage.search.paths import resolve
from storage.search.sets import Search, joined, marks, nothing


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
            return find_leaf(search, clause)


def _ids(search: Search, clause: Ids) -> str:
    uuids = sorted({value.partition(".")[0] for value in clause.values})
    ids = sorted(set(clause.values))
    return search.named(
        f"SELECT id FROM doc WHERE uuid IN ({marks(uuids)})"
        f" AND uuid || '.' || version IN ({marks(ids)})",
        [*uuids, *ids],
    )


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
