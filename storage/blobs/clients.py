"""What the clouds' clients have in common: one of each a process, made after any fork, bounded."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how often a cloud is asked. `read_s` is the longest silence on a connection,
    not the length of a transfer; `connections` are those of one process to one cloud."""

    connect_s: float = 5.0
    read_s: float = 60.0
    attempts: int = 5
    connections: int = 64


class PerProcess(Generic[T]):
    """Makes its thing when it is first asked for, again in a forked child, and where `expired`."""

    def __init__(
        self, make: Callable[[], T], *, expired: Callable[[T], bool] = lambda _thing: False
    ) -> None:
        self._make, self._expired = make, expired
        self._lock = threading.Lock()
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        """This process's own."""
        with self._lock:
            made = self._made
            if made is None or made[0] != os.getpid() or self._expired(made[1]):
                made = self._made = (os.getpid(), self._make())
            return made[1]


CREDENTIALS_S = 60.0
"""Seconds until credentials are looked for again where there were none."""


@dataclass(frozen=True, slots=True)
class Reader(Generic[T]):
    """What reads depositors' buckets: unsigned where the environment has no credentials."""

    client: T
    signed: bool
    made: float = field(default_factory=time.monotonic)

    @property
    def expired(self) -> bool:
        """Whether it is time to look for credentials again."""
        return not self.signed and time.monotonic() - self.made > CREDENTIALS_S
