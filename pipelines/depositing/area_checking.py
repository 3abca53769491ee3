"""Files that came into an upload area past us, or that are to be JSON: read, compared with what was
said of them, and described by their checksums, so that they may be a source.

It may run twice, half, or beside its twin: what it finds is written for the generation of the row
that it began with, and said of the very bytes that were read.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from pipelines.depositing.area_files import described, is_metadata
from pipelines.finding.documents import MAX_FILE_BYTES
from pipelines.finding.metadata import Unreadable, parse
from pipelines.keeping.checksums import PREFIX, Hashed, Hashing
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import area_files, todo
from storage.catalog.area_files import AreaFile
from storage.errors import Damaged, Invalid, NotFound, SourceChanged
from storage.model import CHECKSUMS, Checksums, Claim, Todo
from storage.protocols import DEFAULT_TYPE, BlobInfo
from storage.stores import Stores

CHANGING_ATTEMPTS = 4
"""Readings that may find the file replaced meanwhile, before that is what is told of it."""


ALONE_FROM = 1024 * 1024
"""Bytes of JSON from which one at a time is parsed in a process: it may become forty times them."""
PARSING = Lock()
"""Held meanwhile."""
WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Content:
    """What was read: its checksums, and the bytes themselves where they are to be JSON."""

    hashed: Hashed
    text: bytes | None


def check(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Read a file as it lies there now, and write down what it is and whether that is right."""
    row = _begun(stores, claim)
    if row is None:
        return ()
    found = _found(stores, row, claim, beat)
    with stores.catalog.write() as tx:
        # Of a later generation whoever recorded it says what is to be done.
        area_files.change(tx, found)
        todo.finish(tx, claim)
    return ()


def _begun(stores: Stores, claim: Claim) -> AreaFile | None:
    area, _, name = claim.todo.ref.partition("/")
    with stores.catalog.write() as tx:
        row = area_files.get(tx, area, name)
        if row is None or row.validation != "VALIDATING":
            todo.finish(tx, claim)
            return None
        if row.status == "SCHEDULED":
            row = replace(row, status="CHECKSUMMING")
            area_files.change(tx, row)
    return row


def _found(stores: Stores, row: AreaFile, claim: Claim, beat: Beat) -> AreaFile:
    try:
        if row.status == "CHECKSUMMED":
            with suppress(SourceChanged):
                return _read_again(stores, row, beat)
        return _checked(stores, row, beat)
    except SourceChanged as error:
        if claim.attempts < CHANGING_ATTEMPTS:
            raise
        return _failed(stores, row, error.detail)
    except NotFound:
        return _failed(stores, row, "There is no such file in the area any more.")
    except (Damaged, Invalid) as error:
        return _failed(stores, row, error.detail)


def _failed(stores: Stores, row: AreaFile, cause: str) -> AreaFile:
    """Told of what lies there now, if that can be seen: of other bytes nobody would be told it."""
    with suppress(NotFound, Damaged, Invalid):
        info = _head(stores, row)
        row = replace(row, pin=info.pin, size=info.size)
    return replace(row, status="FAILED", validation="INVALID", checksums=None, cause=cause)


def _read_again(stores: Stores, row: AreaFile, beat: Beat) -> AreaFile:
    """What came through us has its checksums; only whether it is JSON is not known yet."""
    info = replace(_head(stores, row), pin=row.pin)
    fault = _too_large(info) or _no_json(b"".join(_blocks(stores, info, beat)), beat)
    return _judged(row, fault)


def _checked(stores: Stores, row: AreaFile, beat: Beat) -> AreaFile:
    info = _head(stores, row)
    kind = info.content_type or DEFAULT_TYPE
    content = _read(stores, row, info, beat)
    sums = _as_declared(content.hashed, info.metadata)
    fault = _otherwise(row.declared or {}, info, kind, content.hashed)
    if fault is None:
        info = stores.areas.describe(
            info.key, described(sums), pin=info.pin, progress=lambda _token, _done: beat(0)
        )
        if is_metadata(row.name, kind):
            fault = _too_large(info) or _no_json(content.text or b"", beat)
    now = replace(row, pin=info.pin, size=info.size, content_type=kind)
    return _judged(replace(now, status="CHECKSUMMED", checksums=sums), fault)


def _judged(row: AreaFile, fault: str | None) -> AreaFile:
    return replace(row, validation="INVALID" if fault else "VALIDATED", cause=fault)


def _head(stores: Stores, row: AreaFile) -> BlobInfo:
    return stores.areas.head(keys.area_file(row.area, row.name))


def _blocks(stores: Stores, info: BlobInfo, beat: Beat) -> Iterator[bytes]:
    for block in stores.areas.read(info.key, pin=info.pin):
        beat(len(block))
        yield block


def _read(stores: Stores, row: AreaFile, info: BlobInfo, beat: Beat) -> Content:
    """Every byte once; kept only where they are few enough to be looked at as JSON."""
    hashing = Hashing(info.size)
    wanted = is_metadata(row.name, info.content_type or "") and info.size <= MAX_FILE_BYTES
    kept: list[bytes] = []
    for block in hashing.over(_blocks(stores, info, beat)):
        if wanted:
            kept.append(block)
    return Content(hashing.result(), b"".join(kept) if wanted else None)


def _as_declared(hashed: Hashed, metadata: Mapping[str, str]) -> Checksums:
    """The checksums, with the entity tag in the form that its object has already, if it is one of
    the two that are right."""
    said = metadata.get(f"{PREFIX}s3_etag", "").lower()
    if said and said == hashed.other_etag:
        return replace(hashed.checksums, s3_etag=said)
    return hashed.checksums


def _otherwise(said: Mapping[str, Any], info: BlobInfo, kind: str, hashed: Hashed) -> str | None:
    """How the file is not what its uploader says, in words or by the object's own metadata."""
    if said.get("size", info.size) != info.size:
        return f"It has {info.size} bytes and not {said['size']}."
    if said.get("content_type", kind) != kind:
        return f"Its content type is {kind} and not {said['content_type']}."
    own = {field: info.metadata.get(PREFIX + field) for field in CHECKSUMS}
    for told in (said.get("checksums") or {}, own):
        for field in CHECKSUMS:
            fault = _mismatch(field, told.get(field), hashed)
            if fault is not None:
                return fault
    return None


def _mismatch(field: str, said: str | None, hashed: Hashed) -> str | None:
    right = getattr(hashed.checksums, field)
    if not said or said.lower() in (right, hashed.other_etag):
        return None
    return f"{field} was declared as {said} but is {right}."


def _too_large(info: BlobInfo) -> str | None:
    """Of what is to be JSON."""
    if info.size > MAX_FILE_BYTES:
        return f"As JSON it is too large: {info.size} bytes of at most {MAX_FILE_BYTES}."
    return None


def _no_json(content: bytes, beat: Beat) -> str | None:
    with _alone(beat) if len(content) >= ALONE_FROM else nullcontext():
        try:
            parse(content)
        except Unreadable as error:
            return f"It is no JSON that can be read: {error}."
    return None


@contextmanager
def _alone(beat: Beat) -> Iterator[None]:
    while not PARSING.acquire(timeout=WAIT_S):
        beat(0)
    try:
        beat(0)
        yield
    finally:
        PARSING.release()
