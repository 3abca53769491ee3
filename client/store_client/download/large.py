"""A large file: its parts come in several streams at once, and one thread hashes behind them.

Whether it fails, and why, is as if the parts came one after another: each has its own quota, and
the error is that of the first part that failed, known once the parts before it have ended.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

from store_client.checksums import BLOCK, MB
from store_client.download.partmap import PART, PartMap
from store_client.download.quota import Quota, Trouble
from store_client.download.reading import NoRanges, Reader
from store_client.download.slots import Slots
from store_client.download.stopping import Stopped
from store_client.download.whole import write_all
from store_client.telling import Tell

LARGE_FROM = 64 * MB
"""Smaller files come in one stream."""
ALL_PARTS = -1
"""Stands for the number of a part in failures of the file as a whole."""


def bring(
    reader: Reader,
    paths: tuple[Path, Path],
    *,
    quota_of: Callable[[], Quota],
    tell: Tell,
    slots: Slots,
    part: int = PART,
) -> str:
    """Fill the file at the first path, noting in the second how far it is; the SHA-256 of what it
    holds then. NoRanges when the server gives no parts."""
    size = reader.wanted.size
    if not _sized(paths[0], size):
        paths[1].unlink(missing_ok=True)
    with contextlib.closing(PartMap(paths[1], size, part=part)) as parts:
        tell.bytes(sum(parts.done))
        try:
            return _Bringing(
                reader, paths[0], parts, quota_of=quota_of, tell=tell, slots=slots
            ).run()
        except NoRanges:
            tell.bytes(-sum(parts.done))
            raise


def _sized(path: Path, size: int) -> bool:
    """Make the file as long as it will be; whether it was already."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        file.truncate(size)
    return before == size


class _Bringing:
    """What the streams of one file share."""

    def __init__(
        self,
        reader: Reader,
        path: Path,
        parts: PartMap,
        *,
        quota_of: Callable[[], Quota],
        tell: Tell,
        slots: Slots,
    ) -> None:
        self._reader, self._path, self._parts = reader, path, parts
        self._quota_of, self._tell, self._slots = quota_of, tell, slots
        self._open = [number for number in range(parts.count) if not parts.whole(number)]
        self._open.reverse()
        self._changed = threading.Condition()
        self._streams: list[threading.Thread] = []
        self._failures: dict[int, BaseException] = {}
        self._digest = hashlib.sha256()

    def run(self) -> str:
        """The digest when all is there; the error of the first part that failed."""
        hashing = threading.Thread(target=self._guarded, args=(self._hash,), daemon=True)
        hashing.start()
        self._guarded(self._stream)
        for stream in self._streams:
            stream.join()
        hashing.join()
        if self._failures:
            raise self._failures[min(self._failures)]
        return self._digest.hexdigest()

    def _guarded(self, work: Callable[[], None], part: int = ALL_PARTS) -> None:
        """Do the work; an error is a failure of this part."""
        try:
            work()
        except BaseException as error:
            with self._changed:
                self._failures.setdefault(part, error)
                self._changed.notify_all()

    def _stream(self) -> None:
        """Take one part after the other; begin further streams while there is room."""
        with open(self._path, "r+b", buffering=0) as file:
            while (number := self._next()) is not None:
                self._grow()
                self._guarded(partial(self._bring, file, number), number)

    def _further(self) -> None:
        """A stream in a slot that nobody else wanted; given back after each part."""
        held = True
        try:
            with open(self._path, "r+b", buffering=0) as file:
                while held and (number := self._next()) is not None:
                    self._guarded(partial(self._bring, file, number), number)
                    self._slots.give()
                    held = self._slots.spare()
        finally:
            if held:
                self._slots.give()

    def _grow(self) -> None:
        while len(self._open) > 0 and self._slots.spare():
            stream = threading.Thread(target=self._guarded, args=(self._further,), daemon=True)
            self._streams.append(stream)
            stream.start()

    def _next(self) -> int | None:
        with self._changed:
            return self._open.pop() if self._open and not self._failures else None

    def _bring(self, file: BinaryIO, number: int) -> None:
        """All bytes of a part that are not there yet."""
        parts, quota = self._parts, self._quota_of()
        first, end = number * parts.part, number * parts.part + parts.length(number)
        file.seek(first + parts.done[number])
        while not parts.whole(number):
            self._check(number)
            try:
                found = self._reader.blocks(first + parts.done[number], end, exact=True)
                with contextlib.closing(found) as blocks:
                    for _, block in blocks:
                        self._add(file, number, block)
                        quota.block(parts.done[number], last=parts.whole(number))
            except Trouble as trouble:
                quota.failure(trouble)

    def _check(self, number: int) -> None:
        """Raise Stopped when a part before this one failed."""
        if any(failed < number for failed in tuple(self._failures)):
            raise Stopped

    def _add(self, file: BinaryIO, number: int, block: memoryview) -> None:
        self._check(number)
        write_all(file, block)
        with self._changed:
            self._parts.advance(number, len(block))
            self._changed.notify_all()
        self._tell.bytes(len(block))

    def _hash(self) -> None:
        """Follow the streams through what is there without a gap."""
        at, buffer = 0, memoryview(bytearray(BLOCK))
        with open(self._path, "rb", buffering=0) as file:
            while at < self._parts.size:
                with self._changed:
                    while not self._failures and (there := self._parts.prefix()) == at:
                        self._changed.wait()
                    if self._failures:
                        return
                while at < there:
                    count = file.readinto(buffer[: min(BLOCK, there - at)])
                    self._digest.update(buffer[:count])
                    at += count
