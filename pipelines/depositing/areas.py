"""Upload areas: a depositor's folder of staged files. Whose it is, what it lets be done to it; and
files that come through us, checksummed as they arrive.

What lies in an area and what was found of it is in `area_files`, the work on it in
`area_checking` and `area_removing`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pipelines.depositing import area_files, names
from pipelines.flow import Step
from pipelines.keeping import checksums
from pipelines.keeping.checksums import Hashing
from pipelines.keeping.copying import INLINE, fill
from pipelines.limits import AREA_NAME
from storage import keys
from storage.catalog import Tx, areas, todo
from storage.catalog import area_files as rows
from storage.catalog.areas import Area
from storage.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
from storage.model import REPLICAS, Checksums, Todo
from storage.protocols import BlobInfo
from storage.stores import Stores

OPEN, LOCKED = "UNLOCKED", "LOCKED"
"""What the owner of an area may make of it."""
GOING, GONE = "DELETING", "DELETED"


@dataclass(frozen=True, slots=True)
class Incoming:
    """A file on its way in; `length` is what its sender announced, if anything."""

    area: str
    name: str
    content_type: str
    blocks: Iterable[bytes]
    length: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class Received:
    """A file that arrived whole, and what is to be looked at in it still."""

    key: str
    size: int
    checksums: Checksums
    todo: tuple[Todo, ...] = ()


def create(stores: Stores, uuid: str, owner: str) -> bool:
    """Open an area; False when its owner had opened it before. Conflict when somebody else had, and
    when it is deleted: what comes late into one that is deleted is removed."""
    with stores.catalog.write() as tx:
        if areas.add(tx, Area(uuid, owner, OPEN)):
            return True
        taken = areas.get(tx, uuid)
    if taken is None or taken.owner != owner:
        raise Conflict(f"Area {uuid} exists already.", code="already_exists")
    if taken.state in (GOING, GONE):
        raise Conflict(f"Area {uuid} was deleted.", code="already_exists")
    return False


def find(stores: Stores, uuid: str) -> Area:
    """An area; NotFound."""
    return _there(stores.catalog.ask(lambda tx: areas.get(tx, uuid)), uuid)


def owned(stores: Stores, uuid: str, caller: str) -> Area:
    """The caller's area; NotFound, Forbidden."""
    return _owned(find(stores, uuid), caller)


def writable(stores: Stores, uuid: str, caller: str) -> Area:
    """The caller's area, if it takes files; NotFound, Forbidden, Conflict (`area_locked`)."""
    return stores.catalog.ask(lambda tx: writable_in(tx, uuid, caller))


def writable_in(
    tx: Tx, uuid: str, caller: str, *, of: Callable[[Tx, str], Area | None] = areas.get
) -> Area:
    """The same within a transaction; `of` says whether its row is held until that ends."""
    area = _owned(_there(of(tx, uuid), uuid), caller)
    if area.state != OPEN:
        raise Conflict(f"Area {area.uuid} is {area.state}.", code="area_locked")
    return area


def _there(area: Area | None, uuid: str) -> Area:
    if area is None or area.state == GONE:
        raise NotFound(f"There is no area {uuid}.")
    return area


def _owned(area: Area, caller: str) -> Area:
    if area.owner != caller:
        raise Forbidden("This area is another owner's.")
    return area


def change(stores: Stores, uuid: str, state: str, caller: str) -> None:
    """Lock or unlock an area; NotFound, Forbidden, Conflict while it is being deleted."""
    with stores.catalog.write() as tx:
        area = _locked(tx, uuid, caller)
        if area.state == GOING:
            raise Conflict(f"Area {uuid} is {GOING}.", code="area_locked")
        if area.state != state:
            areas.change(tx, uuid, state)


def delete(stores: Stores, uuid: str, caller: str, *, request_id: str = "") -> tuple[Todo, ...]:
    """Have an area removed with all that it holds, locked or not; NotFound, Forbidden."""
    follow = (Todo(Step.AREA_REMOVE, REPLICAS[0], uuid),)
    with stores.catalog.write() as tx:
        area = _locked(tx, uuid, caller)
        if area.state == GOING:
            return follow if todo.resume(tx, follow[0]) else ()
        areas.change(tx, uuid, GOING)
        todo.add(tx, follow, request_id=request_id)
    return follow


def _locked(tx: Tx, uuid: str, caller: str) -> Area:
    return _owned(_there(areas.locked(tx, uuid), uuid), caller)


def check_name(name: str) -> None:
    """Invalid for what can be no file's name."""
    wrong = name_fault(name)
    if wrong is not None:
        raise Invalid(wrong, errors={"filename": [wrong]})


def name_fault(name: str) -> str | None:
    """What is wrong with the name of a file of an area, None when nothing is."""
    wrong = names.fault(name)
    if wrong is None and len(name.encode()) > AREA_NAME:
        return f"In an upload area a name has at most {AREA_NAME} bytes."
    return wrong


def receive(stores: Stores, incoming: Incoming, caller: str, *, request_id: str = "") -> Received:
    """Keep a file with the checksums computed on the way as its metadata.

    The same name again replaces the file. Forbidden for another's area, Conflict (`area_locked`),
    Invalid (name, or fewer bytes than announced), TooLarge.
    """
    check_name(incoming.name)
    with stores.catalog.read() as tx:
        writable_in(tx, incoming.area, caller)
        before = rows.get(tx, incoming.area, incoming.name)
    info, sums = _keep(stores, incoming)
    came = area_files.Came(incoming.area, incoming.name, incoming.content_type, info, sums)
    seen = 0 if before is None else before.generation
    follow = area_files.received(stores, came, seen, request_id=request_id)
    return Received(info.key, info.size, sums, follow)


def _bounded(incoming: Incoming) -> Iterator[bytes]:
    """The blocks, as long as they are not more than allowed and, at the end, all that was said."""
    seen = 0
    for block in incoming.blocks:
        seen += len(block)
        if seen > incoming.limit:
            raise TooLarge(f"A file has at most {incoming.limit} bytes.")
        yield block
    if incoming.length is not None and seen != incoming.length:
        raise Invalid(f"{seen} bytes arrived of {incoming.length}.")


def _keep(stores: Stores, incoming: Incoming) -> tuple[BlobInfo, Checksums]:
    key = keys.area_file(incoming.area, incoming.name)
    announced = incoming.length
    if announced is not None and announced > incoming.limit:
        raise TooLarge(f"A file has at most {incoming.limit} bytes.")
    hashing = Hashing(announced)
    blocks = hashing.over(_bounded(incoming))
    if announced is not None and announced <= INLINE:
        data = b"".join(blocks)
        sums = hashing.result().checksums
        said, metadata = incoming.content_type, area_files.described(sums)
        info = stores.areas.put(key, data, content_type=said, metadata=metadata, replace=True)
        return info, sums
    return _keep_large(stores, replace(incoming, blocks=blocks), key, hashing)


def _keep_large(
    stores: Stores, incoming: Incoming, key: str, hashing: Hashing
) -> tuple[BlobInfo, Checksums]:
    """In parts: the metadata is known only at the end, so it is given at completion."""
    part_size = checksums.part_size(incoming.length or 0)
    upload = stores.areas.upload(key, part_size=part_size, content_type=incoming.content_type)
    try:
        fill(upload, incoming.blocks, part_size, stored=lambda _: None)
        sums = hashing.result().checksums
        info = upload.complete(metadata=area_files.described(sums), replace=True)
    except BaseException:
        upload.abort()
        raise
    return info, sums
