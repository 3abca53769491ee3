"""How work that takes long tells what it did: the one protocol, and a listener that hears nothing.

What is shown on a terminal is cli/progress.py's; whoever transfers calls these three methods. And
how bytes are written for people.
"""

from typing import Protocol


class Tell(Protocol):
    """Hears how far a transfer is; every method may be called by several threads at once."""

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Add to what there is to do: a later call with more says that more was found."""

    def bytes(self, n: int) -> None:
        """Note n bytes more done; a negative n takes back those of an attempt that failed."""

    def file(self) -> None:
        """Note one file more done."""


class Silence:
    """A listener for those who ask for none."""

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Ignore what there is to do."""

    def bytes(self, n: int) -> None:
        """Ignore bytes."""

    def file(self) -> None:
        """Ignore a file."""


SILENCE = Silence()


def size(amount: float) -> str:
    """Bytes as a person reads them, in powers of 1000."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(amount) < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError
