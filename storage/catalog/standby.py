"""How old the data of a PostgreSQL standby is, and whether answers may come from it.

The age is measured without comparing the clocks of machines. The position of the primary's log is
noted with the time before the question: a standby that has replayed this position has everything
that was committed by then. While nothing can be measured, the age grows.
"""

import logging
import os
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, event, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from storage.metrics import CATALOG_STANDBY_LAG

log = logging.getLogger(__name__)

MEASURE_INTERVAL_S: Final = 1.0
"""Longest time between two measurements while requests come."""
MEASUREMENTS_PER_LAG: Final = 4
"""Least measurements within the allowed lag."""
MAX_SAMPLES: Final = 600
"""Positions of the primary that a standby has not replayed yet."""
WATCH_INTERVAL_S: Final = 1.0
"""Time between two looks for connections that hang."""
MEASURE_LIMIT_S: Final = 5.0
"""Longest time for the answer to a measurement."""
READ_LIMIT_S: Final = 20.0
"""Longest time that a read may take; then the primary answers."""
AVOID_S: Final = 60.0
"""How long the primary is read after such a read: its disk may hang while it can be measured."""

_SOCKET: Final = "socket"
"""Key of a connection's socket in the data of the pool."""

# No standby can have more than the flushed position. Names of log segments begin with the timeline.
_PRIMARY_POSITION = text(
    "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0') AS position, system_identifier,"
    " left(pg_walfile_name(pg_current_wal_flush_lsn()), 8) AS timeline FROM pg_control_system()"
)
_STANDBY_POSITION = text(
    "SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') AS position, system_identifier,"
    " lpad(upper(to_hex(timeline_id)), 8, '0') AS timeline"
    " FROM pg_control_system(), pg_control_checkpoint() WHERE pg_is_in_recovery()"
)

_UNREACHABLE = "it cannot be reached"


@dataclass(frozen=True, slots=True)
class _Position:
    """A position in the log of one history: a cluster, and the timeline since its last failover."""

    position: int
    history: tuple[int, str]


@dataclass(frozen=True, slots=True)
class StandbyState:
    """Whether a standby is read; `lag_s` is None until it was once seen up to date."""

    is_usable: bool
    lag_s: float | None
    reason: str


