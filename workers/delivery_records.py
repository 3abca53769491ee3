"""Group commit, attempt permits and subscription checks shared by all turns of a process."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from pipelines import deliveries
from storage.catalog import Catalog, endpoints, subscriptions
from storage.catalog.deliveries import AttemptResult, DueDelivery
from storage.catalog.endpoints import (
    EndpointVisit,
    LeaseHolder,
    TurnResult,
    VisitResult,
    WithheldDeliveries,
)
from storage.errors import DomainError

log = logging.getLogger(__name__)

COMMIT_INTERVAL_S = 0.01
"""Least time between the starts of two transactions; what arrives meanwhile shares the next."""
FIRST_PERMITS, RESULTS_PER_PERMIT = 2, 200
"""Attempt permits of a new process, and results recorded per additional permit.

A process that crashes sends unrecorded attempts again: with this rule at most 0.5 % of what
it sent plus two, even if it crashes repeatedly with a long backlog.
"""
SLOW_ATTEMPT_S, SLOW_SUSPECT_S = 0.05, 0.01
"""Least time without a response after which an attempt lends its permit to another, and the same
for new and failing receivers; more where the network is slow (see `NetworkLatency`)."""
OUTAGE_PAUSE_S = 1.0
"""Pause while the catalog is away."""

StopReason = Literal["deleted", "halted"]


class RecordedTurn(Protocol):
    """The part of `workers.delivery_turns.EndpointTurn` that a recorder calls."""

    def mark_recorded(self, delivery_id: int) -> None: ...

    def stop_attempts(self) -> None: ...


class NetworkLatency:
    """The fastest response so far: receivers may take longer, the network does not."""

    FACTOR = 3
    ASSUMED_S = 0.05
    """Until a receiver has responded faster: a new process does not know the network."""

    def __init__(self, assumed_s: float = ASSUMED_S) -> None:
        self._fastest_s = assumed_s

    def add(self, seconds: float) -> None:
        """Count the response of a receiver."""
        self._fastest_s = min(self._fastest_s, seconds)

    def find_lending_delay_s(self, least_s: float) -> float:
        """Return after how many seconds without a response an attempt lends its permit.

        It grows with the latency of the network: otherwise every attempt would lend its permit on
        the way, and the permits would bound nothing. Slow receivers do not count.
        """
        return max(least_s, self.FACTOR * self._fastest_s)


class AttemptPermits:
    """Permits for attempts that are sent and not recorded, at most `in_flight`."""

    def __init__(self, in_flight: int, first: int, latency: NetworkLatency | None = None) -> None:
        self._limit, self._free = asyncio.Semaphore(in_flight), first
        self._suspects = asyncio.Semaphore(max(1, in_flight // 2))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._recorded = 0
        self._latency = latency or NetworkLatency()

    @property
    def has_waiters(self) -> bool:
        """Return whether attempts wait for results to be recorded."""
        return bool(self._waiting)

    async def acquire(self, *, suspect: bool = False) -> "AttemptPermit":
        """Wait for a permit; suspect receivers share half of them and lend theirs sooner."""
        limits = (self._suspects, self._limit) if suspect else (self._limit,)
        acquired: list[asyncio.Semaphore] = []
        try:
            for limit in limits:
                await limit.acquire()
                acquired.append(limit)
            await self._wait_for_permit()
        except asyncio.CancelledError:
            for limit in acquired:
                limit.release()
            raise
        least_s = SLOW_SUSPECT_S if suspect else SLOW_ATTEMPT_S
        return AttemptPermit(self._add_permits, self._latency, limits, least_s)

    async def _wait_for_permit(self) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        self._add_permits(0)
        try:
            await granted
        except asyncio.CancelledError:
            self._add_permits(0 if granted.cancelled() else 1)
            raise

    def add_recorded(self, recorded: int) -> None:
        """Count recorded results, which may add permits."""
        before, self._recorded = self._recorded, self._recorded + recorded
        self._add_permits(self._recorded // RESULTS_PER_PERMIT - before // RESULTS_PER_PERMIT)

    def _add_permits(self, permits: int) -> None:
        self._free += permits
        while self._free > 0 and self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                self._free -= 1


class AttemptPermit:
    """The permit of one attempt; while its receiver does not respond, another may use it."""

    def __init__(
        self,
        add: Callable[[int], None],
        latency: NetworkLatency,
        limits: Sequence[asyncio.Semaphore],
        least_s: float,
    ) -> None:
        self._add, self._latency, self._limits, self._least_s = add, latency, limits, least_s
        self._lent, self._began = False, 0.0
        self._timer: asyncio.TimerHandle | None = None

    def lend_later(self) -> None:
        """Lend the permit if no response comes: the attempt now waits for its receiver."""
        self._began = time.monotonic()
        delay_s = self._latency.find_lending_delay_s(self._least_s)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._lend)

    def take_back(self) -> None:
        """Lend no more: the attempt waits for the catalog, as all others may do."""
        self._cancel_lending()
        if self._lent:
            self._lent = False
            self._add(-1)

    def mark_ended(self, *, is_answered: bool) -> None:
        """Take the permit back: the attempt now waits only to be recorded."""
        if is_answered:
            self._latency.add(time.monotonic() - self._began)
        self.take_back()

    def release(self) -> None:
        """Release the permit: the attempt is recorded, or needs no record."""
        self._cancel_lending()
        if not self._lent:
            self._add(1)
        for limit in self._limits:
            limit.release()

    def _cancel_lending(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _lend(self) -> None:
        self._lent = True
        self._add(1)


class _PendingResult(NamedTuple):
    result: AttemptResult
    turn: RecordedTurn
    permit: AttemptPermit


@dataclass
class _PendingWrites:
    """Content of the next transaction."""

    results: list[_PendingResult] = field(default_factory=list)
    visits: list[tuple[EndpointVisit, asyncio.Future[VisitResult]]] = field(default_factory=list)
    deleted: set[tuple[int, int]] = field(default_factory=set)
    halted: set[int] = field(default_factory=set)


class ResultRecorder:
    """Group commit: all turns of a process share one transaction at a time."""

    def __init__(
        self, catalog: Catalog, lease_holder: LeaseHolder, permits: AttemptPermits
    ) -> None:
        self._catalog, self._lease_holder, self._permits = catalog, lease_holder, permits
        self._outbox = _PendingWrites()
        self._wake = asyncio.Event()
        self._closing = False
        # One thread, so that transactions of one process never wait for each other.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="catalog")
        self._ahead_us = time.time_ns() // 1000 - int(time.monotonic() * 1e6)

    def now_us(self) -> int:
        """Return the catalog's time, extrapolated from the last transaction."""
        return self._ahead_us + int(time.monotonic() * 1e6)

    async def visit(self, visit: EndpointVisit) -> VisitResult:
        """Have the next transaction serve this visit; DomainError if the catalog is down."""
        future: asyncio.Future[VisitResult] = asyncio.get_running_loop().create_future()
        self._outbox.visits.append((visit, future))
        self._wake.set()
        return await future

    def record(self, result: AttemptResult, turn: RecordedTurn, permit: AttemptPermit) -> None:
        """Record a result in the next transaction; it is retried until that succeeds."""
        permit.mark_ended(is_answered=result.status is not None)
        self._outbox.results.append(_PendingResult(result, turn, permit))
        self._wake.set()

    def withdraw(self, due: DueDelivery, reason: StopReason) -> None:
        """Cancel or pause deliveries that must not be sent."""
        if reason == "deleted":
            self._outbox.deleted.add((due.subscription_id, due.endpoint_id))
        else:
            self._outbox.halted.add(due.id)

    async def run(self) -> None:
        """Write until closed, then write the rest."""
        while not self._closing or self._outbox.results or self._outbox.visits:
            await self._wake.wait()
            self._wake.clear()
            began = time.monotonic()
            if not await self._write() and not self._closing:
                await asyncio.sleep(OUTAGE_PAUSE_S)
            if not self._permits.has_waiters:
                await asyncio.sleep(max(0.0, began + COMMIT_INTERVAL_S - time.monotonic()))

    async def close(self, running: "asyncio.Task[None]") -> None:
        """Write the rest, if the catalog is up."""
        self._closing = True
        self._wake.set()
        await running
        self._thread.shutdown()

    async def _write(self) -> bool:
        """Run one transaction; return False while the catalog is down, which loses no result."""
        batch, self._outbox = self._outbox, _PendingWrites()
        if not (batch.results or batch.visits or batch.deleted or batch.halted):
            return True
        try:
            settled = await self._settle_in_thread(batch)
        except DomainError as error:
            log.warning("deliveries are not recorded yet: %s", error.detail)
            self._requeue(batch, error)
            return False
        except Exception as error:
            log.exception("%d results of deliveries cannot be recorded", len(batch.results))
            _fail_visits(batch, error)
            await self._write_singly(batch.results)
            return True
        self._resolve(batch, settled)
        return True

    def _resolve(self, batch: _PendingWrites, settled: TurnResult) -> None:
        for uuid in settled.disabled:
            log.warning("subscription %s is disabled: nothing but failures", uuid)
        self._permits.add_recorded(len(batch.results))
        for result, turn, permit in batch.results:
            permit.release()
            turn.mark_recorded(result.delivery_id)
        for visit, future in batch.visits:
            if not future.done():
                future.set_result(settled.visited[visit.endpoint_id])

    async def _write_singly(self, results: Sequence[_PendingResult]) -> None:
        """Run one transaction per result, so that a faulty one fails alone.

        Its turn ends without a release, so it is sent again when the lease expires, not at once.
        """
        for pending in results:
            single = _PendingWrites([pending])
            try:
                self._resolve(single, await self._settle_in_thread(single))
            except Exception:
                delivery_id = pending.result.delivery_id
                log.exception("the result of delivery %d cannot be recorded", delivery_id)
                pending.permit.release()
                pending.turn.stop_attempts()

    async def _settle_in_thread(self, batch: _PendingWrites) -> TurnResult:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._settle, batch)

    def _settle(self, batch: _PendingWrites) -> TurnResult:
        withheld = WithheldDeliveries(frozenset(batch.deleted), frozenset(batch.halted))
        # Only leases need no durability: losing one in a power cut ends it early.
        durable = bool(batch.results or batch.deleted or batch.halted)
        with self._catalog.write(durable=durable) as tx:
            results = [pending.result for pending in batch.results]
            visits = [visit for visit, _ in batch.visits]
            settled = endpoints.settle_turns(tx, self._lease_holder, results, visits, withheld)
            # Read before the commit, which takes time.
            self._ahead_us = settled.now_us - int(time.monotonic() * 1e6)
            return settled

    def _requeue(self, batch: _PendingWrites, error: DomainError) -> None:
        _fail_visits(batch, error)
        later = self._outbox
        later.results[:0] = batch.results
        later.deleted |= batch.deleted
        later.halted |= batch.halted
        if self._closing:
            log.warning("%d results of deliveries are not recorded", len(later.results))
            self._outbox = _PendingWrites()
        elif later.results:
            self._wake.set()


