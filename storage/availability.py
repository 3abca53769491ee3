"""Which engines answer, as far as this process knows: a breaker for each part of the store.

A question is answered from what is known; when that is old, one thread asks the engine, and of all
requests only the one that found it old waits a moment for the answer. So a store that nobody asked
anything for a while does not answer from what it knew long ago. A part is down after two failures
in a row, or while a probe is silent for too long, and up again after one success. Parts whose use
shows by itself whether they answer need not be `watched`: they are asked only after a failure.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

FRESH_S: Final = 5.0
"""How long an answer of an engine counts."""
DOUBTED_S: Final = 0.5
"""The same once it failed: a second look decides."""
SILENT_S: Final = 3.0
"""A probe that takes longer is a failure, whatever becomes of it."""
PATIENCE_S: Final = 0.25
"""So long whoever has an engine asked waits for its answer."""
OPENS_AT: Final = 2
"""Failures in a row that make a part down."""

Probe = Callable[[], object]
Start = Callable[[Callable[[], None]], None]


def in_a_thread(work: Callable[[], None]) -> None:
    """Have it done beside us; nobody waits for it, not even at the end."""
    threading.Thread(target=work, name="availability", daemon=True).start()


@dataclass
class _Part:
    """What is known of one engine."""

    probe: Probe
    watched: bool
    failures: int = 0
    known_at: float = float("-inf")
    asked_at: float | None = None


class Availability:
    """Shared by the threads of one process; without probes everything is up."""

    def __init__(
        self,
        probes: Mapping[str, Probe] | None = None,
        unwatched: Mapping[str, Probe] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        start: Start = in_a_thread,
    ) -> None:
        self._parts = {name: _Part(probe, True) for name, probe in (probes or {}).items()}
        self._parts |= {name: _Part(probe, False) for name, probe in (unwatched or {}).items()}
        self._clock, self._start = clock, start
        self._lock = threading.Lock()

    def is_down(self, name: str) -> bool:
        """Whether the part should be left alone for now."""
        part = self._parts.get(name)
        if part is None:
            return False
        now = self._clock()
        with self._lock:
            ask = _is_worth_asking(part, now)
            if ask:
                part.asked_at = now
        if ask:
            answered = threading.Event()
            self._start(lambda: self._ask(name, part, answered))
            # What is used without being watched tells sooner by itself.
            answered.wait(PATIENCE_S if part.watched else 0)
        with self._lock:
            silent = part.asked_at is not None and now - part.asked_at >= SILENT_S
            return silent or part.failures >= OPENS_AT

    def failed(self, name: str) -> None:
        """A call to the part failed: as good as a probe that did."""
        if name in self._parts:
            self._learn(name, self._parts[name], well=False)

    def _ask(self, name: str, part: _Part, answered: threading.Event) -> None:
        """Look, and at once look again if that is the first failure."""
        well = False
        try:
            well = _probed(name, part)
            if not well and not part.failures:
                self._learn(name, part, well=False)
                well = _probed(name, part)
        finally:
            with self._lock:
                part.asked_at = None
            self._learn(name, part, well=well)
            answered.set()

    def _learn(self, name: str, part: _Part, *, well: bool) -> None:
        with self._lock:
            before = part.failures >= OPENS_AT
            part.failures = 0 if well else part.failures + 1
            part.known_at = self._clock()
            down = part.failures >= OPENS_AT
        if down != before:
            log.warning("%s is %s", name, "down" if down else "up again")


def _probed(name: str, part: _Part) -> bool:
    try:
        part.probe()
    except Exception as error:
        log.info("%s does not answer: %s", name, error)
        return False
    return True


def _is_worth_asking(part: _Part, now: float) -> bool:
    """One failure is looked into soon; a part that is down is left alone like one that is up."""
    if part.asked_at is not None or not (part.watched or part.failures):
        return False
    return now - part.known_at >= (DOUBTED_S if part.failures == 1 else FRESH_S)
