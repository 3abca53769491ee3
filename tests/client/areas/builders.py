"""Local files, and a listener that adds up what it is told."""

from pathlib import Path
from random import Random
from threading import Lock

from store_client.local_files import OutgoingFile

UUIDS = (
    "3fa91111-0000-4000-8000-000000000001",
    "3fa92222-0000-4000-8000-000000000002",
    "77777777-0000-4000-8000-000000000003",
)


class Heard:
    """What a Tell was told."""

    def __init__(self) -> None:
        self.files = self.done = self.all_files = self.all_bytes = 0
        self._lock = Lock()

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        with self._lock:
            self.all_files += files
            self.all_bytes += bytes

    def bytes(self, n: int) -> None:
        with self._lock:
            self.done += n

    def file(self) -> None:
        with self._lock:
            self.files += 1


def wrote(path: Path, data: bytes) -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that no two seeds have alike."""
    return Random(seed).randbytes(size)


def outgoing(path: Path, name: str = "a.bin") -> OutgoingFile:
    """The file as it is now."""
    return OutgoingFile(path, name, "application/octet-stream", path.stat().st_size)
