"""Order facet values, and find the known fields that are nearest to a wrong one."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from heapq import nsmallest

from storage.protocols import FacetCount, FacetValue
from storage.search.documents import KEYWORD_SUFFIX
from storage.search.grammar.clauses import (
    BoolClause,
    Clause,
    IdsClause,
    MatchAllClause,
    MatchNoneClause,
)

KIND_ORDER = ("boolean", "number", "string")
"""Kinds of values in the order of ties."""
# A larger double may stand for several integers.
MAX_EXACT_INTEGER = 2**53
MIN_SIMILARITY = 0.6


def order_counts(counts: Mapping[str, Mapping[FacetValue, int]], size: int) -> Sequence[FacetCount]:
    """Return the most frequent values of counts by kind; ties by kind, then value."""
    found = (
        (-count, rank, value)
        for rank, kind in enumerate(KIND_ORDER)
        for value, count in counts.get(kind, {}).items()
    )
    # No two have the same kind and value, so values of one kind only are compared.
    return [
        FacetCount(_convert_value(KIND_ORDER[rank], value), -negative)
        for negative, rank, value in nsmallest(size, found)
    ]


def _convert_value(kind: str, value: FacetValue) -> FacetValue:
    """Return a boolean for the index's 0 and 1, an integer for a double without a fraction."""
    if kind == "boolean":
        return bool(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
        return int(value)
    return value


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


def find_nearest_fields(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known fields most like a name, best first; their last parts matter most."""
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
    return [each for _, _, each in nsmallest(most, found)]


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
