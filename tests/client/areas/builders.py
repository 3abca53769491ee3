"""Local files, and a listener that adds up what it is told."""

from pathlib import Path
from random import Random
from threading import Event, Lock

from store_client import Client
from store_client.areas.upload import PART_JOBS, AreaTransfer, SentFile, send_file
from store_client.local_files import OutgoingFile
from store_client.progress import NO_PROGRESS, TransferProgress
from store_client.transfer.engine import open_transfer

UUIDS = (
    "3fa91111-0000-4000-8000-000000000001",
    "3fa92222-0000-4000-8000-000000000002",
    "77777777-0000-4000-8000-000000000003",
)


class Heard:
    """What a Tell was told."""

    def __init__(self) -> None:
        self.files = self.done = self.all_files = self.all_bytes = 0
        self.phases: list[str] = []
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

    def phase(self, name: str) -> None:
        self.phases.append(name)


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


def send_path(
    client: Client,
    area_uuid: str,
    path: Path,
    name: str,
    content_type: str,
    *,
    size: int,
    tell: TransferProgress = NO_PROGRESS,
    stop: Event | None = None,
) -> SentFile:
    """Upload a file, again while it arrives damaged; Damaged when it always does.

    Setting `stop` from another thread ends it soon, by Stopped. A large file resumes where an
    earlier run stopped.
    """
    with open_transfer(PART_JOBS, tell, stop=stop) as context:
        upload = AreaTransfer(client, area_uuid, context, True, 1200.0)
        return send_file(upload, OutgoingFile(path, name, content_type, size))
