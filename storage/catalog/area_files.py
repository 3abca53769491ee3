"""Files of upload areas: what was said and what was found of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Row, delete, func, select, update

from storage.catalog.engine import Tx, execute_now, now_us
from storage.catalog.schema import area_files
from storage.model import CHECKSUMS, Checksums

AWAITED = ("SCHEDULED", "CHECKSUMMING")
"""The states of a file that a worker is to look at, or is looking at."""
KEPT = ("pin", "size", "content_type", "status", "validation", "cause")


@dataclass(frozen=True, slots=True)
class AreaFile:
    """`status` is SCHEDULED, CHECKSUMMING, CHECKSUMMED or FAILED, `validation` UNSCHEDULED,
    VALIDATING, VALIDATED or INVALID; `cause` says why it is FAILED or INVALID."""

    area: str
    name: str
    pin: str
    size: int
    content_type: str
    status: str
    validation: str
    checksums: Checksums | None = None
    cause: str | None = None
    declared: Mapping[str, Any] | None = None
    generation: int = 0


def _is(area: str, name: str) -> ColumnElement[bool]:
    return (area_files.c.area == area) & (area_files.c.name == name)


def get(tx: Tx, area: str, name: str) -> AreaFile | None:
    """The file of that name."""
    row = tx.execute(select(area_files).where(_is(area, name))).first()
    return None if row is None else _file(row)


def between(tx: Tx, area: str, after: str, last: str) -> dict[str, AreaFile]:
    """Files beyond a name and up to another, by name."""
    c = area_files.c
    query = select(area_files).where(c.area == area, c.name > after, c.name <= last)
    return {row.name: _file(row) for row in tx.execute(query.order_by(c.name))}


def keep(tx: Tx, file: AreaFile) -> int:
    """Say that this lies there now, whatever was said before; returns its generation."""
    values = {**_values(file), "area": file.area, "name": file.name}
    return int(execute_now(tx, _KEEP, values).scalar_one())


_COLUMNS = (*KEPT, *CHECKSUMS, "declared")
_KEEP = (
    f"INSERT INTO area_files (area, name, {', '.join(_COLUMNS)},"
    " generation, created_us, changed_us)"
    f" VALUES (:area, :name, {', '.join(f':{name}' for name in _COLUMNS)}, 1, :now, :now)"
    " ON CONFLICT (area, name) DO UPDATE SET generation = area_files.generation + 1,"
    f" changed_us = excluded.changed_us, {', '.join(f'{n} = excluded.{n}' for n in _COLUMNS)}"
    " RETURNING generation"
)


def change(tx: Tx, file: AreaFile) -> bool:
    """Write what was found of this generation; False when there is a later one, or none."""
    ours = _is(file.area, file.name) & (area_files.c.generation == file.generation)
    values = {**_values(file), "changed_us": now_us(tx)}
    return tx.execute(update(area_files).where(ours).values(**values)).rowcount == 1


def counted(tx: Tx, area: str, column: str) -> dict[str, int]:
    """How many files of an area have which `status`, or `validation`."""
    which = area_files.c[column]
    query = select(which, func.count()).where(area_files.c.area == area).group_by(which)
    return {row[0]: row[1] for row in tx.execute(query)}


def forget(tx: Tx, area: str) -> list[str]:
    """Remove all that is known of what an area held; returns the names."""
    gone = delete(area_files).where(area_files.c.area == area).returning(area_files.c.name)
    return list(tx.execute(gone).scalars())


def _values(file: AreaFile) -> dict[str, Any]:
    sums = {name: getattr(file.checksums, name, None) for name in CHECKSUMS}
    declared = None if file.declared is None else orjson.dumps(file.declared).decode()
    kept = {name: _keepable(getattr(file, name)) for name in KEPT}
    return {**kept, **sums, "declared": declared}


def _keepable(value: Any) -> Any:
    """Texts come from objects that others made: not every one is what a catalog takes."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="replace").decode().replace("\0", "\ufffd")


def _file(row: Row[Any]) -> AreaFile:
    sums = None
    if row.sha256 is not None:
        sums = Checksums(row.sha1, row.sha256, row.crc32c, row.s3_etag)
    return AreaFile(
        area=row.area,
        name=row.name,
        pin=row.pin,
        size=row.size,
        content_type=row.content_type,
        status=row.status,
        validation=row.validation,
        checksums=sums,
        cause=row.cause,
        declared=None if row.declared is None else orjson.loads(row.declared),
        generation=row.generation,
    )
