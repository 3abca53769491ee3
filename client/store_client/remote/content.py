"""The bytes of one file version by ranges, resumed where they break off and verified; file objects.

What was read from the beginning to the end has the file's SHA-256, whatever was read in between and
however often. Parts alone cannot be verified; their size is.
"""

import contextlib
import hashlib
import io
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from store_client.downloads import listing
from store_client.downloads.listing import StoreCalls
from store_client.downloads.options import MIN_DELAY_S, NUM_RETRIES
from store_client.errors import Damaged, Misused, NotFound, StoreError
from store_client.progress import NO_PROGRESS, TransferProgress
from store_client.references import FILE, StoreLocation
from store_client.transfer import streams
from store_client.transfer.connections import BucketConnections, FailureQuota, TransferFailure
from store_client.transfer.engine import StopSignal
from store_client.transfer.streams import FileReader, PresignedUrl, RangesUnsupported, RemoteFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class PrefixDigest:
    """The SHA-256 of the bytes before the first gap; threads share it."""

    def __init__(self, wanted: RemoteFile) -> None:
        self._wanted = wanted
        self._digest = hashlib.sha256()
        self._length = 0
        self._lock = threading.Lock()

    def add(self, start: int, data: memoryview) -> None:
        """Add bytes in any order; Damaged once the whole file has another digest than it should."""
        with self._lock:
            if start <= self._length < start + len(data):
                self._digest.update(data[self._length - start :])
                self._length = start + len(data)
            if self._length == self._wanted.size:
                check_digest(self._wanted, self._digest.hexdigest())


def check_digest(wanted: RemoteFile, digest: str) -> None:
    """Damaged unless this is the file's SHA-256."""
    if digest != wanted.sha256:
        raise Damaged(
            f"{wanted.name} arrived with the SHA-256 {digest}, not {wanted.sha256}",
            hint="do not use what was read of it; try again",
        )


class RemoteContent:
    """The content of one file version; threads share it."""

    def __init__(self, reader: FileReader, new_quota: Callable[[], FailureQuota]) -> None:
        self.file = reader.wanted
        self._reader = reader
        self._new_quota = new_quota
        self._prefix = PrefixDigest(reader.wanted)

    @property
    def size(self) -> int:
        return self.file.size

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end), fewer at the end of the file.

        Damaged or Unreachable when the failure quota is used up.
        """
        data = bytearray(max(0, min(end, self.size) - start))
        self.read_into(start, memoryview(data))
        return bytes(data)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `start`, which the file has; as `read`."""
        quota = self._new_quota()
        if len(buffer) == self.size:
            self._fetch_whole(buffer, quota)
        else:
            self._fetch(start, buffer, quota)
            self._prefix.add(start, buffer)

    def copy_to(self, file: BinaryIO, tell: TransferProgress = NO_PROGRESS) -> None:
        """Copy the whole content, verified, into a file that can be read and truncated."""
        quota = self._new_quota()
        while True:
            file.seek(0)
            file.truncate()
            digest = streams.fetch_stream(self._reader, file, quota, tell=tell)
            try:
                check_digest(self.file, digest)
            except Damaged as error:
                tell.bytes(-self.size)
                quota.record_failure(TransferFailure(error))
            else:
                break

    def _fetch_whole(self, buffer: memoryview, quota: FailureQuota) -> None:
        while True:
            self._fetch(0, buffer, quota)
            try:
                check_digest(self.file, hashlib.sha256(buffer).hexdigest())
            except Damaged as error:
                quota.record_failure(TransferFailure(error))
            else:
                break

    def _fetch(self, start: int, buffer: memoryview, quota: FailureQuota) -> None:
        at, end = start, start + len(buffer)
        while at < end:
            try:
                found = self._reader.read_blocks(at, end, exact=True)
                with contextlib.closing(found) as blocks:
                    for offset, block in blocks:
                        buffer[offset - start : offset - start + len(block)] = block
                        at = offset + len(block)
                        quota.record_block(at, last=at == end)
            except TransferFailure as trouble:
                quota.record_failure(trouble)
            except RangesUnsupported:
                raise StoreError(
                    f"{self.file.name}: its bucket sends whole files only",
                    hint="download the bundle, and read it from there",
                ) from None


