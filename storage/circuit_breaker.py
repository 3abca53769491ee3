"""Circuit breakers for the store's engines.

Requests read a cached state. When it is old, one thread probes the engine, and only the request
that found it old waits briefly for the result. An engine is down after two failures in a row, or
while a probe hangs, and up again after one success. Engines whose use shows their state are
`unwatched`: they are probed only after a failure.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 5.0
"""How long a result is valid."""
RECHECK_INTERVAL_S: Final = 0.5
"""The same after a first failure, since a second one decides."""
PROBE_TIMEOUT_S: Final = 3.0
"""A probe that takes longer counts as a failure."""
MAX_WAIT_S: Final = 0.25
"""How long the request that started a probe waits for it."""
FAILURE_THRESHOLD: Final = 2
"""Failures in a row after which an engine is down."""

HealthProbe = Callable[[], object]
StartThread = Callable[[Callable[[], None]], None]


def start_thread(work: Callable[[], None]) -> None:
    """Run work in a daemon thread."""
    threading.Thread(target=work, name="availability", daemon=True).start()


@dataclass
class _Circuit:
    """State of one engine."""

    probe: HealthProbe
    probed_always: bool
    failures: int = 0
    checked_at: float = float("-inf")
    probe_started_at: float | None = None


class CircuitBreaker:
    """Shared by the threads of one process; engines without a probe are always up."""

    def __init__(
        self,
        probes: Mapping[str, HealthProbe] | None = None,
        unwatched: Mapping[str, HealthProbe] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        start: StartThread = start_thread,
    ) -> None:
        self._circuits = {name: _Circuit(probe, True) for name, probe in (probes or {}).items()}
        self._circuits |= {
            name: _Circuit(probe, False) for name, probe in (unwatched or {}).items()
        }
        self._clock, self._start = clock, start
        self._lock = threading.Lock()

    def is_down(self, name: str) -> bool:
        """Return whether to avoid the engine for now."""
        circuit = self._circuits.get(name)
        if circuit is None:
            return False
        now = self._clock()
        with self._lock:
            is_due = _is_probe_due(circuit, now)
            if is_due:
                circuit.probe_started_at = now
        if is_due:
            answered = threading.Event()
            self._start(lambda: self._run_probe(name, circuit, answered))
            # Use of an unwatched engine shows its state sooner.
            answered.wait(MAX_WAIT_S if circuit.probed_always else 0)
        with self._lock:
            silent = (
                circuit.probe_started_at is not None
                and now - circuit.probe_started_at >= PROBE_TIMEOUT_S
            )
            return silent or circuit.failures >= FAILURE_THRESHOLD

    def record_failure(self, name: str) -> None:
        """Record that a call to the engine failed; counts like a failed probe."""
        if name in self._circuits:
            self._record_result(name, self._circuits[name], succeeded=False)

    def _run_probe(self, name: str, circuit: _Circuit, answered: threading.Event) -> None:
        """Probe, and probe again at once after a first failure."""
        succeeded = False
        try:
            succeeded = _probe_succeeds(name, circuit)
            if not succeeded and not circuit.failures:
                self._record_result(name, circuit, succeeded=False)
                succeeded = _probe_succeeds(name, circuit)
        finally:
            with self._lock:
                circuit.probe_started_at = None
            self._record_result(name, circuit, succeeded=succeeded)
            answered.set()

    def _record_result(self, name: str, circuit: _Circuit, *, succeeded: bool) -> None:
        with self._lock:
            before = circuit.failures >= FAILURE_THRESHOLD
            circuit.failures = 0 if succeeded else circuit.failures + 1
            circuit.checked_at = self._clock()
            down = circuit.failures >= FAILURE_THRESHOLD
        if down != before:
            log.warning("%s is %s", name, "down" if down else "up again")


def _probe_succeeds(name: str, circuit: _Circuit) -> bool:
    try:
        circuit.probe()
    except Exception as error:
        log.info("%s probe failed: %s", name, error)
        return False
    return True


def _is_probe_due(circuit: _Circuit, now: float) -> bool:
    """Return whether to probe: soon after one failure, else at the usual interval."""
    if circuit.probe_started_at is not None or not (circuit.probed_always or circuit.failures):
        return False
    return now - circuit.checked_at >= (
        RECHECK_INTERVAL_S if circuit.failures == 1 else CHECK_INTERVAL_S
    )
