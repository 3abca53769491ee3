"""Tasks: one attempt each to take a file in; at most one of a `uuid.version` is open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Row, Select, bindparam, select, update

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_now, now_us, sql
from storage.catalog.schema import tasks
from storage.model import CHECKSUMS, FQID, Checksums, Replica


@dataclass(frozen=True, slots=True)
class TaskRow:
    """What was declared of a file and how far its verification is; states as `GET /tasks` says,
    except that RUNNING is only known from the claim on its to-do row."""

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


def _row(row: Row[Any]) -> TaskRow:
    return TaskRow(
        id=row.id,
        fqid=FQID(row.uuid, row.version),
        replica=row.replica,
        state=row.state,
        digest=row.digest,
        source_url=row.source_url,
        pin=row.pin,
        size=row.size,
        content_type=row.content_type,
        creator_uid=row.creator_uid,
        author=row.author,
        declared=Checksums(row.sha1, row.sha256, row.crc32c, row.s3_etag),
        bytes_done=row.bytes_done,
        cause=None if row.cause is None else orjson.loads(row.cause),
        created_us=row.created_us,
    )


# Built once: that takes longer than running them.
_GET = select(tasks).where(tasks.c.id == bindparam("id"))
_CURRENT = (
    select(tasks)
    .where(tasks.c.uuid == bindparam("uuid"), tasks.c.version == bindparam("version"))
    .order_by(tasks.c.created_us.desc(), tasks.c.id)
    .limit(1)
)
_LATEST_OPEN = (
    select(tasks)
    .where(tasks.c.uuid == bindparam("uuid"), tasks.c.finished_us.is_(None))
    .order_by(tasks.c.version.desc())
    .limit(1)
)
_NAMED = ", ".join(f"t.{column.name}" for column in tasks.c)
_TEXTS = ("id", "replica", "state", "digest", "source_url", "pin", "content_type", "author")


def _first(tx: Tx, query: Select[Any], named: Mapping[str, str]) -> TaskRow | None:
    row = tx.execute(query, named).first()
    return None if row is None else _row(row)


def get(tx: Tx, ident: str) -> TaskRow | None:
    """The task of that id."""
    return _first(tx, _GET, {"id": ident})


def among(tx: Tx, idents: Sequence[str]) -> list[TaskRow]:
    """The tasks of those ids."""
    return [_row(row) for row in tx.execute(select(tasks).where(tasks.c.id.in_(idents)))]


def current(tx: Tx, fqid: FQID) -> TaskRow | None:
    """The latest task of a version: the open one, if there is one."""
    return _first(tx, _CURRENT, fqid._asdict())


def latest_open(tx: Tx, uuid: str) -> TaskRow | None:
    """The open task of a uuid's greatest version."""
    return _first(tx, _LATEST_OPEN, {"uuid": uuid})


def open_among(tx: Tx, fqids: Sequence[FQID]) -> list[TaskRow]:
    """The open tasks of these versions."""
    source, parameters = bulk.derived(tx, "wanted", bulk.fqids(fqids))
    same = "t.uuid = wanted.uuid AND t.version = wanted.version AND t.finished_us IS NULL"
    task = bulk.one_each(tx, "tasks", "t", same)
    return [
        _row(row) for row in tx.execute(sql(f"SELECT {_NAMED} FROM {source} {task}"), parameters)
    ]


def start_all(tx: Tx, new: Sequence[TaskRow]) -> None:
    """Open tasks; the caller holds the files' heads and saw that none is open."""
    if not new:
        return
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        **bulk.fqids(task.fqid for task in new),
        "size": ("bigint", [task.size for task in new]),
        "creator_uid": ("bigint", [task.creator_uid for task in new]),
    }
    for name in _TEXTS:
        columns[name] = ("text", [getattr(task, name) for task in new])
    for name in CHECKSUMS:
        columns[name] = ("text", [getattr(task.declared, name) for task in new])
    source, parameters = bulk.derived(tx, "new", columns)
    names = ", ".join(columns)
    execute_now(
        tx,
        f"INSERT INTO tasks ({names}, created_us) SELECT {names}, :now FROM {source} WHERE true",
        parameters,
    )


def progress(tx: Tx, ident: str, bytes_done: int) -> None:
    """Say how many bytes were read."""
    tx.execute(update(tasks).where(tasks.c.id == ident).values(bytes_done=bytes_done))


def finish(tx: Tx, ident: str, *, state: str, cause: Mapping[str, Any] | None = None) -> None:
    """Close a task for good; a successful one has read every byte."""
    text = None if cause is None else orjson.dumps(cause).decode()
    done = {"bytes_done": tasks.c.size} if state == "SUCCEEDED" else {}
    values = {"state": state, "cause": text, "finished_us": now_us(tx), **done}
    tx.execute(update(tasks).where(tasks.c.id == ident).values(**values))


def succeed_all(tx: Tx, idents: Sequence[str]) -> None:
    """Close several tasks whose files are published."""
    values = {"state": "SUCCEEDED", "cause": None, "finished_us": now_us(tx)}
    done = update(tasks).where(tasks.c.id.in_(idents))
    tx.execute(done.values(bytes_done=tasks.c.size, **values))
