"""Count bundles by value of a field, list fields, and name the fields nearest to a wrong one."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import partial
from heapq import nsmallest

from pipelines.failover import read_index_with_failover
from pipelines.limits import FACET_FIELDS_MAX
from pipelines.report_cache import ReportCache
from storage.errors import TimeLimitExceeded, Unavailable
from storage.model import REPLICAS, Replica
from storage.protocols import FacetCount, FacetCounts, IndexedField, SearchIndex
from storage.search.documents import KEYWORD_SUFFIX
from storage.search.grammar.clauses import (
    BoolClause,
    Clause,
    IdsClause,
    MatchAllClause,
    MatchNoneClause,
)
from storage.stores import Stores

MAX_FACETS = FACET_FIELDS_MAX
MAX_KNOWN_FIELDS = 10_000
"""Fields that are compared with a wrong one."""
FIELDS_PER_READ = 1_000
MIN_SIMILARITY = 0.6


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
    stores: Stores, replica: Replica, wanted: Iterable[str]
) -> Mapping[str, Sequence[str]]:
    """Return those of the names that are no fields, each with the nearest known ones.

    Empty while no index answers.
    """
    names = list(dict.fromkeys(wanted))
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


def list_query_fields(clause: Clause) -> Iterator[str]:
    """Iterate over the names of fields in a query; patterns are left out."""
    match clause:
        case BoolClause():
            for part in clause.must + clause.filter + clause.should + clause.must_not:
                yield from list_query_fields(part)
        case MatchAllClause() | MatchNoneClause() | IdsClause():
            return
        case _:
            yield from (field.name for field in clause.fields if not field.pattern)


def find_unknown_fields(wanted: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the names that are neither known fields nor objects above them, each once."""
    names = {*known}
    for name in known:
        while "." in name and (name := name.rpartition(".")[0]) not in names:
            names.add(name)
    return [
        name
        for name in dict.fromkeys(wanted)
        if name not in names and name.removesuffix(KEYWORD_SUFFIX) not in names
    ]


def find_nearest_fields(name: str, known: Iterable[str]) -> list[str]:
    """Return the three known fields most like a name; their last parts matter most."""
    wanted = name.removesuffix(KEYWORD_SUFFIX)
    by_last = defaultdict[str, list[str]](list)
    for each in known:
        by_last[each.rpartition(".")[2].lower()].append(each)
    last = wanted.rpartition(".")[2].lower()
    alike = get_close_matches(last, by_last, n=20, cutoff=MIN_SIMILARITY)
    found = [
        (-_similarity(last, part), -_similarity(wanted, each), each)
        for part in alike
        for each in by_last[part][:100]
    ]
    return [each for _, _, each in nsmallest(3, found)]


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


MAX_FEATURED = 6
MAX_CANDIDATES = 12
USEFUL_SHARE = 100
"""One of so many bundles at least must have the most frequent value."""
FRESH_FACTOR = 500
"""A choice is fresh for this many times as long as choosing took: it costs 0.2 % of a core."""
FIELDS_TO_CHOOSE_FROM = 500
METADATA_PREFIX = "files."
TECHNICAL_FIELDS = ("describedBy", "schema_type", "schema_version")
"""Last parts of fields that tell metadata apart, not bundles."""


FacetFieldCaches = Mapping[Replica, ReportCache[Sequence[str]]]
"""By replica the fields that are chosen for facets."""


def open_facet_field_caches(
    stores: Stores, clock: Callable[[], float] = time.monotonic
) -> FacetFieldCaches:
    """Return caches of the fields; those of a small store renew soon."""
    return {
        replica: ReportCache(
            partial(choose_facet_fields, stores, replica),
            fresh_s=0.0,
            fresh_factor=FRESH_FACTOR,
            clock=clock,
        )
        for replica in REPLICAS
    }


def choose_facet_fields(stores: Stores, replica: Replica) -> Sequence[str]:
    """Return the metadata fields of strings that most bundles have, without unique values."""
    _, found = list_fields(stores, replica, METADATA_PREFIX, None, FIELDS_TO_CHOOSE_FROM)
    wanted = [
        field
        for field in found
        if field.kind == "string" and field.name.rpartition(".")[2] not in TECHNICAL_FIELDS
    ]
    frequent = nsmallest(MAX_CANDIDATES, wanted, key=lambda field: (-field.documents, field.name))
    if not frequent:
        return []
    names = [field.name for field in frequent]
    _, counted = count_facets(stores, replica, MatchAllClause(), names, 2)
    useful = [
        field.name
        for field in frequent
        if _is_useful(counted.counts.facets[field.name], field.documents)
    ]
    return useful[:MAX_FEATURED]


def _is_useful(first: Sequence[FacetCount], documents: int) -> bool:
    """Return whether the first values stand for more than single bundles."""
    return len(first) == 1 or (
        bool(first) and first[0].count > 1 and first[0].count * USEFUL_SHARE >= documents
    )
