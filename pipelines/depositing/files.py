"""Files: published once their record is in a bucket; found by version; where their bytes lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines import flow
from pipelines.keeping import integrity, records
from storage import keys
from storage.catalog import Tx, files, heads, purges, tasks, versions, visibility
from storage.catalog.tasks import TaskRow
from storage.errors import Conflict, NotFound, Unprocessable
from storage.model import FQID, Entry, FileVersion, Replica, Todo
from storage.stores import Stores

KIND: keys.Kind = "file"


@dataclass(frozen=True, slots=True)
class Located:
    """How a version stands in a replica: `here`, whole but `elsewhere`, or `pending` in `task`."""

    state: Literal["here", "pending", "elsewhere"]
    file: FileVersion | None
    task: TaskRow | None = None


def locate(stores: Stores, replica: Replica, uuid: str, version: str | None) -> Located:
    """A version, or the latest that is visible here, else elsewhere, else the pending one.

    NotFound; Unprocessable for a named version whose verification failed.
    """
    with stores.catalog.read() as tx:
        found = (
            _latest(tx, replica, uuid) if version is None else _named(tx, replica, uuid, version)
        )
    if found is None:
        named = uuid if version is None else f"{uuid}.{version}"
        raise NotFound(f"There is no file {named}.")
    return found


def _latest(tx: Tx, replica: Replica, uuid: str) -> Located | None:
    newest = visibility.latest(tx, KIND, replica, uuid)
    if newest is not None:
        return Located("here", files.by_id(tx, newest[1]).file)
    elsewhere = files.latest_anywhere(tx, uuid)
    if elsewhere is not None:
        return Located("elsewhere", elsewhere.file)
    task = tasks.latest_open(tx, uuid)
    return None if task is None else Located("pending", None, task)


def _named(tx: Tx, replica: Replica, uuid: str, version: str) -> Located | None:
    fqid = FQID(uuid, version)
    if purges.among(tx, KIND, [fqid]):
        return None
    row = files.by_fqid(tx, fqid)
    task = tasks.current(tx, fqid)
    if row is not None:
        return _standing(tx, replica, row, task)
    if task is None:
        return None
    if task.state == "FAILED":
        cause = dict(task.cause or {})
        code = str(cause.get("code", "checksum_mismatch"))
        raise Unprocessable(str(cause.get("detail", "Verification failed.")), code=code)
    return Located("pending", None, task)


def _standing(
    tx: Tx, replica: Replica, row: files.Reserved, task: TaskRow | None
) -> Located | None:
    if visibility.find(tx, KIND, replica, row.file.fqid) is not None:
        return Located("here", row.file)
    if row.published:
        return Located("elsewhere", row.file)
    return Located("pending", row.file, task)


def content_url(
    stores: Stores,
    replica: Replica,
    file: FileVersion | Entry,
    *,
    expires_s: int,
    disposition: str | None = None,
) -> str:
    """A URL that anybody may GET for a while; the content type is the file's, not the blob's."""
    return stores.replicas[replica].sign(
        keys.blob(file.checksums.sha256),
        expires_s=expires_s,
        content_type=file.content_type,
        disposition=disposition,
    )


def direct_url(stores: Stores, replica: Replica, sha256: str) -> str:
    """The bytes' address in their cloud's own words."""
    return stores.replicas[replica].direct_url(keys.blob(sha256))


def complete(stores: Stores, row: files.Reserved) -> None:
    """Put the record of a reserved file into its origin's bucket; Conflict if it differs."""
    if not put_record(stores, row, row.file.origin):
        raise Conflict(f"The record of {row.file.fqid} differs.", code="file_already_exists")


def put_record(stores: Stores, row: files.Reserved, replica: Replica) -> bool:
    """Put a file's record into a bucket; False, and alarmed, when other bytes lie there."""
    key = keys.record(KIND, row.file.fqid)
    if integrity.place_record(stores, replica, key, records.of_file(row)):
        return True
    with stores.catalog.write() as tx:
        visibility.record_seen(tx, KIND, row.file.id, replica, diverged=True)
    return False


def publish(tx: Tx, row: files.Reserved) -> tuple[Todo, ...]:
    """Let readers of the origin see a file whose record is in its bucket; returns what follows."""
    return publish_all(tx, [row]).get(row.file.fqid, ())


def publish_all(tx: Tx, rows: Sequence[files.Reserved]) -> dict[FQID, tuple[Todo, ...]]:
    """The same for files of one origin; nothing for one that was published before, or purged."""
    heads.lock(tx, KIND, [row.file.fqid.uuid for row in rows])
    published = versions.publish_all(tx, KIND, [row.file.fqid for row in rows])
    fresh = [row for row in rows if row.file.fqid in published]
    if fresh:
        files.reveal(tx, fresh, fresh[0].file.origin)
    return {row.file.fqid: _follow(row) for row in fresh}


def _follow(row: files.Reserved) -> tuple[Todo, ...]:
    step = flow.Step.SYNC_LARGE if row.file.size >= flow.LARGE else flow.Step.SYNC
    follow = flow.follows("publish", KIND, row.file.origin, f"{KIND}:{row.file.fqid}")
    return tuple(todo._replace(step=step) for todo in follow)