class CatalogStandby:
    """A standby of the catalog, shared by the threads of one process.

    `engine` is for reads. The other two engines are for measurements, so that these wait for no
    reader. A measurement runs in the background, at most every second, when a read asks for it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        measured: Engine,
        primary: Engine,
        max_lag_s: float,
    ) -> None:
        self.engine = engine
        self.max_lag_s = max_lag_s
        self._measured, self._primary = measured, primary
        self._interval_s = min(MEASURE_INTERVAL_S, max_lag_s / MEASUREMENTS_PER_LAG)
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._is_idle = threading.Event()
        """Whether no measurement is under way."""
        self._is_idle.set()
        self._history: tuple[int, str] | None = None
        self._samples: deque[tuple[float, int]] = deque(maxlen=MAX_SAMPLES)
        self._current_at = float("-inf")
        """A time at which nothing was committed that the standby lacks."""
        self._problem = "it was not measured yet"
        self._was_usable: bool | None = None
        self._avoided_until = float("-inf")
        self._taken: dict[ConnectionPoolEntry, tuple[float, bool]] = {}
        """Connections in use: since when, and whether for a read."""
        self._watcher: threading.Thread | None = None
        self._is_closed = threading.Event()
        event.listen(engine, "handle_error", self._note_failed_read)
        self._follow_connections(engine, is_read=True)
        self._follow_connections(measured, is_read=False)

    def _follow_connections(self, engine: Engine, *, is_read: bool) -> None:
        """Note which connections of the engine are in use, to end those that hang."""

        def take(_connection: Any, record: ConnectionPoolEntry, *_: Any) -> None:
            with self._lock:
                self._taken[record] = (time.monotonic(), is_read)
                if self._watcher is None:
                    self._watcher = threading.Thread(
                        target=self._watch, name="standby watcher", daemon=True
                    )
                    self._watcher.start()

        def open_socket(connection: Any, record: ConnectionPoolEntry) -> None:
            # A duplicate: the driver may close its own, whose number is then another file's.
            record.info[_SOCKET] = socket.socket(fileno=os.dup(connection.fileno()))
            take(connection, record)

        def give_back(_connection: Any, record: ConnectionPoolEntry) -> None:
            with self._lock:
                self._taken.pop(record, None)

        def close_socket(connection: Any, record: ConnectionPoolEntry) -> None:
            give_back(connection, record)
            if _SOCKET in record.info:
                record.info.pop(_SOCKET).close()

        # First of all: the preparation of a session may hang, too.
        event.listen(engine, "connect", open_socket, insert=True)
        event.listen(engine, "checkout", take)
        event.listen(engine, "checkin", give_back)
        event.listen(engine, "close", close_socket)

    def _watch(self) -> None:
        while not self._is_closed.wait(WATCH_INTERVAL_S):
            try:
                self._end_hanging()
            except Exception:
                log.exception("connections to the catalog's standby were not checked")

    def _end_hanging(self) -> None:
        """Shut down connections that hang, and all reads of a standby that may not be read.

        Their threads get an error at once, and ask the primary.
        """
        with self._lock:
            has_reads = any(is_read for _, is_read in self._taken.values())
        is_usable = has_reads and self.is_usable()
        now = time.monotonic()
        with self._lock:
            late = []
            for record, (since, is_read) in self._taken.items():
                limit_s = READ_LIMIT_S if is_read else MEASURE_LIMIT_S
                is_late = now - since >= limit_s
                if is_late and is_read:
                    self._avoided_until = now + AVOID_S
                if is_late or (is_read and not is_usable):
                    late.append(record)
            for record in late:
                del self._taken[record]
                # The socket may be closed by now.
                with suppress(KeyError, OSError):
                    record.info[_SOCKET].shutdown(socket.SHUT_RDWR)

    def is_usable(self) -> bool:
        """Return whether the standby answers and is not too far behind, as far as is known."""
        now = time.monotonic()
        with self._lock:
            is_due = now - self._asked_at >= self._interval_s
            is_due = is_due and self._is_idle.is_set() and not self._is_closed.is_set()
            if is_due:
                self._is_idle.clear()
                self._asked_at = now
        if is_due:
            threading.Thread(target=self._measure_for_reads, name="standby", daemon=True).start()
        return self.state().is_usable

    def state(self) -> StandbyState:
        """Return the state by the last measurement; log when it has changed."""
        with self._lock:
            lag_s = time.monotonic() - self._current_at
            problem = self._problem
            if not problem and time.monotonic() < self._avoided_until:
                problem = f"a read took longer than {READ_LIMIT_S:g} s"
            elif not problem and lag_s == float("inf"):
                problem = "it has not caught up yet"
            elif not problem and lag_s > self.max_lag_s:
                problem = (
                    f"it may be {lag_s:.1f} s behind the primary ({self.max_lag_s:g} s allowed)"
                )
            is_usable = not problem
            has_changed = self._was_usable not in (None, is_usable)
            if self._was_usable is not None:
                self._was_usable = is_usable
        if has_changed:
            _log_change(is_usable, problem)
        known = None if lag_s == float("inf") else lag_s
        return StandbyState(is_usable, known, problem or f"it is at most {lag_s:.1f} s behind")

    def measure(self) -> StandbyState:
        """Ask both servers for their positions, and return the state that follows.

        Without the primary, the standby is read until its data may be too old.
        """
        problem = self._find_problem()
        with self._lock:
            self._problem = self._problem if problem is None else problem
            is_first = self._was_usable is None
            if is_first:
                self._was_usable = False
        state = self.state()
        if is_first and not state.is_usable:
            _log_change(state.is_usable, state.reason)
        lag_s = float("inf") if state.lag_s is None else state.lag_s
        CATALOG_STANDBY_LAG.labels("catalog").set(lag_s)
        return state

    def _find_problem(self) -> str | None:
        """Measure, and return what forbids to read the standby; None without the primary."""
        asked_at = time.monotonic()
        try:
            ahead = _read_position(self._primary, _PRIMARY_POSITION)
        except SQLAlchemyError as error:
            log.debug("the position of the catalog's primary is not known: %s", error)
            return None
        try:
            reached = _read_position(self._measured, _STANDBY_POSITION)
        except SQLAlchemyError as error:
            # Once, not every second.
            level = logging.DEBUG if self._problem == _UNREACHABLE else logging.WARNING
            log.log(level, "the position of the catalog's standby is not known: %s", error)
            return _UNREACHABLE
        return self._compare(asked_at, ahead, reached)

    def _compare(self, asked_at: float, ahead: _Position | None, reached: _Position | None) -> str:
        """Note what the standby has replayed; return what forbids to read it, or nothing."""
        if reached is None or ahead is None:
            return "it is not a standby"
        with self._lock:
            if ahead.history != self._history:
                # Positions of another history mean nothing.
                self._history, self._current_at = ahead.history, float("-inf")
                self._samples.clear()
            if reached.history[0] != ahead.history[0]:
                return "it is a standby of another database server"
            if reached.history != ahead.history:
                return "it has not followed the last failover of the primary yet"
            self._samples.append((asked_at, ahead.position))
            while self._samples and self._samples[0][1] <= reached.position:
                self._current_at = self._samples.popleft()[0]
        return ""

    def _measure_for_reads(self) -> None:
        try:
            self.measure()
        finally:
            self._is_idle.set()

    def _note_failed_read(self, context: ExceptionContext) -> None:
        """Read from the primary after a lost connection, until the next measurement."""
        if context.is_disconnect or context.connection is None:
            with self._lock:
                self._problem = "a read lost its connection"

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed.set()
        self._is_idle.wait(MEASURE_LIMIT_S)
        for engine in (self.engine, self._measured, self._primary):
            engine.dispose()


def _log_change(is_usable: bool, problem: str) -> None:
    if is_usable:
        log.warning("the catalog's standby is read")
    else:
        log.warning("the catalog's standby is not read, the primary is: %s", problem)


def _read_position(engine: Engine, query: Any) -> _Position | None:
    with engine.connect() as connection:
        row = connection.execute(query).first()
    if row is None or row.position is None:
        return None
    return _Position(int(row.position), (int(row.system_identifier), str(row.timeline)))
