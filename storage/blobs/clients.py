"""What the clouds' clients have in common: one of each a process, made after any fork, bounded."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
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
    """Makes its thing when it is first asked for, and again in a forked child."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        """This process's own."""
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), self._make())
            return self._made[1]
