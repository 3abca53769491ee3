"""Files that come into an upload area by parts, through the API: begun, gone on with by whoever has
their id, aborted. How they become files is in `area_completing`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pipelines.depositing import areas as staged
from pipelines.keeping.checksums import part_size
from storage import keys
from storage.catalog import Tx, area_uploads, areas, now_us
from storage.catalog.area_uploads import AreaUpload
from storage.errors import Invalid, NotFound, TooLarge
from storage.protocols import Upload
from storage.stores import Stores

MARK = "upload-id"
"""Metadata by which an object is known as what an upload became."""


@dataclass(frozen=True, slots=True)
class Named:
    """An upload as its id names it."""

    area: str
    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Begun:
    """An upload, and which parts of it are stored."""

    upload: AreaUpload
    stored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part on its way in; `length` is what its sender announced."""

    number: int
    length: int | None
    blocks: Iterable[bytes]


def count(upload: AreaUpload) -> int:
    """How many parts it has; an empty file has none."""
    return -(-upload.size // upload.part_size)


def begin(stores: Stores, wanted: AreaUpload, caller: str, *, limit: int) -> Begun:
    """A new upload, of which `token` and `part_size` are settled here. Invalid (name), TooLarge;
    NotFound, Forbidden, Conflict (`area_locked`) of the area."""
    staged.check_name(wanted.name)
    if wanted.size > limit:
        raise TooLarge(f"A file has at most {limit} bytes.")
    with stores.catalog.read() as tx:
        staged.writable_in(tx, wanted.area, caller)
    step = part_size(wanted.size)
    begun = stores.areas.upload(
        keys.area_file(wanted.area, wanted.name),
        part_size=step,
        content_type=wanted.content_type,
        metadata={MARK: wanted.id},
    )
    upload = AreaUpload(
        id=wanted.id,
        area=wanted.area,
        name=wanted.name,
        token=begun.token,
        size=wanted.size,
        content_type=wanted.content_type,
        part_size=step,
    )
    try:
        with stores.catalog.write() as tx:
            staged.writable_in(tx, wanted.area, caller, of=areas.held)
            area_uploads.opened(tx, upload)
    except BaseException:
        begun.abort()
        raise
    return Begun(upload, ())


def find(stores: Stores, upload: Named, caller: str) -> AreaUpload:
    """An upload into an area of the caller's that takes files; NotFound when it is gone."""
    with stores.catalog.read() as tx:
        staged.writable_in(tx, upload.area, caller)
        return _found(tx, upload.id)


def _found(tx: Tx, ident: str) -> AreaUpload:
    upload = area_uploads.get(tx, ident)
    if upload is None:
        raise NotFound("There is no such upload: it was completed, aborted or forgotten.")
    return upload


def take_up(stores: Stores, upload: Named, caller: str) -> Begun:
    """The same, and which parts are stored: those that came whole."""
    begun = find(stores, upload, caller)
    return Begun(begun, tuple(sorted(whole(begun, unfinished(stores, begun)))))


def unfinished(stores: Stores, upload: AreaUpload) -> Upload:
    """The upload as its bucket has it; NotFound."""
    key = keys.area_file(upload.area, upload.name)
    return stores.areas.upload(
        key, part_size=upload.part_size, content_type=upload.content_type, token=upload.token
    )


def whole(upload: AreaUpload, stored: Upload) -> set[int]:
    """The parts that are there with all their bytes."""
    parts = stored.parts()
    return {number for number, size in parts.items() if size == _length(upload, number)}


def _length(upload: AreaUpload, number: int) -> int:
    """Bytes that a part has."""
    return min(upload.part_size, upload.size - (number - 1) * upload.part_size)


def expected(upload: AreaUpload, number: int) -> int:
    """Bytes that a part of this number has; Invalid when there is none."""
    most = count(upload)
    if not 1 <= number <= most:
        said = f"Parts are 1 to {most}." if most else "An empty file has no parts."
        raise Invalid(said, errors={"part": [said]})
    return _length(upload, number)


def receive(stores: Stores, upload: AreaUpload, part: Part) -> str:
    """Store one part, again if it is there; returns its MD5 as hex digits. Invalid unless as many
    bytes come as it has: then it is to be sent again."""
    length = expected(upload, part.number)
    if part.length != length:
        given = "" if part.length is None else f", not {part.length}"
        said = f"Part {part.number} has {length} bytes, and Content-Length says so{given}."
        raise Invalid(said, errors={"part": [said]})
    digest = hashlib.md5(usedforsecurity=False)
    with stores.catalog.write() as tx:
        if not area_uploads.touched(tx, upload.id):
            _found(tx, upload.id)
    storing = unfinished(stores, upload)
    storing.part(part.number, _exactly(part.blocks, length, digest))
    return digest.hexdigest()


def _exactly(blocks: Iterable[bytes], length: int, digest: "hashlib._Hash") -> Iterator[bytes]:
    seen = 0
    for block in blocks:
        seen += len(block)
        if seen > length:
            break
        digest.update(block)
        yield block
    if seen != length:
        raise Invalid(f"{seen} bytes arrived of a part of {length}.")


def abort(stores: Stores, upload: Named, caller: str) -> None:
    """Forget an upload and its parts; nothing when it is gone. In areas that take no files, too."""
    staged.owned(stores, upload.area, caller)
    with stores.catalog.read() as tx:
        found = area_uploads.get(tx, upload.id)
    if found is not None:
        forget(stores, found)


def forget(stores: Stores, upload: AreaUpload) -> None:
    """Abort an upload that nobody goes on with."""
    with suppress(NotFound):
        unfinished(stores, upload).abort()
    with stores.catalog.write() as tx:
        area_uploads.closed(tx, upload.id)


def sweep(stores: Stores, *, older_than_s: float) -> int:
    """Abort what nobody has gone on with for so long; returns how many."""
    with stores.catalog.read() as tx:
        uploads = area_uploads.older_than(tx, now_us(tx) - int(older_than_s * 1e6))
    for upload in uploads:
        forget(stores, upload)
    return len(uploads)
