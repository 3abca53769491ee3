"""Copying bytes from one bucket to another: inside the engine where it can, else through us.

Either way the copy is right or not there: an engine's copy is compared by checksum afterwards, what
streams through us is hashed on its way and completed only if it is as it should be.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

from pipelines.checksums import Hashing, mismatches, part_size, parts
from storage.errors import AlreadyExists, Damaged, NotFound, SourceChanged
from storage.model import Checksums
from storage.protocols import DEFAULT_TYPE, BlobStore

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


def _still(_moved: int) -> None:
    """For copies that nobody waits for."""


def holds(blobs: BlobStore, key: str, size: int) -> bool:
    """Whether an object of this size is there."""
    try:
        return blobs.head(key).size == size
    except NotFound:
        return False


def copy(
    source: BlobStore,
    target: BlobStore,
    key: str,
    target_key: str,
    *,
    size: int,
    checksums: Checksums,
    beat: Beat = _still,
    ledger: Ledger | None = None,
) -> None:
    """Have the bytes of `key` under `target_key` too; what lies there already is checked only.

    SourceChanged when the source's bytes are not as they should be.
    """
    if not holds(target, target_key, size):
        pin = source.head(key).pin
        with suppress(AlreadyExists):
            copied = target.copy(
                source,
                key,
                target_key,
                pin=pin,
                part_size=part_size(size),
                resume=ledger.token() if ledger else None,
                progress=partial(_moved, beat, ledger),
            )
            if copied is None:
                hashing = Hashing(size)
                blocks = hashing.over(source.read(key, pin=pin))
                _stream(
                    blocks, target, target_key, hashing, size=size, checksums=checksums, beat=beat
                )
    _check(target, target_key, size, checksums, beat=beat)
    if ledger:
        ledger.close()


def _moved(beat: Beat, ledger: Ledger | None, token: str, _bytes: int) -> None:
    if ledger and token:
        ledger.note(token)
    beat(0)


def _check(target: BlobStore, key: str, size: int, checksums: Checksums, *, beat: Beat) -> None:
    """The copy has the right bytes, or is removed: by the engine's checksum, else by reading."""
    info = target.head(key)
    if info.crc32c is not None:
        good = info.crc32c == checksums.crc32c
    else:
        hashing = Hashing(size)
        for block in hashing.over(target.read(key, pin=info.pin)):
            beat(len(block))
        good = not mismatches(checksums, hashing.result())
    if not good:
        target.delete(key, pin=info.pin)
        raise Damaged(f"The copy of {key} came out wrong.")


def _stream(
    blocks: Iterable[bytes],
    target: BlobStore,
    key: str,
    hashing: Hashing,
    *,
    size: int,
    checksums: Checksums,
    beat: Beat,
) -> None:
    if size <= INLINE:
        data = b"".join(blocks)
        _refuse_wrong(checksums, hashing, key)
        target.put(key, data)
        return
    upload = target.upload(key, part_size=part_size(size), content_type=DEFAULT_TYPE)
    try:
        for number, part in enumerate(parts(blocks, part_size(size)), start=1):
            upload.part(number, part)
            beat(0)
        _refuse_wrong(checksums, hashing, key)
        upload.complete()
    except AlreadyExists:
        raise
    except BaseException:
        upload.abort()
        raise


def _refuse_wrong(checksums: Checksums, hashing: Hashing, key: str) -> None:
    if mismatches(checksums, hashing.result()):
        raise SourceChanged(f"The bytes of {key} are damaged.")
