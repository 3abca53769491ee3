"""The protocol by which transfers report progress, and sizes as people read them."""

from typing import Protocol


class TransferProgress(Protocol):
    """Receives the progress of a transfer; called by many threads."""

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Add to the total; later calls add more."""

    def bytes(self, n: int) -> None:
        """Add n bytes; a negative n takes back those of a failed attempt."""

    def file(self) -> None:
        """Add one file."""


class NoProgress:
    """Ignores progress."""

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Ignore the total."""

    def bytes(self, n: int) -> None:
        """Ignore bytes."""

    def file(self) -> None:
        """Ignore a file."""


NO_PROGRESS = NoProgress()


class ProgressState:
    """Counters of a transfer; changed under one lock."""

    def __init__(self, start: float) -> None:
        self.files = self.bytes_ = self.all_files = self.all_bytes = 0
        self.start = start


def format_size(amount: float) -> str:
    """Format a number of bytes, in powers of 1000."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(amount) < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError
