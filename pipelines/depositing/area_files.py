"""What lies in an upload area and what was found of it: said to have come, listed, looked up.

The bucket decides what is there, the catalog what is known of it. Each time that a file is said to
be there is another generation of its row, so that what is found of the bytes before is not taken
for what is found of these.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pipelines.flow import LARGE, Step
from pipelines.keeping.checksums import PREFIX
from storage import keys
from storage.catalog import area_files, areas, todo
from storage.catalog.area_files import AWAITED, AreaFile
from storage.catalog.areas import Area
from storage.errors import Conflict, NotFound, SourceChanged
from storage.model import CHECKSUMS, REPLICAS, Checksums, Todo
from storage.protocols import DEFAULT_TYPE, BlobInfo
from storage.stores import Stores

UNSCHEDULED = "UNSCHEDULED"
STATUSES = (UNSCHEDULED, "SCHEDULED", "CHECKSUMMING", "CHECKSUMMED", "FAILED")
VALIDATIONS = (UNSCHEDULED, "VALIDATING", "VALIDATED", "INVALID")


@dataclass(frozen=True, slots=True)
class Came:
    """A file that came through us, with what its bytes are."""

    area: str
    name: str
    content_type: str
    info: BlobInfo
    checksums: Checksums


@dataclass(frozen=True, slots=True)
class Arrived:
    """How far a file is that was said to have come, and what to send for it."""

    status: str
    todo: tuple[Todo, ...] = ()


@dataclass(frozen=True, slots=True)
class Lying:
    """A file as it lies in an area; what is not known of it yet is None."""

    name: str
    key: str
    size: int
    content_type: str | None
    status: str
    validation: str
    checksums: Checksums | None = None
    cause: str | None = None


def described(sums: Checksums) -> dict[str, str]:
    """The metadata by which an object tells its checksums."""
    return {PREFIX + field: getattr(sums, field) for field in CHECKSUMS}


def is_metadata(name: str, content_type: str) -> bool:
    """Whether a file is to be well-formed JSON."""
    kind = content_type.strip().lower()
    return name.lower().endswith(".json") or kind.startswith("application/json")


def work_on(file: AreaFile) -> Todo:
    """The row by which a file is looked at."""
    step = Step.AREA_CHECKSUM_LARGE if file.size >= LARGE else Step.AREA_CHECKSUM
    return Todo(step, REPLICAS[0], f"{file.area}/{file.name}")


def received(stores: Stores, came: Came, seen: int, *, request_id: str = "") -> tuple[Todo, ...]:
    """Record what came through us, `seen` being the generation that was there when it began; what
    is to be done for it. Whoever else wrote that name meanwhile may have been the last: then what
    lies there is looked at. Conflict, NotFound for an area that went meanwhile."""
    wants = is_metadata(came.name, came.content_type)
    file = AreaFile(
        area=came.area,
        name=came.name,
        pin=came.info.pin,
        size=came.info.size,
        content_type=came.content_type,
        status="CHECKSUMMED",
        validation="VALIDATING" if wants else "VALIDATED",
        checksums=came.checksums,
    )
    with stores.catalog.write() as tx:
        area = areas.held(tx, came.area)
        if _takes(area):
            generation = area_files.keep(tx, file)
            alone = generation == seen + 1
            if not alone:
                area_files.change(tx, _scheduled(replace(file, generation=generation)))
            follow = () if alone and not wants else (work_on(file),)
            todo.add(tx, follow, request_id=request_id)
            return follow
    raise _removed(stores, area, came.area, came.info)


def _takes(area: Area | None) -> bool:
    """Also one that was locked while a file was on its way."""
    return area is not None and area.state in ("UNLOCKED", "LOCKED")


def _scheduled(file: AreaFile) -> AreaFile:
    return replace(file, status="SCHEDULED", validation="VALIDATING", checksums=None, cause=None)


def _removed(stores: Stores, area: Area | None, uuid: str, info: BlobInfo) -> Conflict | NotFound:
    """Nothing stays behind in an area that is removed: what came too late is taken away again."""
    with suppress(SourceChanged):
        stores.areas.delete(info.key, pin=info.pin)
    if area is not None and area.state == "DELETING":
        return Conflict(f"Area {uuid} is {area.state}.", code="area_locked")
    return NotFound(f"There is no area {uuid}.")


def arrived(
    stores: Stores,
    uuid: str,
    name: str,
    said: Mapping[str, Any] | None = None,
    *,
    is_meant: Callable[[BlobInfo], bool] = lambda _: True,
    request_id: str = "",
) -> Arrived:
    """Have a file looked at that came past us, `said` being what its uploader says of it: its
    `size`, `content_type`, `checksums`; nothing, if what lies there by now is not what `is_meant`.
    Saying the same of the same bytes again begins nothing new. The caller saw that the area takes
    files. NotFound when nothing lies there."""
    info = _info(stores, uuid, name)
    said = said if is_meant(info) else None
    file = AreaFile(
        area=uuid,
        name=name,
        pin=info.pin,
        size=info.size,
        content_type=info.content_type or DEFAULT_TYPE,
        status="SCHEDULED",
        validation="VALIDATING",
        declared=said or None,
    )
    with stores.catalog.write() as tx:
        area = areas.held(tx, uuid)
        if _takes(area):
            known = area_files.get(tx, uuid, name)
            if known is not None and _same(known, file) and known.status != "FAILED":
                work = work_on(known)
                return Arrived(known.status, (work,) if todo.resume(tx, work) else ())
            area_files.keep(tx, file)
            todo.add(tx, (work_on(file),), request_id=request_id)
            return Arrived(file.status, (work_on(file),))
    raise _removed(stores, area, uuid, info)


def _same(known: AreaFile, file: AreaFile) -> bool:
    return (known.pin, known.declared) == (file.pin, file.declared)


def _info(stores: Stores, uuid: str, name: str) -> BlobInfo:
    try:
        return stores.areas.head(keys.area_file(uuid, name))
    except NotFound as error:
        raise NotFound(f"There is no file {name} in area {uuid}.") from error


def look(stores: Stores, uuid: str, name: str) -> Lying:
    """One file; NotFound when none of that name lies there."""
    info = _info(stores, uuid, name)
    with stores.catalog.read() as tx:
        row = area_files.get(tx, uuid, name)
    if row is not None and row.status not in AWAITED and row.pin != info.pin:
        row = None
    return _lying(name, info, row)


def listing(stores: Stores, uuid: str, after: str, limit: int) -> list[Lying]:
    """Files in byte order of their names, from beyond one on."""
    prefix = keys.area(uuid)
    found = stores.areas.list(prefix, after=prefix + after if after else "")
    infos = {info.key.removeprefix(prefix): info for info in islice(found, limit)}
    if not infos:
        return []
    with stores.catalog.read() as tx:
        known = area_files.between(tx, uuid, after, max(infos, key=str.encode))
    return [_lying(name, info, known.get(name)) for name, info in infos.items()]


def _lying(name: str, info: BlobInfo, row: AreaFile | None) -> Lying:
    """What lies there, with what is known of it."""
    if row is None or (row.status not in AWAITED and _is_other(row, info)):
        kind = info.content_type
        return Lying(name, info.key, info.size, kind, UNSCHEDULED, UNSCHEDULED)
    return Lying(
        name=name,
        key=info.key,
        size=info.size,
        content_type=row.content_type,
        status=row.status,
        validation=row.validation,
        checksums=row.checksums,
        cause=row.cause,
    )


def _is_other(row: AreaFile, info: BlobInfo) -> bool:
    """Whether another file lies there than is told of, as far as a listing says: where a bucket
    keeps versions its pins are of another kind, and a file of the same size is not told apart."""
    alike = _kind(row.pin) == _kind(info.pin)
    return row.size != info.size or (alike and row.pin != info.pin)


def _kind(pin: str) -> str:
    return pin[: pin.find(":") + 1]


def counted(stores: Stores, uuid: str, column: str) -> dict[str, int]:
    """How many of the files that were said to have come have which `status`, or `validation`."""
    with stores.catalog.read() as tx:
        return area_files.counted(tx, uuid, column)
