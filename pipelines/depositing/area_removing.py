"""Removing an upload area with all that it holds, and what comes into it late.

Whoever puts a file through us holds the area's row when it is recorded, and takes it away again
when the area is going. Who holds credentials of the bucket's own does not ask: so it is looked once
more when those have run out.
"""

from pipelines.depositing import area_parts
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import area_files, area_uploads, areas, now_us, todo
from storage.catalog.areas import Area
from storage.errors import Waits
from storage.model import Claim, Todo
from storage.stores import Stores

LATE_S = 86_400
"""After so long nobody can be sending what was begun before an area was deleted."""


def remove(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Remove an area's uploads, files and rows, then say that it is gone; a last look is left to be
    done. Running again finds what is left."""
    uuid = claim.todo.ref
    with stores.catalog.read() as tx:
        area = areas.get(tx, uuid)
    if area is not None and area.state in ("DELETING", "DELETED"):
        _empty(stores, uuid, beat)
        area = _gone(stores, uuid)
    with stores.catalog.write() as tx:
        left_s = 0 if area is None else _last_look(area) - now_us(tx) / 1e6
        if left_s <= 0:
            todo.finish(tx, claim)
            return ()
    raise Waits("What comes late is removed, too.", retry_after_s=int(left_s) + 1)


def _empty(stores: Stores, uuid: str, beat: Beat) -> None:
    """Until a look finds nothing."""
    while _aborted(stores, uuid, beat) + _deleted(stores, uuid, beat):
        pass


def _aborted(stores: Stores, uuid: str, beat: Beat) -> int:
    with stores.catalog.read() as tx:
        uploads = area_uploads.of_area(tx, uuid)
    for upload in uploads:
        beat(0)
        area_parts.forget(stores, upload)
    return len(uploads)


def _deleted(stores: Stores, uuid: str, beat: Beat) -> int:
    removed = 0
    for info in stores.areas.list(keys.area(uuid)):
        beat(0)
        stores.areas.delete(info.key)
        removed += 1
    return removed


def _gone(stores: Stores, uuid: str) -> Area | None:
    """Nothing is there any more, and nobody holds the area who would bring something."""
    with stores.catalog.write() as tx:
        area = areas.locked(tx, uuid)
        if area is not None and area.state == "DELETING":
            area_files.forget(tx, uuid)
            areas.change(tx, uuid, "DELETED")
        return areas.get(tx, uuid)


def _last_look(area: Area) -> float:
    """When it may be that nothing comes any more, in seconds since 1970."""
    late = (area.deleted_us or 0) / 1e6 + LATE_S
    return max(late, (area.granted_us or 0) / 1e6 + LATE_S / 24)
