"""Ingest tasks of files, and the unfinished multipart uploads of a replica's bucket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Row, bindparam, delete, insert, select, text, update

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.jobs import tasks
from storage.catalog.tables.versions import uploads
from storage.model import CHECKSUM_NAMES, FQID, Checksums, Replica


@dataclass(frozen=True, slots=True)
class IngestTaskRow:
    """An ingest task.

    States are those of `GET /tasks`, except that RUNNING follows from the claim on the job.
    """

    id: str
    fqid: FQID
    replica: Replica
    state: str
    digest: str
    source_url: str
    pin: str
    size: int
    content_type: str
    creator_uid: int
    author: str
    declared: Checksums
    bytes_done: int
    cause: Mapping[str, Any] | None
    created_us: int


def _task_from_row(row: Row[Any]) -> IngestTaskRow:
    return sql.map_row(
        IngestTaskRow,
        row,
        declared=Checksums(row.sha1, row.sha256, row.crc32c, row.s3_etag),
        cause=None if row.cause is None else orjson.loads(row.cause),
    )


# Built once: building takes longer than running.
_GET = select(tasks).where(tasks.c.id == bindparam("id"))
_SELECT_CURRENT = (
    select(tasks)
    .where(tasks.c.uuid == bindparam("uuid"), tasks.c.version == bindparam("version"))
    .order_by(tasks.c.created_us.desc(), tasks.c.id)
    .limit(1)
)
_SELECT_LATEST_OPEN = (
    select(tasks)
    .where(tasks.c.uuid == bindparam("uuid"), tasks.c.finished_us.is_(None))
    .order_by(tasks.c.version.desc())
    .limit(1)
)


def find(tx: Tx, ident: str) -> IngestTaskRow | None:
    """Return a task by its id."""
    return sql.find_row(tx, _task_from_row, _GET, {"id": ident})


def find_all(tx: Tx, idents: Sequence[str]) -> list[IngestTaskRow]:
    """Return tasks by their ids."""
    return [_task_from_row(row) for row in tx.execute(select(tasks).where(tasks.c.id.in_(idents)))]


def find_current(tx: Tx, fqid: FQID) -> IngestTaskRow | None:
    """Return the latest task of a version: the open one, if any."""
    return sql.find_row(tx, _task_from_row, _SELECT_CURRENT, fqid._asdict())


def find_latest_open(tx: Tx, uuid: str) -> IngestTaskRow | None:
    """Return the open task of a uuid's greatest version."""
    return sql.find_row(tx, _task_from_row, _SELECT_LATEST_OPEN, {"uuid": uuid})


def list_open(tx: Tx, fqids: Sequence[FQID]) -> list[IngestTaskRow]:
    """Return the open tasks of these versions."""
    same = "t.uuid = wanted.uuid AND t.version = wanted.version AND t.finished_us IS NULL"
    rows = sql.look_up_rows(
        tx, sql.list_columns(tasks, "t"), sql.fqid_columns(fqids), ("tasks", "t", same)
    )
    return [_task_from_row(row) for row in rows]


def list_current(tx: Tx, version: str, uuids: Sequence[str]) -> dict[str, IngestTaskRow]:
    """Return the latest task of each of these files in one version, by uuid."""
    query = select(tasks).where(tasks.c.uuid.in_(uuids), tasks.c.version == version)
    rows = tx.execute(query.order_by(tasks.c.created_us, tasks.c.id.desc()))
    return {row.uuid: _task_from_row(row) for row in rows}


def list_unfinished(tx: Tx, author: str, *, limit: int) -> list[IngestTaskRow]:
    """List the tasks of an author that are open or failed, latest first."""
    query = select(tasks).where(tasks.c.author == author, text("state <> 'SUCCEEDED'"))
    rows = tx.execute(query.order_by(tasks.c.created_us.desc()).limit(limit))
    return [_task_from_row(row) for row in rows]


def insert_all(tx: Tx, new: Sequence[IngestTaskRow]) -> None:
    """Insert open tasks; the caller holds the heads' locks and checked that none is open."""
    if not new:
        return
    columns: sql.Columns = {
        **sql.fqid_columns(task.fqid for task in new),
        **sql.attribute_columns(
            new,
            bigint="size creator_uid",
            text="id replica state digest source_url pin content_type author",
        ),
        **sql.attribute_columns([task.declared for task in new], text=" ".join(CHECKSUM_NAMES)),
    }
    names = ", ".join(columns)
    statement = f"INSERT INTO tasks ({names}, created_us) SELECT {names}, :now FROM {{source}}"
    sql.execute_with(tx, statement, "new", columns)


def record_progress(tx: Tx, ident: str, bytes_done: int) -> None:
    """Record how many bytes were read."""
    tx.execute(update(tasks).filter_by(id=ident).values(bytes_done=bytes_done))


def finish(tx: Tx, ident: str, *, state: str, cause: Mapping[str, Any] | None = None) -> None:
    """Finish a task; a successful one has read every byte."""
    reason = None if cause is None else orjson.dumps(cause).decode()
    done = {"bytes_done": tasks.c.size} if state == "SUCCEEDED" else {}
    values = {"state": state, "cause": reason, "finished_us": sql.clock(tx), **done}
    tx.execute(update(tasks).filter_by(id=ident).values(**values))


def finish_all(tx: Tx, idents: Sequence[str]) -> None:
    """Finish several tasks whose files are published."""
    values = {"state": "SUCCEEDED", "cause": None, "finished_us": sql.clock(tx)}
    done = update(tasks).where(tasks.c.id.in_(idents))
    tx.execute(done.values(bytes_done=tasks.c.size, **values))


def insert_upload(tx: Tx, replica: str, key: str, token: str) -> None:
    """Insert an upload."""
    tx.execute(insert(uploads).values(replica=replica, key=key, token=token, at_us=sql.clock(tx)))


def touch_upload(tx: Tx, replica: str, key: str, token: str) -> None:
    """Restart the expiry of an upload."""
    upload = update(uploads).filter_by(replica=replica, key=key, token=token)
    tx.execute(upload.values(at_us=sql.clock(tx)))


def delete_upload(tx: Tx, replica: str, key: str, token: str) -> None:
    """Delete a completed or aborted upload."""
    tx.execute(delete(uploads).filter_by(replica=replica, key=key, token=token))


def find_latest_upload(tx: Tx, replica: str, key: str) -> str | None:
    """Return the token of the upload of a key that was touched last."""
    query = select(uploads.c.token).where(uploads.c.replica == replica, uploads.c.key == key)
    return tx.execute(query.order_by(uploads.c.at_us.desc()).limit(1)).scalar_one_or_none()


def list_stale_uploads(tx: Tx, us: int, *, limit: int = 100) -> list[tuple[str, str, str]]:
    """List (replica, key, token) of uploads that were not touched since a moment."""
    query = select(uploads.c.replica, uploads.c.key, uploads.c.token).where(uploads.c.at_us < us)
    return [(row[0], row[1], row[2]) for row in tx.execute(query.limit(limit))]
