"""Counts and bytes of files, bundles and upload areas by owner, a range of ids at a time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Select, exists, func, literal, select

from storage.catalog.sql import Tx
from storage.catalog.tables.jobs import tasks
from storage.catalog.tables.versions import (
    VERSION_TABLES,
    area_files,
    area_uploads,
    areas,
    blobs,
    files,
    presence,
)
from storage.keys import Kind
from storage.model import Replica


class OwnerTotal(NamedTuple):
    """How many of something an owner has, and their bytes."""

    owner: str
    number: int
    size: int


def find_last_id(tx: Tx, kind: Kind) -> int:
    """Return the highest id of a version; 0 when there is none."""
    return int(tx.execute(select(func.max(VERSION_TABLES[kind].c.id))).scalar_one() or 0)


def count_versions(
    tx: Tx, kind: Kind, after_id: int, until_id: int, *, lacking_in: Replica | None = None
) -> list[OwnerTotal]:
    """Count the published versions of a range of ids by owner; bytes are those of files.

    With `lacking_in` those that are not complete in this replica.
    """
    table = VERSION_TABLES[kind]
    size = func.sum(blobs.c.size, type_=BigInteger) if kind == "file" else literal(0)
    joined = table.join(blobs, blobs.c.id == files.c.blob_id) if kind == "file" else table
    query = select(table.c.author, func.count(), size).select_from(joined)
    query = query.where(
        table.c.id > after_id, table.c.id <= until_id, table.c.published_us.is_not(None)
    )
    if lacking_in is not None:
        query = query.where(
            ~exists().where(
                presence.c.kind == kind,
                presence.c.id == table.c.id,
                presence.c.replica == lacking_in,
            )
        )
    return _read_totals(tx, query.group_by(table.c.author))


def _read_totals(tx: Tx, query: Select[Any]) -> list[OwnerTotal]:
    return [OwnerTotal(owner, number, int(size)) for owner, number, size in tx.execute(query)]


def list_areas(tx: Tx, *, after: str, limit: int) -> list[tuple[str, str]]:
    """List uuid and owner of upload areas that are not deleted, by uuid after a given one."""
    query = select(areas.c.uuid, areas.c.owner).where(
        areas.c.uuid > after, areas.c.state != "DELETED"
    )
    return [(uuid, owner) for uuid, owner in tx.execute(query.order_by(areas.c.uuid).limit(limit))]


def count_area_files(tx: Tx, uuids: Sequence[str]) -> list[OwnerTotal]:
    """Count the files of upload areas by owner."""
    query = (
        select(areas.c.owner, func.count(), func.sum(area_files.c.size, type_=BigInteger))
        .join_from(areas, area_files, area_files.c.area == areas.c.uuid)
        .where(areas.c.uuid.in_(uuids))
        .group_by(areas.c.owner)
    )
    return _read_totals(tx, query)


def count_area_uploads(tx: Tx) -> list[OwnerTotal]:
    """Count unfinished uploads to areas by owner, with the sizes of their files."""
    query = (
        select(areas.c.owner, func.count(), func.sum(area_uploads.c.size, type_=BigInteger))
        .join_from(areas, area_uploads, area_uploads.c.area == areas.c.uuid)
        .group_by(areas.c.owner)
    )
    return _read_totals(tx, query)


def count_open_tasks(tx: Tx) -> list[OwnerTotal]:
    """Count files that are being verified by owner."""
    query = select(tasks.c.author, func.count(), func.sum(tasks.c.size, type_=BigInteger))
    return _read_totals(tx, query.where(tasks.c.finished_us.is_(None)).group_by(tasks.c.author))
