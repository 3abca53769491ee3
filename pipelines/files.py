"""Files: locate versions, sign URLs of their bytes, put their records and publish them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines import flow, integrity, records
from storage import keys
from storage.catalog import Tx, files, ingest, purges, versions
from storage.catalog.ingest import IngestTaskRow
from storage.errors import ConflictError, NotFoundError, Unprocessable
from storage.model import FQID, FileVersion, Job, ManifestEntry, Replica
from storage.stores import Stores

KIND: keys.Kind = "file"


@dataclass(frozen=True, slots=True)
class FileLocation:
    """Where a version is: `here`, complete but `elsewhere`, or `pending` in `task`."""

    state: Literal["here", "pending", "elsewhere"]
    file: FileVersion | None
    task: IngestTaskRow | None = None


def locate(stores: Stores, replica: Replica, uuid: str, version: str | None) -> FileLocation:
    """Return a version, by default the latest here, else elsewhere, else the pending one.

    Raise NotFoundError, or Unprocessable if the verification of the named version failed.
    """
    with stores.catalog.read() as tx:
        location = (
            _locate_latest(tx, replica, uuid)
            if version is None
            else _locate_version(tx, replica, uuid, version)
        )
    if location is None:
        name = uuid if version is None else f"{uuid}.{version}"
        raise NotFoundError(f"There is no file {name}.")
    return location


def _locate_latest(tx: Tx, replica: Replica, uuid: str) -> FileLocation | None:
    newest = versions.find_latest(tx, KIND, replica, uuid)
    if newest is not None:
        return FileLocation("here", files.get(tx, newest[1]))
    elsewhere = files.find_latest(tx, uuid)
    if elsewhere is not None:
        return FileLocation("elsewhere", elsewhere)
    task = ingest.find_latest_open(tx, uuid)
    return None if task is None else FileLocation("pending", None, task)


def _locate_version(tx: Tx, replica: Replica, uuid: str, version: str) -> FileLocation | None:
    fqid = FQID(uuid, version)
    if purges.filter_purged(tx, KIND, [fqid]):
        return None
    row = files.find(tx, fqid)
    task = ingest.find_current(tx, fqid)
    if row is not None:
        if versions.find_published(tx, KIND, replica, fqid) is not None:
            return FileLocation("here", row)
        if row.published:
            return FileLocation("elsewhere", row)
        return FileLocation("pending", row, task)
    if task is None:
        return None
    if task.state == "FAILED":
        cause = dict(task.cause or {})
        code = str(cause.get("code", "checksum_mismatch"))
        raise Unprocessable(str(cause.get("detail", "Verification failed.")), code=code)
    return FileLocation("pending", None, task)


def list_versions(stores: Stores, uuid: str, *, limit: int) -> list[FileVersion]:
    """List the latest published versions of a file in any replica, the latest first."""
    with stores.catalog.read() as tx:
        return files.list_versions(tx, uuid, limit=limit)


def content_url(
    stores: Stores,
    replica: Replica,
    file: FileVersion | ManifestEntry,
    *,
    expires_s: int,
    disposition: str | None = None,
) -> str:
    """Return a presigned URL of a file's bytes, with the file's content type."""
    return stores.replicas[replica].sign(
        keys.blob_key(file.checksums.sha256),
        expires_s=expires_s,
        content_type=file.content_type,
        disposition=disposition,
    )


def direct_url(stores: Stores, replica: Replica, sha256: str) -> str:
    """Return the unsigned URL of a blob in its cloud."""
    return stores.replicas[replica].direct_url(keys.blob_key(sha256))


def put_origin_record(stores: Stores, row: FileVersion) -> None:
    """Put the record of a reserved file into its origin's bucket; ConflictError if it differs."""
    if not put_record(stores, row, row.origin):
        raise ConflictError(f"The record of {row.fqid} differs.", code="file_already_exists")


def put_record(stores: Stores, row: FileVersion, replica: Replica) -> bool:
    """Put a file's record into a bucket; return False, and record it, if other bytes exist."""
    key = keys.record_key(KIND, row.fqid)
    if integrity.put_or_repair_record(stores, replica, key, records.encode_file_record(row)):
        return True
    with stores.catalog.write() as tx:
        versions.record_stored(tx, KIND, row.id, replica, diverged=True)
    return False


def publish(tx: Tx, row: FileVersion) -> tuple[Job, ...]:
    """Publish a file whose record is in its origin's bucket; return the jobs that follow."""
    return publish_all(tx, [row]).get(row.fqid, ())


def publish_all(tx: Tx, rows: Sequence[FileVersion]) -> dict[FQID, tuple[Job, ...]]:
    """Publish files of one origin; return nothing for those published before, or purged."""
    versions.lock_heads(tx, KIND, [row.fqid.uuid for row in rows])
    published = versions.mark_all_published(tx, KIND, [row.fqid for row in rows])
    new = [row for row in rows if row.fqid in published]
    if new:
        files.publish(tx, new, new[0].origin)
    following: dict[FQID, tuple[Job, ...]] = {}
    for row in new:
        fqid, is_large = row.fqid, row.size >= flow.LARGE_BYTES
        step = flow.Step.SYNC_LARGE if is_large else flow.Step.SYNC
        follow = flow.following_jobs("publish", KIND, row.origin, str(fqid))
        following[fqid] = tuple(job._replace(step=step) for job in follow)
    return following
