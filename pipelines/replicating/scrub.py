"""The scrub: stored objects are read again within a budget, those first that were unread longest.

Damaged objects are repaired from the other replica. What cannot be repaired stays as it is, is
listed as damaged, and is tried again later. Journals and purge markers are read in the order of
their keys once per half period.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pipelines.replicating import stored_objects, verification
from pipelines.replicating.verification import BATCH, Found
from storage import keys
from storage.catalog import integrity, now_us, switches
from storage.catalog.integrity import DAY_US, StoredObject
from storage.model import REPLICAS, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

LEAST = 4096
"""Bytes that an object counts at least: asking for it costs something too."""
RETRY_US = 900_000_000
"""Time between two attempts to repair an object."""
CURSOR = "scrub"
"""The switch that holds how far journals and purge markers were read."""


class Stopped(Exception):
    """The scrub was told to stop."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much the scrub may read; 0 bytes: nothing. An object is due again after half of the
    period, so that all are verified within it."""

    bytes_per_s: int
    bytes_per_day: int
    period_days: float


@dataclass
class Pace:
    """Holds reading to a number of bytes per second. `wait` sleeps, and is true to stop."""

    bytes_per_s: int
    wait: Callable[[float], bool]
    clock: Callable[[], float] = time.monotonic
    _free_at: float = field(default=0.0, init=False)

    def spend(self, size: int) -> None:
        """Wait until so many bytes more are within the budget; Stopped when told to stop."""
        now = self.clock()
        self._free_at = max(self._free_at, now) + size / self.bytes_per_s
        if self.wait(max(0.0, self._free_at - now)):
            raise Stopped


class Turn:
    """One run of the scrub: what it read, and what it found."""

    def __init__(self, stores: Stores, budget: Budget, pace: Pace) -> None:
        self._stores, self._budget, self._pace = stores, budget, pace
        self._read = 0
        self.objects = self.bytes = 0
        self.damaged: list[Found] = []

    def run(self, turn_s: float) -> None:
        """Verify what is due for about `turn_s` seconds, or until today's bytes are spent."""
        ends = self._pace.clock() + turn_s
        try:
            self._retry()
            while self._pace.clock() < ends and (room := self._room()) > 0:
                batch = self._due()
                if batch:
                    self._verify(batch, room)
                elif not self._verify_rest(room):
                    return
        except Stopped:
            log.info("scrub: stopped")

    def _room(self) -> int:
        with self._stores.catalog.read() as tx:
            return integrity.allowance(tx, self._budget.bytes_per_day)

    def _before_us(self, now: int) -> int:
        return now - int(self._budget.period_days * DAY_US / 2)

    def _retry(self) -> None:
        """Try again to repair what was found damaged before."""
        with self._stores.catalog.read() as tx:
            before = now_us(tx) - RETRY_US
            found = integrity.damaged(tx, before_us=before, limit=BATCH)
        for one in found:
            _, intact = self._examine(one.replica, one.key)
            if intact:
                verification.close_damage(self._stores, one.replica, one.key)

    def _due(self) -> list[StoredObject]:
        """The next objects of either replica."""
        with self._stores.catalog.read() as tx:
            before = self._before_us(now_us(tx))
            due = [one for name in REPLICAS for one in integrity.due(tx, name, before, limit=BATCH)]
        return sorted(due, key=lambda one: one.verified_us)[:BATCH]

    def _verify(self, batch: list[StoredObject], room: int) -> None:
        """Verify objects while there is room; record those that are right, also when stopped."""
        intact: dict[Replica, dict[str, int]] = {name: {} for name in REPLICAS}
        try:
            for one in batch:
                if room <= 0:
                    break
                size, right = self._examine(one.replica, one.key)
                room -= size
                if right:
                    intact[one.replica][one.key] = size
        finally:
            for replica, sizes in intact.items():
                verification.record_intact(self._stores, replica, sizes)

    def _examine(self, replica: Replica, key: str) -> tuple[int, bool]:
        """Read one object again and repair it if it is damaged; returns the bytes that were read,
        and whether it was right at once."""
        self._read = 0
        found = verification.examine(self._stores, replica, key, self._spend, repair=True)
        if (rest := LEAST - self._read) > 0:
            self._spend(rest)
        self.objects, self.bytes = self.objects + 1, self.bytes + self._read
        if found is not None:
            self.damaged.append(found)
            with self._stores.catalog.write(durable=False) as tx:
                integrity.record_read(tx, replica, self._read)
        return self._read, found is None

    def _spend(self, size: int) -> None:
        self._read += size
        self._pace.spend(size)

    def _verify_rest(self, room: int) -> bool:
        """Read some journals and purge markers; False when no more of them are due."""
        with self._stores.catalog.read() as tx:
            place = switches.value(tx, CURSOR) or ""
            before = self._before_us(now_us(tx))
        state, _, after = place.partition(" ")
        if state.isdecimal() and int(state) > before:
            return False
        replica = next((one for one in REPLICAS if one == state), REPLICAS[0])
        reached = self._walk(replica, after if replica == state else "", room)
        with self._stores.catalog.write(durable=False) as tx:
            switches.put(tx, CURSOR, reached or str(now_us(tx)))
        return reached is not None

    def _walk(self, replica: Replica, after: str, room: int) -> str | None:
        """Examine objects after a key; returns where to go on, None at the end of the last."""
        size = 0
        for key in self._rest(replica, after):
            read, intact = self._examine(replica, key)
            if intact:
                verification.record_intact(self._stores, replica, {key: read})
            size += read
            if size >= min(room, BATCH * LEAST):
                break
        else:
            later = REPLICAS.index(replica) + 1
            key = ""
            return None if later == len(REPLICAS) else f"{REPLICAS[later]} "
        return f"{replica} {key}"

    def _rest(self, replica: Replica, after: str) -> Iterator[str]:
        for info in stored_objects.list_objects(self._stores, replica, max(after, keys.JOURNALS)):
            if not info.key.startswith((keys.JOURNALS, keys.PURGED)):
                return
            yield info.key


def scrub(stores: Stores, budget: Budget, pace: Pace, *, turn_s: float) -> Turn:
    """Run one turn of the scrub."""
    turn = Turn(stores, budget, pace)
    if budget.bytes_per_s > 0 and budget.bytes_per_day > 0:
        turn.run(turn_s)
    return turn
