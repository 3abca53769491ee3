"""Queries of OpenSearch put together, what decides nothing left out: its clauses are limited."""

from collections.abc import Sequence
from typing import Any

Dsl = dict[str, Any]

ALL: Dsl = {"match_all": {}}
NONE: Dsl = {"match_none": {}}


def every(parts: Sequence[Dsl]) -> Dsl:
    """All of these."""
    kept = [part for part in parts if part != ALL]
    if NONE in kept:
        return NONE
    if len(kept) < 2:
        return kept[0] if kept else ALL
    return {"bool": {"filter": kept}}


def some(parts: Sequence[Dsl], least: int = 1) -> Dsl:
    """At least so many of these."""
    kept = [part for part in parts if part not in (ALL, NONE)]
    least -= list(parts).count(ALL)
    if least <= 0:
        return ALL
    if least >= len(kept):
        return every(kept) if least == len(kept) else NONE
    return {"bool": {"should": kept, "minimum_should_match": least}}


def without(wanted: Dsl, forbidden: Dsl) -> Dsl:
    """What the one query matches and the other does not."""
    if forbidden == NONE or wanted == NONE:
        return wanted
    if forbidden == ALL:
        return NONE
    return {"bool": {"filter": [wanted], "must_not": [forbidden]}}
