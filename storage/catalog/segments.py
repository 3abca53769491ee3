"""Segments: immutable runs of a manifest's entries, shared by the versions that hold them.

A version is a row of segments. Whoever changes a few entries of many writes those segments anew
that hold them, and names the others again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_sql
from storage.catalog.schema import bundle_segments, entries, segments
from storage.errors import Invalid
from storage.model import Replica

Row = tuple[int, str, bool]
"""(file id, name, indexed) of one entry."""
NamedRow = tuple[str, tuple[str, str], bool]
"""(name, (uuid, version), indexed) of one entry whose file is still to be looked up."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A segment that is there already."""

    segment_id: int
    count: int


Run = Kept | Sequence[Row] | Sequence[NamedRow]
"""A segment of before, or the entries of a new one."""


def cut(rows: Sequence[Row] | Sequence[NamedRow], size: int) -> list[Run]:
    """New segments of at most so many entries."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def length(run: Run) -> int:
    """How many entries it holds."""
    return run.count if isinstance(run, Kept) else len(run)


def write(tx: Tx, bundle_id: int, runs: Sequence[Run], *, seen_in: Replica | None = None) -> None:
    """Give a bundle its manifest, in this order; three statements whatever the size.

    With `seen_in` the runs are of `NamedRow`: each file is looked up among those that readers of
    this replica see, and an entry whose file is not among them is left out.
    """
    if not runs:
        return
    fresh: list[Any] = [run for run in runs if not isinstance(run, Kept)]
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
            insert(tx, made, fresh, seen_in)
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


def _insert_on_sqlite(
    tx: Tx, idents: Sequence[int], runs: Sequence[Sequence[Any]], seen_in: Replica | None
) -> None:
    """Insert the entries of each segment from one JSON array of texts that are cut there."""
    # Two thirds of the time that sqlite3 takes to bind five values for each row.
    if seen_in is None:
        statement = _CUT_IDS
        lines = [[f"{file}/{'01'[flag]}{name}" for file, name, flag in run] for run in runs]
    else:
        statement = _CUT_NAMED
        lines = [
            [f"{uuid}{version}{'01'[flag]}{name}" for name, (uuid, version), flag in run]
            for run in runs
        ]
    given = [
        {"segment_id": ident, "lines": orjson.dumps(some), "replica": seen_in}
        for ident, some in zip(idents, lines, strict=True)
    ]
    execute_sql(tx, statement, given)


_INSERT = "INSERT INTO entries (segment_id, position, file_id, name, indexed)"
_LINES = "json_each(CAST(:lines AS text)) AS line"
_CUT_IDS = (
    f"{_INSERT} SELECT :segment_id, key, CAST(value AS integer),"
    " substr(value, instr(value, '/') + 2), substr(value, instr(value, '/') + 1, 1)"
    f" FROM {_LINES}"
)
# A uuid has 36 characters, a version 25.
_CUT_NAMED = (
    f"{_INSERT} SELECT :segment_id, key, v.id, substr(value, 63), substr(value, 62, 1)"
    f" FROM {_LINES} CROSS JOIN visible AS v ON v.kind = 'file' AND v.replica = :replica"
    " AND v.uuid = substr(value, 1, 36) AND v.version = substr(value, 37, 25)"
)


def _insert_on_postgresql(
    tx: Tx, idents: Sequence[int], runs: Sequence[Sequence[Any]], seen_in: Replica | None
) -> None:
    """Insert the entries of all segments from one array for each column."""
    places = [
        (ident, at) for ident, run in zip(idents, runs, strict=True) for at in range(len(run))
    ]
    given = {"replica": seen_in} if seen_in else {}
    columns: bulk.Columns = (_named_columns if seen_in else _id_columns)(places, runs)
    source, parameters = bulk.derived(tx, "fresh", columns)
    file_id = "v.id" if seen_in else "file_id"
    if seen_in:
        source += " " + bulk.one_each(tx, "visible", "v", _SEEN)
    statement = f"{_INSERT} SELECT segment_id, position, {file_id}, name, indexed FROM {source}"
    execute_sql(tx, statement, {**parameters, **given})


_SEEN = (
    "v.kind = 'file' AND v.replica = :replica AND v.uuid = fresh.uuid AND v.version = fresh.version"
)


def _id_columns(places: Sequence[tuple[int, int]], runs: Sequence[Sequence[Row]]) -> bulk.Columns:
    segment_ids, positions = zip(*places, strict=True)
    file_ids, names, indexed = zip(*chain.from_iterable(runs), strict=True)
    return {
        "segment_id": ("bigint", segment_ids),
        "position": ("integer", positions),
        "file_id": ("bigint", file_ids),
        "name": ("text", names),
        "indexed": ("boolean", indexed),
    }


def _named_columns(
    places: Sequence[tuple[int, int]], runs: Sequence[Sequence[NamedRow]]
) -> bulk.Columns:
    """The same with uuid and version, in the order of their index: neighbours lie on one page."""
    rows = sorted(
        (uuid, version, segment_id, position, name, indexed)
        for (segment_id, position), (name, (uuid, version), indexed) in zip(
            places, chain.from_iterable(runs), strict=True
        )
    )
    uuids, versions, segment_ids, positions, names, indexed = zip(*rows, strict=True)
    return {
        "segment_id": ("bigint", segment_ids),
        "position": ("integer", positions),
        "uuid": ("text", uuids),
        "version": ("text", versions),
        "name": ("text", names),
        "indexed": ("boolean", indexed),
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
