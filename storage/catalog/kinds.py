"""Kinds of units of work, and the limits of a pool: what both engines are told."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["reading", "durable", "passing"]
READING: Final = "reading"
DURABLE: Final = "durable"
PASSING: Final = "passing"
"""A write that a power cut may forget."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Connections kept, more of them while many are busy, and the longest wait for one."""

    connections: int
    overflow: int
    wait_s: float
