"""Segments: immutable runs of a manifest's entries, shared by the versions that hold them.

A version is a row of segments. Whoever changes a few entries of many writes those segments anew
that hold them, and names the others again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import orjson
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_sql
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
    execute_sql(
        tx,
        "INSERT INTO bundle_segments (bundle_id, start, segment_id)"
        f" SELECT :bundle_id, start, segment_id FROM {source}",
        {**parameters, "bundle_id": bundle_id},
    )
    insert = _insert_on_sqlite if tx.dialect.name == "sqlite" else _insert_on_postgresql
    try:
        if fresh:
            insert(tx, made, fresh)
    except IntegrityError as error:
        gone = "A file of the bundle was purged meanwhile."
        raise Invalid(gone, code="file_missing") from error


def _made(tx: Tx, counts: Sequence[int]) -> list[int]:
    """The ids of new segments of these sizes; those of one size are interchangeable so far."""
    if not counts:
        return []
    source, parameters = bulk.derived(tx, "fresh", {"entry_count": ("integer", counts)})
    inserted = execute_sql(
        tx,
        f"INSERT INTO segments (entry_count) SELECT entry_count FROM {source}"
        " RETURNING id, entry_count",
        parameters,
    )
    of_size: dict[int, list[int]] = defaultdict(list)
    for ident, count in sorted(map(tuple, inserted), reverse=True):
        of_size[count].append(ident)
    return [of_size[count].pop() for count in counts]


def _insert_on_sqlite(tx: Tx, idents: Sequence[int], runs: Sequence[Sequence[Row]]) -> None:
    """Insert the entries of each segment from one JSON array of `<file id>/<indexed><name>`."""
    # Two thirds of the time that sqlite3 takes to bind five values for each row.
    given = [
        {
            "segment_id": ident,
            "lines": orjson.dumps([f"{file}/{'01'[indexed]}{name}" for file, name, indexed in run]),
        }
        for ident, run in zip(idents, runs, strict=True)
    ]
    execute_sql(tx, _CUT_ENTRIES, given)


_CUT_ENTRIES = (
    "INSERT INTO entries (segment_id, position, file_id, name, indexed)"
    " SELECT :segment_id, key, CAST(value AS integer), substr(value, instr(value, '/') + 2),"
    " substr(value, instr(value, '/') + 1, 1) FROM json_each(CAST(:lines AS text))"
)


def _insert_on_postgresql(tx: Tx, idents: Sequence[int], runs: Sequence[Sequence[Row]]) -> None:
    """Insert the entries of all segments from one array for each column."""
    places = [
        (ident, at) for ident, run in zip(idents, runs, strict=True) for at in range(len(run))
    ]
    segment_ids, positions = zip(*places, strict=True)
    file_ids, names, indexed = zip(*chain.from_iterable(runs), strict=True)
    columns: bulk.Columns = {
        "segment_id": ("bigint", segment_ids),
        "position": ("integer", positions),
        "file_id": ("bigint", file_ids),
        "name": ("text", names),
        "indexed": ("boolean", indexed),
    }
    source, parameters = bulk.derived(tx, "fresh", columns)
    names_of = ", ".join(columns)
    statement = f"INSERT INTO entries ({names_of}) SELECT {names_of} FROM {source}"
    execute_sql(tx, statement, parameters)


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
