"""Upload areas, their files, and their unfinished multipart uploads.

A transaction that changes the contents of an area locks its row shared; one that changes its state
locks it exclusively. So no file enters an area that is deleted.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson
from sqlalchemy import Row, delete, func, insert, select, text, tuple_, update

from storage.catalog import sql
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.versions import area_files, area_uploads, areas
from storage.model import CHECKSUM_NAMES, Checksums


@dataclass(frozen=True, slots=True)
class Area:
    """An area; `state` is UNLOCKED, LOCKED, DELETING or DELETED.

    Until `granted_us`, credentials to write to it directly may be valid.
    """

    uuid: str
    owner: str
    state: str
    granted_us: int | None = None
    deleted_us: int | None = None


def insert_area(tx: Tx, area: Area) -> bool:
    """Insert an area; False when the uuid is taken."""
    row = {"uuid": area.uuid, "owner": area.owner, "state": area.state, "created_us": sql.clock(tx)}
    return bool(sql.insert_missing(tx, areas, [row]))


AreaLock = Literal["shared", "exclusive"]


def find(tx: Tx, uuid: str, *, lock: AreaLock | None = None) -> Area | None:
    """Return an area by its uuid; a lock, which others may share, keeps its state."""
    query = select(areas).filter_by(uuid=uuid)
    if lock is not None:
        query = query.with_for_update(read=lock == "shared")
    return sql.find_row(tx, Area, query)


@dataclass(frozen=True, slots=True)
class AreaSummary:
    """An area in its owner's list, with counts of its registered files."""

    uuid: str
    state: str
    created_us: int
    file_count: int = 0
    size: int = 0


def list_by_owner(
    tx: Tx, owner: str, *, before: tuple[int, str] | None = None, limit: int
) -> list[AreaSummary]:
    """List a user's areas that are not deleted, latest first, before (created_us, uuid)."""
    c = areas.c
    query = select(c.uuid, c.state, c.created_us).where(
        c.owner == owner, text("state <> 'DELETED'")
    )
    if before is not None:
        query = query.where(tuple_(c.created_us, c.uuid) < tuple_(*before))
    ordered = query.order_by(c.created_us.desc(), c.uuid.desc()).limit(limit)
    found = tx.execute(ordered).all()
    f = area_files.c
    totals = select(f.area, func.count(), func.sum(f.size)).where(
        f.area.in_([row.uuid for row in found])
    )
    sizes = {row[0]: (row[1], int(row[2])) for row in tx.execute(totals.group_by(f.area))}
    return [AreaSummary(*row, *sizes.get(row.uuid, (0, 0))) for row in found]


def set_state(tx: Tx, uuid: str, state: str) -> None:
    """Set the state of a locked area."""
    times = {"deleted_us": sql.clock(tx)} if state == "DELETED" else {}
    tx.execute(update(areas).filter_by(uuid=uuid).values(state=state, **times))


def record_credentials(tx: Tx, uuid: str, seconds: float) -> None:
    """Record the expiry of credentials for a locked area, `seconds` from now."""
    until = now_us(tx) + int(seconds * 1e6)
    later = areas.c.granted_us.is_(None) | (areas.c.granted_us < until)
    tx.execute(update(areas).where(areas.c.uuid == uuid, later).values(granted_us=until))


PENDING_STATUSES = ("SCHEDULED", "CHECKSUMMING")
"""States of a file that waits for a worker or is being read by one."""
FILE_COLUMNS = ("pin", "size", "content_type", "status", "validation", "cause")


@dataclass(frozen=True, slots=True)
class AreaFile:
    """A file of an area.

    `status` is SCHEDULED, CHECKSUMMING, CHECKSUMMED or FAILED; `validation` is UNSCHEDULED,
    VALIDATING, VALIDATED or INVALID; `cause` says why it is FAILED or INVALID.
    """

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


def find_file(tx: Tx, area: str, name: str) -> AreaFile | None:
    """Return a file by its name."""
    return sql.find_row(tx, _file_from_row, select(area_files).filter_by(area=area, name=name))


def find_generations(tx: Tx, area: str, names: Collection[str]) -> dict[str, int]:
    """Return the generations of those files that exist, by name."""
    c = area_files.c
    query = select(c.name, c.generation).where(c.area == area, c.name.in_(names))
    return {row.name: row.generation for row in tx.execute(query)}


def find_sizes(tx: Tx, area: str, names: Collection[str]) -> dict[str, int]:
    """Return the sizes of those files that exist, by name."""
    c = area_files.c
    query = select(c.name, c.size).where(c.area == area, c.name.in_(names))
    return {row.name: row.size for row in tx.execute(query)}


def list_files_between(tx: Tx, area: str, after: str, last: str) -> dict[str, AreaFile]:
    """Return files by name, after one name and up to another."""
    c = area_files.c
    query = select(area_files).where(c.area == area, c.name > after, c.name <= last)
    return {row.name: _file_from_row(row) for row in tx.execute(query.order_by(c.name))}


