"""How far deposited bundles have come, by stage; found with a few requests for all of them."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.live.api import MATCH_ALL, ApiClient

VERIFIED, REPLICATED, INDEXED, NOTIFIED = STAGES = (
    "verified",
    "in both replicas",
    "indexed",
    "notified",
)
REPLICAS = ("aws", "gcp")
MIN_DELAY_S, MAX_DELAY_S = 0.3, 5.0


@dataclass
class Progress:
    """Which bundles reached which stage, and after how many seconds; for many threads."""

    labels: tuple[str, ...]
    notifiable: frozenset[str]
    began: float = field(default_factory=time.monotonic)
    fqids: dict[str, str] = field(default_factory=dict)
    reached: dict[str, dict[str, float]] = field(
        default_factory=lambda: {stage: {} for stage in STAGES}
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, label: str, fqid: str) -> None:
        """Record that the store took the bundle in, so that all its files are verified."""
        with self._lock:
            self.fqids[label] = fqid
            self.reached[VERIFIED][label] = self.elapsed_s()

    def mark(self, stage: str, fqids: set[str]) -> None:
        """Record that these bundles reached the stage."""
        with self._lock:
            seen = self.reached[stage]
            for label, fqid in self.fqids.items():
                if fqid in fqids and label not in seen:
                    seen[label] = self.elapsed_s()

    def elapsed_s(self) -> float:
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
        """How many of those that must reach a stage have."""
        return len(self.wanted(stage)) - len(self.missing(stage))

    def is_complete(self) -> bool:
        """Whether every bundle reached every stage."""
        return not any(self.missing(stage) for stage in STAGES)

    def steps(self) -> int:
        """A number that grows with every bundle that reaches a stage."""
        return sum(len(seen) for seen in self.reached.values())


FindNotified = Callable[[], set[str]]
"""Returns the FQIDs that every matching subscriber was notified of."""


def update_progress(progress: Progress, api: ApiClient, find_notified: FindNotified) -> None:
    """Ask the store once for all that is still missing."""
    if progress.missing(REPLICATED):
        found = (api.list_bundles(replica) for replica in REPLICAS)
        progress.mark(REPLICATED, set.intersection(*found))
    if progress.missing(INDEXED):
        found = (api.search(replica, MATCH_ALL) for replica in REPLICAS)
        progress.mark(INDEXED, set.intersection(*found))
    progress.mark(NOTIFIED, find_notified())


class Watchable(Protocol):
    """Something that makes progress."""

    def steps(self) -> int:
        """A number that grows with every step."""

    def is_complete(self) -> bool:
        """Whether there is nothing left to wait for."""


def watch(
    watched: Watchable,
    update: Callable[[], None],
    *,
    show: Callable[[], None],
    stop: Callable[[], bool],
    stall_s: float,
) -> bool:
    """Update until all is complete (True), or `stop`, or no step happens for a while (False)."""
    changed_at, steps = time.monotonic(), -1
    while True:
        began = time.monotonic()
        update()
        show()
        if watched.is_complete():
            return True
        if watched.steps() != steps:
            changed_at, steps = began, watched.steps()
        if stop() or began - changed_at > stall_s:
            return False
        time.sleep(delay_s(time.monotonic() - began))


def delay_s(update_s: float) -> float:
    """How long to wait after an update that took `update_s`.

    An update over many bundles is work for the store, so it may take a fifth of the time; but one
    that was slow for once must not make the next one late.
    """
    return min(max(MIN_DELAY_S, 4 * update_s), MAX_DELAY_S)
