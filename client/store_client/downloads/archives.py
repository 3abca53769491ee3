"""Read the small files of a bundle from its archive, which comes in one request.

Requests cost more than the bytes of small files where the store itself sends them. A member of the
archive is recognized by its SHA-256; its name is never used.
"""

import hashlib
import io
import tarfile
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from store_client.downloads.listing import BundleListing, StoreCalls
from store_client.errors import StoreError
from store_client.http.pool import BodyReader, shut_down
from store_client.transfer.cache import SHARED_FROM
from store_client.transfer.engine import Stopped, StopSignal

if TYPE_CHECKING:
    import httpx
    from _typeshed import WriteableBuffer

MIN_FILES = 16
"""Fewer files are fetched one by one."""
MAX_AVERAGE = 128 * 1024
"""Mean size of the files; larger ones come faster over several connections."""
MAX_UNWANTED = 256 * 1024
"""Bytes of other files that the archive may have, beside as many as there are wanted ones."""
HEADERS_SIZE = 8 * 1024
"""Bytes of a member's headers at most; a name has 1,024 or fewer."""
INVALID_ARCHIVE = (ValueError, EOFError, ArithmeticError, LookupError, RecursionError)
"""What the library raises besides its own errors."""
PIECE = 256 * 1024
"""Bytes that are read at once."""


class ArchiveBroken(Exception):
    """The archive did not come, or broke off; the other files are fetched one by one."""


def choose_files(
    store: StoreCalls, listed: BundleListing, missing: Mapping[str, int]
) -> Collection[str]:
    """The SHA-256 of missing files that are better read from the archive, which may be none."""
    sizes = {sha256: size for sha256, size in missing.items() if size < SHARED_FROM}
    wanted, total = sum(sizes.values()), sum(one.size for one in listed.files)
    is_small = len(sizes) >= MIN_FILES and wanted <= len(sizes) * MAX_AVERAGE
    if is_small and total <= 2 * wanted + MAX_UNWANTED and store.sends(listed.files[0].url):
        return sizes.keys()
    return ()


def read_files(
    store: StoreCalls, listed: BundleListing, replica: str, *, stop: StopSignal
) -> Generator[tuple[str, bytes], None, None]:
    """Yield the SHA-256 and the bytes of each small file of a bundle; ArchiveBroken."""
    limit = sum(one.size + HEADERS_SIZE for one in listed.files) + tarfile.RECORDSIZE
    try:
        with (
            store.stream(
                "get_bundle_archive",
                uuid=listed.uuid,
                version=listed.version,
                replica=replica,
                format="tar",
            ) as answer,
            _closed_by(stop, answer),
            tarfile.open(
                fileobj=cast(BinaryIO, _ArchiveBody(answer, limit, stop)), mode="r|", bufsize=PIECE
            ) as archive,
        ):
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                is_small = member.isreg() and member.size < SHARED_FROM
                if is_small and (content := archive.extractfile(member)) is not None:
                    data = content.read()
                    yield hashlib.sha256(data).hexdigest(), data
    except Stopped:
        raise
    except (StoreError, tarfile.TarError, *INVALID_ARCHIVE) as error:
        stop.check()
        raise ArchiveBroken(
            f"the archive of bundle {listed.fqid} is incomplete: {error}"
        ) from error


class _ArchiveBody(io.RawIOBase):
    """The body of an archive as a file; EOFError beyond a number of bytes."""

    def __init__(self, answer: "httpx.Response", limit: int, stop: StopSignal) -> None:
        self._body = BodyReader(answer)
        self._left = limit
        self._stop = stop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read some bytes; 0 at the end."""
        self._stop.check()
        count = self._body.read_some(memoryview(buffer))
        self._left -= count
        if self._left < 0:
            raise EOFError("it has more bytes than the bundle")
        return count


@contextmanager
def _closed_by(stop: StopSignal, answer: "httpx.Response") -> Iterator[None]:
    """Close the connection when the transfer stops, which wakes a thread that reads."""
    found = answer.extensions["network_stream"].get_extra_info("socket")

    def close() -> None:
        shut_down(found)

    stop.add_waker(close)
    try:
        yield
    finally:
        stop.remove_waker(close)