def _fail_visits(batch: _PendingWrites, error: Exception) -> None:
    for _, future in batch.visits:
        if not future.done():
            future.set_exception(error)


class SubscriptionFence:
    """Lets an attempt begin only after a recent check of its subscription.

    Deleting or pausing a subscription waits longer than a check is valid before it responds
    (`pipelines.subscriptions.wait_for_attempts`). So no attempt begins after the response, though
    deliveries are fetched ahead and nothing is written before an attempt.
    """

    def __init__(self, catalog: Catalog, others: Callable[[], set[int]]) -> None:
        self._catalog, self._others = catalog, others
        # A separate thread: a check must not wait for a write transaction.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fence")
        self._lock = asyncio.Lock()
        self._until: dict[int, float] = {}
        self._stopped: Mapping[int, StopReason] = {}

    async def find_stop_reason(self, subscription_id: int) -> StopReason | None:
        """Return why the subscription is stopped, None while it is active; DomainError if unknown.

        The result is valid for the caller's next step, not across an `await`.
        """
        while not self._is_fresh(subscription_id):
            async with self._lock:
                if not self._is_fresh(subscription_id):
                    await self._refresh({subscription_id, *self._others()})
        return self._stopped.get(subscription_id)

    def mark_active(self, active: Collection[int], since: float) -> None:
        """Note that a transaction begun at `since` read these subscriptions as active."""
        until = since + deliveries.ATTEMPT_START_S
        for subscription_id in active:
            if (
                self._until.get(subscription_id, 0.0) < until
                and subscription_id not in self._stopped
            ):
                self._until[subscription_id] = until

    def close(self) -> None:
        """Stop checking."""
        self._thread.shutdown(wait=False)

    def _is_fresh(self, subscription_id: int) -> bool:
        return time.monotonic() < self._until.get(subscription_id, float("-inf"))

    async def _refresh(self, ids: Collection[int]) -> None:
        # Measured before the check, which may miss subscriptions that are stopped meanwhile.
        until = time.monotonic() + deliveries.ATTEMPT_START_S
        loop = asyncio.get_running_loop()
        self._stopped = await loop.run_in_executor(self._thread, self._read_stopped, ids)
        self._until = dict.fromkeys(ids, until)

    def _read_stopped(self, ids: Collection[int]) -> Mapping[int, StopReason]:
        with self._catalog.read() as tx:
            return subscriptions.find_inactive(tx, ids)
