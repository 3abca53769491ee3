"""Order facet values."""

from collections.abc import Mapping, Sequence
from heapq import nsmallest

from storage.protocols import FacetCount, FacetValue

KIND_ORDER = ("boolean", "number", "string")
"""Kinds of values in the order of ties."""
# A larger double may stand for several integers.
MAX_EXACT_INTEGER = 2**53


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