class RemoteStore:
    """Finds files of one replica, and opens their content; threads share it."""

    def __init__(
        self,
        store: StoreCalls,
        replica: str,
        *,
        num_retries: int = NUM_RETRIES,
        min_delay_s: float = MIN_DELAY_S,
    ) -> None:
        if replica not in ("aws", "gcp"):
            raise Misused(f"{replica!r} is not a replica", hint="choose aws or gcp")
        self._store = store
        self.replica = replica
        self._quota = (num_retries, min_delay_s)
        self._wire = BucketConnections()
        self._stop = StopSignal()

    def find(self, place: StoreLocation) -> RemoteFile:
        """Find a file of this version, or of the latest one now; NotFound."""
        if place.kind == FILE:
            return listing.find_file(self._store, self.replica, place.uuid, version=place.version)
        if not place.name:
            raise Misused(
                f"{place} is a bundle, not a file", hint="add the name of one of its files"
            )
        listed = self.list_bundle(place)
        found = next((one for one in listed.files if one.name == place.name), None)
        if found is None:
            raise NotFound(
                f"bundle {listed.fqid} has no file {place.name!r}",
                hint="names are case-sensitive, and relative to the bundle",
            )
        return found

    def list_bundle(self, place: StoreLocation) -> listing.BundleListing:
        """List the files of a bundle, without URLs; NotFound."""
        return listing.list_bundle(
            self._store,
            self.replica,
            place.uuid,
            version=place.version,
            presigned=False,
        )

    def content(self, wanted: RemoteFile) -> RemoteContent:
        """The content of a file; its URL is requested when bytes are, and again when it expires."""
        source = PresignedUrl(wanted, partial(listing.renew_url, self._store, self.replica))
        num_retries, min_delay_s = self._quota
        return RemoteContent(
            FileReader(self._wire, source, self._stop, wanted),
            lambda: FailureQuota(num_retries, min_delay_s, pause=self._stop.pause),
        )

    def close(self) -> None:
        """Close all connections; reads in progress fail."""
        self._stop.set()
        self._wire.close()


BUFFER = 64 * 1024
LEAST_AHEAD = 256 * 1024
MOST_AHEAD = 8 * 1024 * 1024
"""Bytes requested at once: few after a jump, twice as many each time that reading continues."""


class RemoteRawFile(io.RawIOBase):
    """A file in the store, unbuffered but for what is read ahead."""

    def __init__(self, content: RemoteContent, on_close: Callable[[], None]) -> None:
        self._content = content
        self._on_close = on_close
        self._at = 0
        self._ahead = LEAST_AHEAD // 2
        self._window = memoryview(b"")
        self._window_start = 0

    @property
    def file(self) -> RemoteFile:
        return self._content.file

    @property
    def name(self) -> str:
        """The name in the bundle, or uuid and version."""
        return self.file.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position, also beyond the end; ValueError before the beginning."""
        self._check_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._content.size}.get(whence)
        if base is None:
            raise ValueError(f"invalid whence: {whence}")
        if base + offset < 0:
            raise ValueError(f"negative seek position: {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill a buffer; fewer bytes at the end of what was read ahead, 0 at the end."""
        self._check_open()
        view = memoryview(buffer).cast("B")
        view = view[: max(0, self._content.size - self._at)]
        inside = self._at - self._window_start
        if view and not 0 <= inside < len(self._window):
            if len(view) >= MOST_AHEAD:
                self._content.read_into(self._at, view)
                self._at += len(view)
                return len(view)
            self._read_ahead(len(view))
            inside = 0
        piece = self._window[inside : inside + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        self._check_open()
        found = self._content.read(self._at, self._content.size)
        self._at += len(found)
        return found

    def close(self) -> None:
        """Close it, and the connections that were opened for it."""
        if not self.closed:
            super().close()
            self._window = memoryview(b"")
            self._on_close()

    def _read_ahead(self, wanted: int) -> None:
        goes_on = self._at == self._window_start + len(self._window)
        self._ahead = min(self._ahead * 2, MOST_AHEAD) if goes_on else LEAST_AHEAD
        found = self._content.read(self._at, self._at + max(wanted, self._ahead))
        self._window, self._window_start = memoryview(found), self._at

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class RemoteBufferedFile(io.BufferedReader):
    """A file in the store, open for bytes."""

    def __init__(self, raw: RemoteRawFile) -> None:
        super().__init__(raw, BUFFER)
        self.file = raw.file
        """Uuid, version, name, size and SHA-256 of what is read."""
