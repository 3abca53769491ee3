"""Upload areas: a depositor's folder of staged files, checksummed as they arrive."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pipelines.depositing import names
from pipelines.keeping import checksums
from pipelines.keeping.checksums import PREFIX, Hashing
from pipelines.keeping.copying import INLINE, fill
from storage import keys
from storage.catalog import areas
from storage.catalog.areas import Area
from storage.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
from storage.model import CHECKSUMS, Checksums
from storage.stores import Stores


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
    """A file that arrived whole."""

    key: str
    size: int
    checksums: Checksums


def create(stores: Stores, uuid: str, owner: str) -> bool:
    """Open an area; False when its owner had opened it before, Conflict when somebody else had."""
    with stores.catalog.write() as tx:
        if areas.add(tx, Area(uuid, owner, "UNLOCKED")):
            return True
        taken = areas.get(tx, uuid)
    if taken is None or taken.owner != owner:
        raise Conflict(f"Area {uuid} exists already.", code="already_exists")
    return False


def find(stores: Stores, uuid: str) -> Area:
    """An area; NotFound."""
    with stores.catalog.read() as tx:
        area = areas.get(tx, uuid)
    if area is None or area.state == "DELETED":
        raise NotFound(f"There is no area {uuid}.")
    return area


def receive(stores: Stores, incoming: Incoming, caller: str) -> Received:
    """Keep a file with the checksums computed on the way as its metadata.

    The same name again replaces the file. Forbidden for another's area, Conflict (`area_locked`),
    Invalid (name, or fewer bytes than announced), TooLarge.
    """
    wrong = names.fault(incoming.name)
    if wrong is not None:
        raise Invalid(wrong, errors={"filename": [wrong]})
    area = find(stores, incoming.area)
    if area.owner != caller:
        raise Forbidden("This area is another owner's.")
    if area.state != "UNLOCKED":
        raise Conflict(f"Area {area.uuid} is {area.state}.", code="area_locked")
    return _keep(stores, incoming)


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


def _keep(stores: Stores, incoming: Incoming) -> Received:
    key = keys.area_file(incoming.area, incoming.name)
    announced = incoming.length
    if announced is not None and announced > incoming.limit:
        raise TooLarge(f"A file has at most {incoming.limit} bytes.")
    hashing = Hashing(announced)
    blocks = hashing.over(_bounded(incoming))
    if announced is not None and announced <= INLINE:
        data = b"".join(blocks)
        metadata = _metadata(hashing.result().checksums)
        stores.areas.put(
            key, data, content_type=incoming.content_type, metadata=metadata, replace=True
        )
        return Received(key, len(data), hashing.result().checksums)
    return _keep_large(stores, replace(incoming, blocks=blocks), key, hashing)


def _metadata(sums: Checksums) -> dict[str, str]:
    return {PREFIX + field: getattr(sums, field) for field in CHECKSUMS}


def _keep_large(stores: Stores, incoming: Incoming, key: str, hashing: Hashing) -> Received:
    """In parts: the metadata is known only at the end, so it is given at completion."""
    part_size = checksums.part_size(incoming.length or 0)
    upload = stores.areas.upload(key, part_size=part_size, content_type=incoming.content_type)
    try:
        fill(upload, incoming.blocks, part_size, stored=lambda _: None)
        hashed = hashing.result()
        upload.complete(metadata=_metadata(hashed.checksums), replace=True)
    except BaseException:
        upload.abort()
        raise
    return Received(key, hashed.size, hashed.checksums)
