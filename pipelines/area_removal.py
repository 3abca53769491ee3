"""Remove deleted upload areas, including files that are uploaded late.

An upload through the API locks the area's row and deletes its object if the area is being deleted.
Temporary credentials bypass the API, so a last check follows after they have expired.
"""

from pipelines import area_uploads
from pipelines.copies import Heartbeat
from storage import keys
from storage.catalog import areas, jobs, now_us
from storage.catalog.areas import Area
from storage.errors import NotReady
from storage.model import Job, JobClaim
from storage.stores import Stores

LATE_UPLOAD_S = 86_400
"""Longest duration of an upload that began before its area was deleted."""


def remove_area(stores: Stores, claim: JobClaim, heartbeat: Heartbeat) -> tuple[Job, ...]:
    """Remove an area's uploads, files and rows, and mark it deleted; running it again is safe.

    Raise NotReady until the time of the last check.
    """
    uuid = claim.job.ref
    with stores.catalog.read() as tx:
        area = areas.find(tx, uuid)
    if area is not None and area.state in ("DELETING", "DELETED"):
        _empty_area(stores, uuid, heartbeat)
        area = _mark_deleted(stores, uuid)
    with stores.catalog.write() as tx:
        left_s = 0 if area is None else _final_check_time(area) - now_us(tx) / 1e6
        if left_s <= 0:
            jobs.finish(tx, claim)
            return ()
    raise NotReady("Late uploads are removed at the last check.", retry_after_s=int(left_s) + 1)


def _empty_area(stores: Stores, uuid: str, heartbeat: Heartbeat) -> None:
    """Delete uploads and objects until none is left."""
    while _abort_uploads(stores, uuid, heartbeat) + _delete_objects(stores, uuid, heartbeat):
        pass


def _abort_uploads(stores: Stores, uuid: str, heartbeat: Heartbeat) -> int:
    with stores.catalog.read() as tx:
        uploads = areas.list_uploads(tx, uuid)
    for upload in uploads:
        heartbeat(0)
        area_uploads.discard(stores, upload)
    return len(uploads)


def _delete_objects(stores: Stores, uuid: str, heartbeat: Heartbeat) -> int:
    removed = 0
    for info in stores.areas.list(keys.area_prefix(uuid)):
        heartbeat(0)
        stores.areas.delete(info.key)
        removed += 1
    return removed


def _mark_deleted(stores: Stores, uuid: str) -> Area | None:
    """Mark an empty area deleted; its lock excludes uploads through the API."""
    with stores.catalog.write() as tx:
        area = areas.lock_exclusive(tx, uuid)
        if area is not None and area.state == "DELETING":
            areas.delete_files(tx, uuid)
            areas.set_state(tx, uuid, "DELETED")
        return areas.find(tx, uuid)


def _final_check_time(area: Area) -> float:
    """Return the time of the last check, in seconds since 1970."""
    late = (area.deleted_us or 0) / 1e6 + LATE_UPLOAD_S
    return max(late, (area.granted_us or 0) / 1e6 + LATE_UPLOAD_S / 24)
