"""Segments: immutable runs of a manifest's entries, shared by the versions that hold them.

A version is a row of segments. Whoever changes a few entries of many writes those segments anew
that hold them, and names the others again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from storage.catalog import bulk
from storage.catalog.engine import Tx, sql
from storage.catalog.schema import bundle_segments, entries, segments
from storage.errors import Invalid

Row = tuple[int, str, bool]
"""(file id, name, indexed) of one entry."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A segment that is there already."""

    segment_id: int
    count: int


Run = Kept | Sequence[Row]
"""A segment of before, or the entries of a new one."""


def cut(rows: Sequence[Row], size: int) -> list[Run]:
    """New segments of at most so many entries."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def length(run: Run) -> int:
    """How many entries it holds."""
    return run.count if isinstance(run, Kept) else len(run)


def write(tx: Tx, bundle_id: int, runs: Sequence[Run]) -> None:
    """Give a bundle its manifest, in this order; three statements whatever the size."""
    if not runs:
        return
    fresh = [run for run in runs if not isinstance(run, Kept)]
    made = _made(tx, [len(run) for run in fresh])
    places = iter(made)
    idents = [run.segment_id if isinstance(run, Kept) else next(places) for run in runs]
    starts = [0]
    for run in runs[:-1]:
        starts.append(starts[-1] + length(run))
    columns: bulk.Columns = {"start": ("integer", starts), "segment_id": ("bigint", idents)}
    source, parameters = bulk.derived(tx, "fresh", columns)
    tx.execute(
        sql(
            "INSERT INTO bundle_segments (bundle_id, start, segment_id)"
            f" SELECT :bundle_id, start, segment_id FROM {source}"
        ),
        {**parameters, "bundle_id": bundle_id},
    )
    _write_entries(tx, made, fresh)


def _made(tx: Tx, counts: Sequence[int]) -> list[int]:
    """The ids of new segments of these sizes; those of one size are interchangeable so far."""
    if not counts:
        return []
    source, parameters = bulk.derived(tx, "fresh", {"entry_count": ("integer", counts)})
    inserted = tx.execute(
        sql(
            f"INSERT INTO segments (entry_count) SELECT entry_count FROM {source}"
            " RETURNING id, entry_count"
        ),
        parameters,
    )
    of_size: dict[int, list[int]] = defaultdict(list)
    for ident, count in sorted(map(tuple, inserted), reverse=True):
        of_size[count].append(ident)
    return [of_size[count].pop() for count in counts]


def _write_entries(tx: Tx, idents: Sequence[int], runs: Sequence[Sequence[Row]]) -> None:
    rows = [
        (ident, place, *row)
        for ident, run in zip(idents, runs, strict=True)
        for place, row in enumerate(run)
    ]
    try:
        bulk.insert(tx, "entries", _ENTRY, rows)
    except IntegrityError as error:
        gone = "A file of the bundle was purged meanwhile."
        raise Invalid(gone, code="file_missing") from error


_ENTRY = {
    "segment_id": "bigint",
    "position": "integer",
    "file_id": "bigint",
    "name": "text",
    "indexed": "boolean",
}


def of_bundle(tx: Tx, bundle_id: int) -> list[Kept]:
    """A bundle's segments, in the order of its manifest."""
    query = (
        select(segments.c.id, segments.c.entry_count)
        .join(bundle_segments, bundle_segments.c.segment_id == segments.c.id)
        .where(bundle_segments.c.bundle_id == bundle_id)
        .order_by(bundle_segments.c.start)
    )
    return [Kept(row.id, row.entry_count) for row in tx.execute(query)]


def rows(tx: Tx, idents: Sequence[int]) -> Mapping[int, list[Row]]:
    """The entries of these segments, in order."""
    query = (
        select(entries.c.segment_id, entries.c.file_id, entries.c.name, entries.c.indexed)
        .where(entries.c.segment_id.in_(idents))
        .order_by(entries.c.segment_id, entries.c.position)
    )
    found: dict[int, list[Row]] = defaultdict(list)
    for row in tx.execute(query):
        found[row.segment_id].append((row.file_id, row.name, bool(row.indexed)))
    return found
