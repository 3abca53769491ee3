"""A depositor's plain file in a staging folder of this machine.

What an object store keeps as metadata stands in `<name>.store.json` beside the file: one flat JSON
object of texts, `content-type` and the declared checksums (`store-sha256` and so on).
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from storage.blobs import transfer
from storage.blobs.envelope import pin_of
from storage.errors import RangeNotSatisfiable, SourceChanged, Unprocessable
from storage.protocols import BlobInfo

SIDECAR = ".store.json"
SIDECAR_BYTES = 64 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileSource:
    """A Source in a folder. Each name on the path is opened by itself and none is a symbolic link,
    so that nobody leads us out of the folder, not even while we look."""

    def __init__(self, root: str, names: tuple[str, ...]) -> None:
        self._root, self._names = root, names

    def head(self) -> BlobInfo:
        """See Source."""
        with self._folder() as folder:
            with _opened(folder, self._names[-1]) as descriptor:
                status = os.fstat(descriptor)
            described = _described(folder, self._names[-1] + SIDECAR)
        return BlobInfo(
            key="/".join(self._names),
            size=status.st_size,
            pin=pin_of(status),
            content_type=described.get("content-type"),
            metadata={name: text for name, text in described.items() if name != "content-type"},
        )

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See Source; the pin is looked at before and after, for a file can change in place."""
        with self._folder() as folder, _opened(folder, self._names[-1]) as descriptor:
            _expect(descriptor, pin)
            size = os.fstat(descriptor).st_size
            if start and start >= size:
                raise RangeNotSatisfiable("the range lies outside of the source")
            count = size - start if length is None else min(length, size - start)
            yield from transfer.blocks(descriptor, start, count)
            _expect(descriptor, pin)

    @contextmanager
    def _folder(self) -> Iterator[int]:
        """The folder that holds the file."""
        with _absent_as_ours():
            current = os.open(self._root, _FOLDER)
        try:
            for name in self._names[:-1]:
                with _absent_as_ours():
                    inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


@contextmanager
def _opened(folder: int, name: str) -> Iterator[int]:
    with _absent_as_ours():
        descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unprocessable("the source is no file", code="source_not_found")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _absent_as_ours() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no file can have this name"
        closed = isinstance(error, PermissionError)
        code = "source_not_readable" if closed else "source_not_found"
        raise Unprocessable(f"the source cannot be read: {why}", code=code) from error


def _described(folder: int, name: str) -> Mapping[str, str]:
    """What the file beside it says; nothing when there is none."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _bad_sidecar(name) from error
    try:
        text = os.read(descriptor, SIDECAR_BYTES + 1)
        found = json.loads(text) if len(text) <= SIDECAR_BYTES else None
    except (OSError, ValueError) as error:
        raise _bad_sidecar(name) from error
    finally:
        os.close(descriptor)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _bad_sidecar(name)
    return {key.lower(): value for key, value in found.items()}


def _expect(descriptor: int, pin: str) -> None:
    if pin_of(os.fstat(descriptor)) != pin:
        raise SourceChanged("the source is no longer what it was")


def _bad_sidecar(name: str) -> Unprocessable:
    return Unprocessable(f"{name} is not a flat JSON object of texts", code="invalid_checksum")
