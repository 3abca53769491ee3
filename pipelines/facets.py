"""Count bundles by value of a field, list fields, and name the fields nearest to a wrong one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.failover import read_index_with_failover
from storage.errors import TimeLimitExceeded, Unavailable
from storage.model import Replica
from storage.protocols import FacetCounts, IndexedField, SearchIndex
from storage.search.facets import find_nearest_fields, find_unknown_fields, list_query_fields
from storage.search.grammar.clauses import Clause
from storage.stores import Stores

MAX_KNOWN_FIELDS = 10_000
"""Fields that are compared with a wrong one."""
FIELDS_PER_READ = 1_000


@dataclass(frozen=True, slots=True)
class Facets:
    """Counts by value of each field; `unknown` has the nearest fields of those without values."""

    counts: FacetCounts
    unknown: Mapping[str, Sequence[str]]


def count_facets(
    stores: Stores, replica: Replica, query: Clause, fields: Sequence[str], size: int
) -> tuple[Replica, Facets]:
    """Count matching bundles by value of each field; return the replica whose index did."""

    def count(index: SearchIndex) -> Facets:
        counts = index.count_facets(query, list(dict.fromkeys(fields)), size=size)
        empty = [name for name, values in counts.facets.items() if not values]
        return Facets(counts, _find_nearest(index, empty))

    return read_index_with_failover(stores, replica, count)


def list_fields(
    stores: Stores, replica: Replica, prefix: str, after: tuple[str, str] | None, size: int
) -> tuple[Replica, Sequence[IndexedField]]:
    """List fields with this prefix after a name and kind; return the replica whose index did."""
    return read_index_with_failover(
        stores, replica, lambda index: index.list_fields(prefix=prefix, after=after, size=size)
    )


def find_wrong_fields(
    stores: Stores, replica: Replica, query: Clause
) -> Mapping[str, Sequence[str]]:
    """Return the unknown fields that a query names, each with the nearest known ones.

    Empty while no index answers.
    """
    names = list(dict.fromkeys(list_query_fields(query)))
    if not names:
        return {}
    try:
        return read_index_with_failover(stores, replica, lambda index: _find_nearest(index, names))[
            1
        ]
    except (Unavailable, TimeLimitExceeded):
        return {}


def _find_nearest(index: SearchIndex, names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return those of the names that are unknown, each with the nearest fields."""
    doubtful = [name for name in names if not _is_field(index, name)]
    if not doubtful:
        return {}
    known = _list_known(index)
    return {name: find_nearest_fields(name, known) for name in find_unknown_fields(doubtful, known)}


def _is_field(index: SearchIndex, name: str) -> bool:
    """Return whether a document has a value of this field."""
    found = index.list_fields(prefix=name, size=1)
    return bool(found) and found[0].name == name


def _list_known(index: SearchIndex) -> Sequence[str]:
    known: list[str] = []
    after = None
    while len(known) < MAX_KNOWN_FIELDS:
        page = index.list_fields(after=after, size=FIELDS_PER_READ)
        known += [field.name for field in page]
        if len(page) < FIELDS_PER_READ:
            break
        after = (page[-1].name, page[-1].kind)
    return list(dict.fromkeys(known))


def format_unknown_field(name: str, nearest: Sequence[str]) -> str:
    """Return a message about an unknown field."""
    near = f"; nearest: {', '.join(nearest)}" if nearest else ""
    return f"no field {name}{near}"
