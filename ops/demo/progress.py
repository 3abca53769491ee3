"""How far the deposited bundles have come, by stage; watched in batches, never bundle by bundle."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ops.demo.service import Service

VERIFIED, REPLICATED, INDEXED, NOTIFIED = STAGES = (
    "verified",
    "in both replicas",
    "indexed",
    "notified",
)
REPLICAS = ("aws", "gcp")
LEAST_REST_S, LONGEST_REST_S = 0.3, 5.0
EVERYTHING: Mapping[str, dict[str, object]] = {"query": {"match_all": {}}}


@dataclass
class Progress:
    """Which bundles reached which stage and when; for many threads."""

    labels: tuple[str, ...]
    notifiable: frozenset[str]
    began: float = field(default_factory=time.monotonic)
    fqids: dict[str, str] = field(default_factory=dict)
    reached: dict[str, dict[str, float]] = field(
        default_factory=lambda: {stage: {} for stage in STAGES}
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledged(self, label: str, fqid: str) -> None:
        """The store took the bundle in, so all of its files are verified."""
        with self._lock:
            self.fqids[label] = fqid
            self.reached[VERIFIED][label] = self.elapsed()

    def mark(self, stage: str, fqids: set[str]) -> None:
        """These bundles are known to have reached the stage."""
        with self._lock:
            seen = self.reached[stage]
            for label, fqid in self.fqids.items():
                if fqid in fqids and label not in seen:
                    seen[label] = self.elapsed()

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def wanted(self, stage: str) -> frozenset[str]:
        """The bundles that must reach a stage."""
        return self.notifiable if stage == NOTIFIED else frozenset(self.labels)

    def missing(self, stage: str) -> frozenset[str]:
        """The bundles that have still to reach it."""
        with self._lock:
            return self.wanted(stage) - self.reached[stage].keys()

    def count(self, stage: str) -> int:
        """How many of those that must reach it have."""
        return len(self.wanted(stage)) - len(self.missing(stage))

    def finished_at(self, stage: str) -> float | None:
        """When the last one reached it; None before that."""
        if self.missing(stage):
            return None
        return max(self.reached[stage].values(), default=0.0)

    def complete(self) -> bool:
        """Whether every bundle went the whole way."""
        return not any(self.missing(stage) for stage in STAGES)

    def total(self) -> int:
        """A number that grows as long as anything happens."""
        return sum(len(seen) for seen in self.reached.values())


Notified = Callable[[], set[str]]
"""The FQIDs of which every subscriber that should be told was told."""


def look(progress: Progress, service: Service, notified: Notified) -> None:
    """Ask once, by pages, for everything that is still missing."""
    if progress.missing(REPLICATED):
        progress.mark(REPLICATED, set.intersection(*(service.listed(one) for one in REPLICAS)))
    if progress.missing(INDEXED):
        found = (service.found(one, EVERYTHING) for one in REPLICAS)
        progress.mark(INDEXED, set.intersection(*found))
    progress.mark(NOTIFIED, notified())


class Moving(Protocol):
    """Something on its way."""

    def total(self) -> int:
        """A number that grows as long as anything happens."""

    def complete(self) -> bool:
        """Whether all of it is where it should be."""


def watch(
    moving: Moving,
    look_once: Callable[[], None],
    *,
    shown: Callable[[], None],
    stop: Callable[[], bool],
    stall_s: float,
) -> bool:
    """Look until all is complete (True), or `stop`, or nothing moved for a while (False)."""
    moved_at, before = time.monotonic(), -1
    while True:
        began = time.monotonic()
        look_once()
        shown()
        if moving.complete():
            return True
        if moving.total() != before:
            moved_at, before = began, moving.total()
        if stop() or began - moved_at > stall_s:
            return False
        time.sleep(rest_s(time.monotonic() - began))


def rest_s(look_s: float) -> float:
    """Return how long to wait after a look that took `look_s`.

    A look over many bundles costs the store something, so it may take a fifth of the time; but one
    that was slow for once must not make the next one late.
    """
    return min(max(LEAST_REST_S, 4 * look_s), LONGEST_REST_S)
