"""Group commit, places and fence of deliveries: what all turns of a process share."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from pipelines.notifying import pacing
from storage.catalog import Catalog, delivery_turns, subscriptions
from storage.catalog.deliveries import Due, Result
from storage.catalog.delivery_turns import Aside, Lessee, Settled, Visit, Visited
from storage.errors import StoreError

log = logging.getLogger(__name__)

GAP_S = 0.01
"""Least time between the beginnings of two transactions: what comes in between shares the next."""
FIRST_PLACES, RECORDED_FOR_A_PLACE = 2, 100
"""A process begins with so many places for attempts, and gets one more whenever it recorded so many
results. A process that dies sends again what it did not record: with this it is a hundredth of
what it sent and two, though it may die again and again with a long backlog."""
HANGS_S, SUSPECT_HANGS_S = 0.05, 0.01
"""An attempt that is not answered for so long lends its place to another."""
AWAY_S = 1.0
"""Pause while the catalog is away."""

Stop = Literal["deleted", "halted"]


class Turn(Protocol):
    """What a recorder tells a turn: see `workers.delivery_turns.Turn`."""

    def recorded(self, delivery_id: int) -> None: ...

    def give_up(self) -> None: ...


class Places:
    """Places for attempts that were begun and not recorded, `in_flight` at the most."""

    def __init__(self, in_flight: int, first: int) -> None:
        self._limit, self._free = asyncio.Semaphore(in_flight), first
        self._suspects = asyncio.Semaphore(max(1, in_flight // 2))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._recorded = 0

    @property
    def wanted(self) -> bool:
        """Whether attempts wait for results to be recorded."""
        return bool(self._waiting)

    async def take(self, *, suspect: bool = False) -> "Place":
        """Wait for a place; receivers that may hang have half of all, and lend it sooner."""
        limits = (self._suspects, self._limit) if suspect else (self._limit,)
        taken: list[asyncio.Semaphore] = []
        try:
            for limit in limits:
                await limit.acquire()
                taken.append(limit)
            await self._prompt()
        except asyncio.CancelledError:
            for limit in taken:
                limit.release()
            raise
        return Place(self._add, limits, SUSPECT_HANGS_S if suspect else HANGS_S)

    async def _prompt(self) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        self._add(0)
        try:
            await granted
        except asyncio.CancelledError:
            self._add(0 if granted.cancelled() else 1)
            raise

    def grow(self, recorded: int) -> None:
        """So many more results are recorded."""
        before, self._recorded = self._recorded, self._recorded + recorded
        self._add(self._recorded // RECORDED_FOR_A_PLACE - before // RECORDED_FOR_A_PLACE)

    def _add(self, places: int) -> None:
        self._free += places
        while self._free > 0 and self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                self._free -= 1


class Place:
    """The place of one attempt; while no answer comes in time, another may have it."""

    def __init__(
        self, add: Callable[[int], None], limits: Sequence[asyncio.Semaphore], hangs_s: float
    ) -> None:
        self._add, self._limits, self._lent = add, limits, False
        self._timer = asyncio.get_running_loop().call_later(hangs_s, self._lend)

    def answered(self) -> None:
        """From now on it only waits to be recorded."""
        self._timer.cancel()
        if self._lent:
            self._lent = False
            self._add(-1)

    def leave(self) -> None:
        """It is recorded, or there is nothing to record."""
        self._timer.cancel()
        if not self._lent:
            self._add(1)
        for limit in self._limits:
            limit.release()

    def _lend(self) -> None:
        self._lent = True
        self._add(1)


class _Kept(NamedTuple):
    result: Result
    turn: Turn
    place: Place


@dataclass
class _Outbox:
    """What the next transaction takes along."""

    results: list[_Kept] = field(default_factory=list)
    visits: list[tuple[Visit, asyncio.Future[Visited]]] = field(default_factory=list)
    deleted: set[tuple[int, int]] = field(default_factory=set)
    halted: set[int] = field(default_factory=set)


class Recorder:
    """Group commit: what all turns of a process write shares one transaction at a time."""

    def __init__(self, catalog: Catalog, lessee: Lessee, places: Places) -> None:
        self._catalog, self._lessee, self._places = catalog, lessee, places
        self._outbox = _Outbox()
        self._wake = asyncio.Event()
        self._closing = False
        # A thread of its own: transactions of one process never wait for each other.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="catalog")
        self._ahead_us = time.time_ns() // 1000 - int(time.monotonic() * 1e6)

    def now_us(self) -> int:
        """The catalog's time, as last read."""
        return self._ahead_us + int(time.monotonic() * 1e6)

    async def visit(self, visit: Visit) -> Visited:
        """Have the next transaction serve this visit; StoreError if the catalog is away."""
        answer: asyncio.Future[Visited] = asyncio.get_running_loop().create_future()
        self._outbox.visits.append((visit, answer))
        self._wake.set()
        return await answer

    def keep(self, result: Result, turn: Turn, place: Place) -> None:
        """Record this result in the next transaction; it is kept until that succeeds."""
        place.answered()
        self._outbox.results.append(_Kept(result, turn, place))
        self._wake.set()

    def put_aside(self, due: Due, how: Stop) -> None:
        """Cancel or hold back what must not be sent."""
        if how == "deleted":
            self._outbox.deleted.add((due.subscription_id, due.endpoint_id))
        else:
            self._outbox.halted.add(due.id)

    async def run(self) -> None:
        """Write until closed, and then what is left."""
        while not self._closing or self._outbox.results or self._outbox.visits:
            await self._wake.wait()
            self._wake.clear()
            began = time.monotonic()
            if not await self._write() and not self._closing:
                await asyncio.sleep(AWAY_S)
            if not self._places.wanted:
                await asyncio.sleep(max(0.0, began + GAP_S - time.monotonic()))

    async def close(self, running: "asyncio.Task[None]") -> None:
        """Write what is left, if that is possible now."""
        self._closing = True
        self._wake.set()
        await running
        self._thread.shutdown()

    async def _write(self) -> bool:
        """One transaction; False while the catalog is away, which loses no result."""
        taken, self._outbox = self._outbox, _Outbox()
        if not (taken.results or taken.visits or taken.deleted or taken.halted):
            return True
        try:
            settled = await self._settled(taken)
        except StoreError as error:
            log.warning("deliveries are not recorded yet: %s", error.detail)
            self._keep_for_later(taken, error)
            return False
        except Exception as error:
            log.exception("%d results of deliveries cannot be recorded", len(taken.results))
            _fail_visits(taken, error)
            await self._write_singly(taken.results)
            return True
        self._answer(taken, settled)
        return True

    def _answer(self, taken: _Outbox, settled: Settled) -> None:
        for uuid in settled.disabled:
            log.warning("subscription %s is disabled: nothing but failures", uuid)
        self._places.grow(len(taken.results))
        for result, turn, place in taken.results:
            place.leave()
            turn.recorded(result.delivery_id)
        for visit, answer in taken.visits:
            if not answer.done():
                answer.set_result(settled.visited[visit.endpoint_id])

    async def _write_singly(self, results: Sequence[_Kept]) -> None:
        """One transaction for each result, so that one that fails by a fault of ours fails alone.

        Its turn gives up without a release: so it is sent again when the lease ends, not at once.
        """
        for kept in results:
            alone = _Outbox([kept])
            try:
                self._answer(alone, await self._settled(alone))
            except Exception:
                ident = kept.result.delivery_id
                log.exception("the result of delivery %d cannot be recorded", ident)
                kept.place.leave()
                kept.turn.give_up()

    async def _settled(self, taken: _Outbox) -> Settled:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._settle, taken)

    def _settle(self, taken: _Outbox) -> Settled:
        aside = Aside(frozenset(taken.deleted), frozenset(taken.halted))
        # A lease that is lost by a power cut is a lease that ended.
        durable = bool(taken.results or taken.deleted or taken.halted)
        with self._catalog.write(durable=durable) as tx:
            results = [kept.result for kept in taken.results]
            visits = [visit for visit, _ in taken.visits]
            settled = delivery_turns.settle(tx, self._lessee, results, visits, aside)
            # Before the commit, which takes its time.
            self._ahead_us = settled.now_us - int(time.monotonic() * 1e6)
            return settled

    def _keep_for_later(self, taken: _Outbox, error: StoreError) -> None:
        _fail_visits(taken, error)
        later = self._outbox
        later.results[:0] = taken.results
        later.deleted |= taken.deleted
        later.halted |= taken.halted
        if self._closing:
            log.warning("%d results of deliveries are not recorded", len(later.results))
            self._outbox = _Outbox()
        elif later.results:
            self._wake.set()