def upsert_file(tx: Tx, file: AreaFile) -> int:
    """Insert or replace a file; return its new generation."""
    values = {**_file_values(file), "area": file.area, "name": file.name}
    return int(sql.execute(tx, _UPSERT_FILE, values).scalar_one())


_UPSERT_COLUMNS = (*FILE_COLUMNS, *CHECKSUM_NAMES, "declared")
_UPSERT_FILE = (
    f"INSERT INTO area_files (area, name, {', '.join(_UPSERT_COLUMNS)},"
    " generation, created_us, changed_us)"
    f" VALUES (:area, :name, {', '.join(f':{name}' for name in _UPSERT_COLUMNS)}, 1, :now, :now)"
    " ON CONFLICT (area, name) DO UPDATE SET generation = area_files.generation + 1,"
    " changed_us = excluded.changed_us, "
    + ", ".join(f"{name} = excluded.{name}" for name in _UPSERT_COLUMNS)
    + " RETURNING generation"
)


def update_file(tx: Tx, file: AreaFile) -> bool:
    """Write results for a file's generation; False when it was replaced or deleted."""
    same = {"area": file.area, "name": file.name, "generation": file.generation}
    values = {**_file_values(file), "changed_us": sql.clock(tx)}
    return tx.execute(update(area_files).filter_by(**same).values(**values)).rowcount == 1


def count_files(tx: Tx, area: str, column: str) -> dict[str, int]:
    """Count files of an area by `status` or by `validation`."""
    counted = area_files.c[column]
    query = select(counted, func.count()).where(area_files.c.area == area).group_by(counted)
    return {row[0]: row[1] for row in tx.execute(query)}


def summarize_files(tx: Tx, area: str) -> dict[str, tuple[int, int]]:
    """Return count and latest change of an area's files by validation state."""
    c = area_files.c
    counted = select(c.validation, func.count(), func.max(c.changed_us)).where(c.area == area)
    return {row[0]: (row[1], row[2]) for row in tx.execute(counted.group_by(c.validation))}


def delete_files(tx: Tx, area: str) -> list[int]:
    """Delete all file rows of an area; return their sizes."""
    statement = delete(area_files).filter_by(area=area).returning(area_files.c.size)
    return list(tx.execute(statement).scalars())


def _file_values(file: AreaFile) -> dict[str, Any]:
    sums = {name: getattr(file.checksums, name, None) for name in CHECKSUM_NAMES}
    declared = None if file.declared is None else orjson.dumps(file.declared).decode()
    values = {name: _sanitize_text(getattr(file, name)) for name in FILE_COLUMNS}
    return {**values, **sums, "declared": declared}


def _sanitize_text(value: Any) -> Any:
    """Replace characters that a catalog cannot store: the texts come from uploaded objects."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="replace").decode().replace("\0", "\ufffd")


def _file_from_row(row: Row[Any]) -> AreaFile:
    declared = None if row.declared is None else orjson.loads(row.declared)
    return sql.map_row(AreaFile, row, declared=declared)


@dataclass(frozen=True, slots=True)
class AreaUploadRow:
    """An unfinished upload; `token` is the bucket's id of it."""

    id: str
    area: str
    name: str
    token: str
    size: int
    content_type: str
    part_size: int


def insert_upload(tx: Tx, upload: AreaUploadRow) -> None:
    """Insert a new upload."""
    tx.execute(insert(area_uploads).values(**asdict(upload), at_us=sql.clock(tx)))


def find_upload(tx: Tx, ident: str) -> AreaUploadRow | None:
    """Return an upload by its id."""
    return sql.find_row(tx, AreaUploadRow, select(area_uploads).filter_by(id=ident))


def touch_upload(tx: Tx, ident: str) -> bool:
    """Restart the expiry of an upload; False when it is gone."""
    statement = update(area_uploads).filter_by(id=ident)
    return tx.execute(statement.values(at_us=sql.clock(tx))).rowcount == 1


def delete_upload(tx: Tx, ident: str) -> bool:
    """Delete a completed or aborted upload; False when it is gone already."""
    return tx.execute(delete(area_uploads).filter_by(id=ident)).rowcount == 1


def list_uploads(tx: Tx, area: str, *, limit: int = 100) -> list[AreaUploadRow]:
    """List unfinished uploads of an area, by name."""
    query = select(area_uploads).filter_by(area=area).order_by(area_uploads.c.name)
    return sql.map_rows(AreaUploadRow, tx.execute(query.limit(limit)))


def count_uploads(tx: Tx) -> int:
    """Count unfinished uploads of all areas."""
    return int(tx.execute(select(func.count()).select_from(area_uploads)).scalar_one())


def list_stale_uploads(tx: Tx, us: int, *, limit: int = 100) -> list[AreaUploadRow]:
    """List uploads that were not touched since a moment."""
    query = select(area_uploads).where(area_uploads.c.at_us < us).limit(limit)
    return sql.map_rows(AreaUploadRow, tx.execute(query))
