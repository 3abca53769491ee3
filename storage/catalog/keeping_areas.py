"""Upload areas and their files in a backup: what was to be done on one comes back with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, select, tuple_

from storage.catalog import refilling, todo
from storage.catalog.engine import Tx
from storage.catalog.schema import area_files, areas
from storage.catalog.schema import todo as todo_table
from storage.model import REPLICAS, Todo

Rows = Sequence[Mapping[str, Any]]

STEP, REQUEST = "todo_step", "todo_request_id"
"""Columns of a row with work that is to be done on it: which, and for which request."""
_REMOVING = ("area_remove",)
_CHECKING = ("area_checksum", "area_checksum_large")


def _with_work(table: Table, ref: ColumnElement[str], *steps: str) -> Select[Any]:
    ours = and_(todo_table.c.step.in_(steps), todo_table.c.ref == ref)
    more = (todo_table.c.step.label(STEP), todo_table.c.request_id.label(REQUEST))
    return select(*table.c, *more).outerjoin_from(table, todo_table, ours)


AREAS = _with_work(areas, areas.c.uuid, *_REMOVING).order_by(areas.c.uuid)
_FILE = area_files.c.area + "/" + area_files.c.name
FILES = _with_work(area_files, _FILE, *_CHECKING).order_by(area_files.c.area, area_files.c.name)


def restore_areas(tx: Tx, rows: Rows) -> int:
    """Those that are not there."""
    return _restore(tx, areas, rows, lambda row: row["uuid"])


def restore_files(tx: Tx, rows: Rows) -> int:
    """Those that are not there."""
    return _restore(tx, area_files, rows, lambda row: f"{row['area']}/{row['name']}")


def _restore(tx: Tx, table: Table, rows: Rows, ref: Any) -> int:
    key = list(table.primary_key.columns)
    wanted = [tuple(row[column.name] for column in key) for row in rows]
    known = {tuple(row) for row in tx.execute(select(*key).where(tuple_(*key).in_(wanted)))}
    fresh = [dict(row) for row, name in zip(rows, wanted, strict=True) if name not in known]
    for row in fresh:
        step, request_id = row.pop(STEP, None), row.pop(REQUEST, None)
        if step is not None:
            work = Todo(step, REPLICAS[0], ref(row))
            todo.add(tx, [work], request_id=request_id or "", sent=False)
    refilling.add(tx, table, fresh)
    return len(fresh)
