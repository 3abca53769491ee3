"""Copying bytes from one bucket to another: inside the engine where it can, else through us.

Either way the copy is right or not there: an engine's copy is compared by checksum afterwards, what
streams through us is hashed on its way and completed only if it is as it should be.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pipelines.keeping import repair
from pipelines.keeping.checksums import Hashing, hashed_beside, mismatches, part_size, parts
from storage.errors import AlreadyExists, Damaged, NotFound, SourceChanged
from storage.model import Checksums
from storage.protocols import DEFAULT_TYPE, BlobInfo, BlobStore, StreamTarget, Upload

INLINE = 8 * 1024 * 1024
"""Bytes up to which an object is held in memory."""

Beat = Callable[[int], None]
"""Told how many bytes moved on; renews the claim, raises Lost when it is gone."""


class Ledger(Protocol):
    """Remembers an unfinished copy beyond the death of whoever makes it."""

    def token(self) -> str | None:
        """What an earlier copy of the same bytes to the same place left."""

    def note(self, token: str) -> None:
        """The copy can be taken up by this token from now on."""

    def close(self) -> None:
        """There is nothing to be taken up any more."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be there in the end."""

    key: str
    size: int
    checksums: Checksums


def ignore_progress(_moved: int) -> None:
    """The heartbeat of work that holds no claim."""


def holds(blobs: BlobStore, key: str, size: int) -> bool:
    """Whether an object of this size is there."""
    try:
        return blobs.head(key).size == size
    except (NotFound, Damaged):
        return False


def copy(
    source: BlobStore,
    target: BlobStore,
    key: str,
    target_key: str,
    *,
    size: int,
    checksums: Checksums,
    beat: Beat = ignore_progress,
    ledger: Ledger | None = None,
) -> None:
    """Have the bytes of `key` under `target_key` too. What lies there already stays if it is right,
    and is replaced by verified bytes if it was read again and is damaged.

    SourceChanged when the source's bytes are not as they should be.
    """
    wanted = _Wanted(target_key, size, checksums)
    try:
        info = _copy_in_engine(source, key, target, wanted, beat=beat, ledger=ledger)
    except AlreadyExists:
        if not _is_right(target, wanted, beat):
            sha256 = checksums.sha256
            replace(source, target, key, target_key, size=size, sha256=sha256, beat=beat)
    else:
        info = info or _through_us(source, key, target, wanted, beat=beat, ledger=ledger)
        _check(target, info, wanted, beat=beat)
    if ledger:
        ledger.close()


def replace(
    source: BlobStore,
    target: BlobStore,
    key: str,
    target_key: str,
    *,
    size: int,
    sha256: str,
    beat: Beat = ignore_progress,
) -> None:
    """Replace an object that was read again and found damaged by the verified bytes of `key`.

    SourceChanged, and nothing is replaced, when the source's bytes are damaged too.
    """
    blocks = _verified(source, key, size=size, sha256=sha256)
    if size <= INLINE:
        repair.store_bytes(target, target_key, b"".join(blocks), sha256=sha256, heartbeat=beat)
        return
    step = part_size(size)
    upload = target.upload(target_key, part_size=step, content_type=DEFAULT_TYPE)
    try:
        fill(upload, blocks, step, stored=lambda _number: beat(step))
        repair.complete_upload(
            target, target_key, upload, sha256=sha256, found="damaged", heartbeat=beat
        )
    except BaseException:
        upload.abort()
        raise


def _verified(source: BlobStore, key: str, *, size: int, sha256: str) -> Iterator[bytes]:
    """Yield an object's blocks, and raise SourceChanged at their end if they have another SHA-256.

    The other checksums are of the same bytes: they need no second proof."""
    digest = hashlib.sha256()
    blocks = source.read(key)
    if size > INLINE:
        yield from hashed_beside(blocks, digest.update)
    else:
        for block in blocks:
            digest.update(block)
            yield block
    if digest.hexdigest() != sha256:
        raise SourceChanged(f"The bytes of {key} are damaged.")


def _copy_in_engine(
    source: BlobStore,
    key: str,
    target: BlobStore,
    wanted: _Wanted,
    *,
    beat: Beat,
    ledger: Ledger | None,
) -> BlobInfo | None:
    """None when the engines differ; AlreadyExists when anything lies there."""
    step = part_size(wanted.size)
    # Trying is as good as looking first, but for what takes its time.
    if wanted.size > INLINE and _is_there(target, wanted.key):
        raise AlreadyExists(f"{wanted.key} is there.")
    return target.copy(
        source,
        key,
        wanted.key,
        pin=None,
        part_size=step,
        size=wanted.size,
        resume=ledger.token() if ledger else None,
        progress=partial(_moved, beat, ledger),
    )


def _is_there(blobs: BlobStore, key: str) -> bool:
    try:
        blobs.head(key)
    except NotFound:
        return False
    except Damaged:
        return True
    return True


def _is_right(target: BlobStore, wanted: _Wanted, beat: Beat) -> bool:
    """Whether what lies there already may stay: by the engine's own checksum, or else reread."""
    try:
        info = target.head(wanted.key)
        if info.size == wanted.size and right(target, info, wanted.checksums, beat):
            return True
    except (NotFound, Damaged):
        return False
    sha256 = wanted.checksums.sha256
    return repair.inspect_blob(target, wanted.key, sha256, beat) == "intact"


