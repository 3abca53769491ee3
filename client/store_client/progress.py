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

    def phase(self, name: str) -> None:
        """Tell what is being done now: hashing, sending, verifying."""


class NoProgress:
    """Ignores progress."""

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Ignore the total."""

    def bytes(self, n: int) -> None:
        """Ignore bytes."""

    def file(self) -> None:
        """Ignore a file."""

    def phase(self, name: str) -> None:
        """Ignore the phase."""


NO_PROGRESS = NoProgress()


class ProgressState:
    """Counters of a transfer; changed under one lock."""

    def __init__(self, start: float) -> None:
        self.files = self.bytes_ = self.all_files = self.all_bytes = 0
        self.start = start
        self.phase = ""


def format_size(amount: float) -> str:
    """Format a number of bytes, in powers of 1000."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(amount) < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


COST_OF_FILE = 256_000
"""A file takes about as long as so many bytes, beside its own."""


SHARE_KNOWN = 0.01
"""Of a transfer, before which it is not known how long it takes."""


def remaining_s(state: ProgressState, now: float) -> float | None:
    """Seconds that are left, by bytes and files together; None at its beginning."""
    done = state.bytes_ + COST_OF_FILE * state.files
    total = state.all_bytes + COST_OF_FILE * state.all_files
    if done < SHARE_KNOWN * total or done <= 0 or state.bytes_ > state.all_bytes:
        return None
    return max(total - done, 0) * max(now - state.start, 1e-3) / done


def format_count(count: int, noun: str) -> str:
    """Format a number of things: `1 file`, `2 files`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def format_duration(seconds: float) -> str:
    """Format seconds: `0:06`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