def _fail_visits(taken: _Outbox, error: Exception) -> None:
    for _, answer in taken.visits:
        if not answer.done():
            answer.set_exception(error)


class Fence:
    """Lets an attempt begin only on a recent look at its subscription.

    Deleting or pausing a subscription waits for longer than a look counts before it is answered
    (`pipelines.notifying.subscriptions.wait_for_attempts`). So no attempt begins after the answer,
    though deliveries are fetched ahead and nothing is written before an attempt.
    """

    def __init__(self, catalog: Catalog, others: Callable[[], set[int]]) -> None:
        self._catalog, self._others = catalog, others
        # A thread of its own: a look must not wait for a transaction that writes.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fence")
        self._lock = asyncio.Lock()
        self._until: dict[int, float] = {}
        self._stopped: Mapping[int, Stop] = {}

    async def stopped(self, subscription_id: int) -> Stop | None:
        """How the subscription was stopped, None while it is active; StoreError if unknown.

        The answer counts for the very next step of the caller, not across an `await`.
        """
        while not self._is_fresh(subscription_id):
            async with self._lock:
                if not self._is_fresh(subscription_id):
                    await self._refresh({subscription_id, *self._others()})
        return self._stopped.get(subscription_id)

    def admit(self, active: Collection[int], since: float) -> None:
        """A transaction that began at `since` read these subscriptions as active."""
        until = since + pacing.BEGIN_S
        for ident in active:
            if self._until.get(ident, 0.0) < until and ident not in self._stopped:
                self._until[ident] = until

    def close(self) -> None:
        """Look no more."""
        self._thread.shutdown(wait=False)

    def _is_fresh(self, subscription_id: int) -> bool:
        return time.monotonic() < self._until.get(subscription_id, float("-inf"))

    async def _refresh(self, ids: Collection[int]) -> None:
        # Counted from before the look: what is stopped during it may have been missed.
        until = time.monotonic() + pacing.BEGIN_S
        loop = asyncio.get_running_loop()
        self._stopped = await loop.run_in_executor(self._thread, self._look, ids)
        self._until = dict.fromkeys(ids, until)

    def _look(self, ids: Collection[int]) -> Mapping[int, Stop]:
        with self._catalog.read() as tx:
            return subscriptions.stopped(tx, ids)