def _moved(beat: Beat, ledger: Ledger | None, token: str, _bytes: int) -> None:
    if ledger and token:
        ledger.note(token)
    beat(0)


def _check(target: BlobStore, info: BlobInfo, wanted: _Wanted, *, beat: Beat) -> None:
    """The copy that was just made has the right bytes, or is removed."""
    if info.size == wanted.size and right(target, info, wanted.checksums, beat):
        return
    repair.undo_copy(target, info)
    raise Damaged(f"The copy of {info.key} came out wrong.")


def remove_wrong(
    target: BlobStore, key: str, *, size: int, checksums: Checksums, beat: Beat = ignore_progress
) -> None:
    """Remove a copy that the caller has just made under a free key, if it came out wrong."""
    with suppress(NotFound, Damaged):
        _check(target, target.head(key), _Wanted(key, size, checksums), beat=beat)


def right(target: BlobStore, info: BlobInfo, checksums: Checksums, beat: Beat) -> bool:
    """By what the engine found while it stored the bytes, else by reading them again."""
    # Copies are made in the parts of the rule; with some encryptions a tag is no digest at all.
    if info.etag == checksums.s3_etag:
        return True
    if info.crc32c is not None:
        return info.crc32c == checksums.crc32c
    hashing = Hashing(info.size)
    for block in hashing.over(target.read(info.key, pin=info.pin)):
        beat(len(block))
    return not mismatches(checksums, hashing.result())


def _through_us(
    source: BlobStore,
    key: str,
    target: BlobStore,
    wanted: _Wanted,
    *,
    beat: Beat,
    ledger: Ledger | None,
) -> BlobInfo:
    """Whole if it is small, else in parts, of which those that a dead worker stored are kept.

    What has one part only is streamed into place where the target can do that."""
    if wanted.size > INLINE:
        has_one_part = wanted.size <= part_size(wanted.size)
        is_begun = ledger is not None and ledger.token() is not None
        if isinstance(target, StreamTarget) and has_one_part and not is_begun:
            return _streamed(source, key, target, wanted, beat=beat)
        return _in_parts(source, key, target, wanted, beat=beat, ledger=ledger)
    sha256 = wanted.checksums.sha256
    data = b"".join(_verified(source, key, size=wanted.size, sha256=sha256))
    return repair.store_bytes(target, wanted.key, data, sha256=sha256, heartbeat=beat)


def _streamed(
    source: BlobStore, key: str, target: StreamTarget, wanted: _Wanted, *, beat: Beat
) -> BlobInfo:
    def told() -> Iterator[bytes]:
        sha256 = wanted.checksums.sha256
        for block in _verified(source, key, size=wanted.size, sha256=sha256):
            beat(len(block))
            yield block

    return repair.store_stream(
        target,
        wanted.key,
        told(),
        size=wanted.size,
        checksums=wanted.checksums,
        heartbeat=beat,
    )


def _in_parts(
    source: BlobStore,
    key: str,
    target: BlobStore,
    wanted: _Wanted,
    *,
    beat: Beat,
    ledger: Ledger | None,
) -> BlobInfo:
    step, sha256 = part_size(wanted.size), wanted.checksums.sha256
    upload = _taken_up(target, wanted.key, step, ledger)
    stored = upload.parts()
    kept = next(n for n in itertools.count() if stored.get(n + 1) != step)
    try:
        told = partial(_moved, beat, ledger, upload.token)
        fill(upload, _rest(source, key, wanted, kept * step), step, first=kept + 1, stored=told)
        return repair.complete_upload(
            target, wanted.key, upload, sha256=sha256, found="absent", heartbeat=beat
        )
    except BaseException as error:
        if ledger is None or isinstance(error, SourceChanged):
            upload.abort()
        raise


def _rest(source: BlobStore, key: str, wanted: _Wanted, start: int) -> Iterator[bytes]:
    """The bytes from `start` on. What a dead worker stored before them was not hashed by us: the
    engine's own checksum of the whole decides then."""
    if start == 0:
        yield from _verified(source, key, size=wanted.size, sha256=wanted.checksums.sha256)
    elif start < wanted.size:
        yield from source.read(key, start=start)


def _taken_up(target: BlobStore, key: str, step: int, ledger: Ledger | None) -> Upload:
    token = ledger.token() if ledger else None
    if token:
        with suppress(NotFound):
            return target.upload(key, part_size=step, content_type=DEFAULT_TYPE, token=token)
    upload = target.upload(key, part_size=step, content_type=DEFAULT_TYPE)
    if ledger:
        ledger.note(upload.token)
    return upload


def fill(
    upload: Upload,
    blocks: Iterable[bytes],
    step: int,
    *,
    first: int = 1,
    stored: Callable[[int], None],
) -> None:
    """Store blocks as the parts of an upload from `first` on; `stored` is told each number."""
    for number, part in enumerate(parts(blocks, step), start=first):
        upload.part(number, part)
        stored(number)
