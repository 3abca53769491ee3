"""The dispatcher: keeps many requests in flight on one event loop and records what came of them.

It holds endpoints by a lease, fetches what is due for them, and writes results many at a time. A
dispatcher that dies is taken over when its leases end; what it sent and did not record is sent
again with the same transaction id.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from pipelines.notifying.delivery import (
    Answer,
    Delivered,
    Request,
    Verdict,
    judge,
    request_for,
    result_of,
)
from pipelines.notifying.subscriptions import secret_context
from pipelines.topics import DELIVERIES
from storage.catalog.deliveries import Due, Result
from storage.errors import StoreError
from storage.protocols import Notices
from workers.dispatch_fence import Fence, Stop
from workers.dispatch_lanes import Lanes
from workers.dispatch_ledger import Ledger, Met, Written
from workers.dispatch_net import Allowed, Withdrawn

log = logging.getLogger(__name__)

GAP_S = 0.02
"""Least time between the beginnings of two turns."""
UNRECORDED_S = 0.1
"""Nothing more is sent while a result has waited so long: a dispatcher that dies sends again what
it did not record, and a catalog that is slow or away must not make that more."""
CLAIMS, FETCHES = 128, 64
"""Endpoints that are claimed, and fetched for, in one turn."""
AWAY_S = 1.0
"""Pause while the catalog is away."""

T = TypeVar("T")
Unseal = Callable[[bytes, bytes], bytes]


class Sends(Protocol):
    """What carries a request: `workers.dispatch_net.Sender`."""

    async def send(self, request: Request, allowed: Allowed) -> Answer:
        """The answer, or why there is none; Withdrawn if it was not allowed."""


@dataclass(frozen=True)
class Rules:
    """The operator's numbers, see `config.settings`."""

    delays_s: tuple[float, ...]
    in_flight: int = 200
    retry_after_cap_s: float = 86_400.0
    poll_s: float = 0.5
    lease_s: float = 5.0


@dataclass
class _Outbox:
    """What the next writing turn takes along."""

    results: list[tuple[int, Result]] = field(default_factory=list)
    deleted: set[tuple[int, int]] = field(default_factory=set)
    halted: set[int] = field(default_factory=set)
    oldest: float = 0.0
    """Since when the first of the results waits."""

    def keep(self, ident: int, result: Result, *, now: float) -> None:
        """One more."""
        if not self.results:
            self.oldest = now
        self.results.append((ident, result))

    def meet(self, rows: list[Due]) -> list[Due]:
        """Put aside what must not be sent; returns the others."""
        self.deleted |= {(row.subscription_id, row.endpoint_id) for row in rows if row.deleted}
        self.halted |= {row.id for row in rows if row.halted and not row.deleted}
        return [row for row in rows if not (row.deleted or row.halted)]

    def stop(self, due: Due, how: Stop) -> None:
        """Put aside one that was stopped after it was fetched."""
        if how == "deleted":
            self.deleted.add((due.subscription_id, due.endpoint_id))
        else:
            self.halted.add(due.id)

    def met(self) -> Met:
        """What was put aside so far."""
        return Met(frozenset(self.deleted), frozenset(self.halted))

    def put_aside(self, met: Met) -> None:
        """So much of it is in the catalog."""
        self.deleted -= met.deleted
        self.halted -= met.halted

    def recorded(self, count: int, *, now: float) -> None:
        """The first so many are in the catalog; the others came while they were written."""
        del self.results[:count]
        self.oldest = now

    def late(self, now: float) -> bool:
        """Whether one of them waits for too long."""
        return bool(self.results) and now - self.oldest > UNRECORDED_S


class Dispatcher:
    """One process's deliveries; `run` until told to stop."""

    def __init__(
        self, ledger: Ledger, sender: Sends, *, rules: Rules, unseal: Unseal, rng: Random
    ) -> None:
        self._ledger, self._sender, self._rules = ledger, sender, rules
        self._unseal, self._rng = unseal, rng
        self._lanes = Lanes(in_flight=rules.in_flight)
        self._outbox = _Outbox()
        self._catalog = ThreadPoolExecutor(1, thread_name_prefix="catalog")
        # A thread of its own: a look must not wait for a write.
        self._looks = ThreadPoolExecutor(1, thread_name_prefix="looks")
        self._fence = Fence(self._look, self._lanes.subscriptions)
        self._wake = asyncio.Event()
        self._flights: set[asyncio.Task[None]] = set()
        self._landing = False
        self._surprise: BaseException | None = None
        self._renewed = time.monotonic()
        self._ahead_us = time.time_ns() // 1000 - int(time.monotonic() * 1e6)

    def wake(self) -> None:
        """Look for what is due now; only from the event loop."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until told to stop; then end what is in flight, record it, let everything go."""
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda _: self._wake.set())
        try:
            while not stop.is_set():
                began = time.monotonic()
                await self._turn_or_pause()
                await self._rest(began, stop)
        finally:
            stopping.cancel()
            await self._land()
            self._catalog.shutdown()
            self._looks.shutdown()

    async def _turn_or_pause(self) -> None:
        try:
            await self._turn()
        except StoreError as error:
            log.warning("dispatch: %s", error.detail)
            await asyncio.sleep(AWAY_S)
            self._wake.set()

    async def _rest(self, began: float, stop: asyncio.Event) -> None:
        """Until something calls for a turn, but not so soon that turns are empty."""
        if not self._wake.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._rules.poll_s)
        pause = began + GAP_S - time.monotonic()
        if pause > 0 and not stop.is_set():
            await asyncio.sleep(pause)

    async def _turn(self) -> None:
        """Record, claim, renew, fetch, send."""
        self._wake.clear()
        if self._surprise is not None:
            raise self._surprise
        asked = time.monotonic()
        now_us, waiting = await self._in_catalog(lambda: self._ledger.waiting(limit=CLAIMS))
        # As late as it can be: a lease must never be believed to last longer than it does.
        self._ahead_us = now_us - int(time.monotonic() * 1e6)
        await self._write(claim=waiting, now=asked)
        wants = self._lanes.wants(limit=FETCHES, now_us=self._now_us())
        if wants:
            found = await self._in_catalog(lambda: self._ledger.fetch(wants))
            for ident, rows in found.items():
                self._feed(ident, rows, asked=wants[ident])
        self._pump()

    async def _write(self, *, claim: list[int], now: float) -> None:
        """One writing unit of work, if there is anything to write."""
        batch, met = list(self._outbox.results), self._outbox.met()
        ended = self._lanes.drop_ended(now=now, now_us=self._now_us())
        renewing = now - self._renewed > self._rules.lease_s / 3
        held = self._lanes.held() if renewing else []
        if not (batch or met.deleted or met.halted or ended or claim or held):
            return
        started = time.monotonic()
        written = await self._in_catalog(
            lambda: self._ledger.write(
                results=[result for _, result in batch],
                back=ended,
                claim=claim,
                renew=held,
                met=met,
            )
        )
        self._wrote(written, batch, held, until=started + self._rules.lease_s)
        self._outbox.put_aside(met)
        self._renewed = started if renewing else self._renewed

    def _wrote(
        self, written: Written, batch: list[tuple[int, Result]], held: list[int], *, until: float
    ) -> None:
        self._outbox.recorded(len(batch), now=time.monotonic())
        if self._outbox.results:
            self._wake.set()
        for ident, result in batch:
            self._lanes.recorded(ident, result.delivery_id)
        self._lanes.extend(written.kept, held, until=until)
        self._lanes.take(written.claimed, until=until, now=time.monotonic())

    def _feed(self, ident: int, rows: list[Due], *, asked: int) -> None:
        live = self._outbox.meet(rows)
        if len(live) < len(rows):
            self._wake.set()
        self._lanes.feed(ident, live, full=len(rows) >= asked, now=time.monotonic())

    def _landed(self, task: asyncio.Task[None]) -> None:
        """A surprise in an attempt ends the process, which starts afresh."""
        self._flights.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._surprise = task.exception()
            self._wake.set()

    def _pump(self) -> None:
        """Send as much as may be sent."""
        while not self._landing and not self._outbox.late(time.monotonic()):
            turn = self._lanes.next(now=time.monotonic(), now_us=self._now_us())
            if turn is None:
                break
            task = asyncio.ensure_future(self._attempt(*turn))
            self._flights.add(task)
            task.add_done_callback(self._landed)
        if self._lanes.hungry:
            self._wake.set()

    async def _attempt(self, ident: int, due: Due) -> None:
        """Make one attempt, unless its subscription was stopped since it was fetched."""
        try:
            success = await self._make(ident, due)
        except Withdrawn:
            success = None
            self._lanes.recorded(ident, due.id)
        self._wake.set()
        self._lanes.landed(ident, due.id, success=success, now_us=self._now_us())
        self._pump()

    async def _may_begin(self, due: Due) -> bool:
        """Whether the subscription is still there and active; what is not is put aside."""
        try:
            how = await self._fence.stopped(due.subscription_id)
        except StoreError as error:
            log.warning("dispatch: %s", error.detail)
            return False
        if how is None or (how == "halted" and due.is_test):
            return True
        self._outbox.stop(due, how)
        return False

    async def _look(self, ids: Collection[int]) -> Mapping[int, Stop]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._looks, self._ledger.stopped, ids)

    async def _make(self, ident: int, due: Due) -> bool | None:
        """Send it and keep the result; whether the receiver took it, None for a fault of ours."""
        allowed = partial(self._may_begin, due)
        if not await allowed():
            raise Withdrawn
        began, at_us, attempt = time.monotonic(), self._now_us(), due.attempts + 1
        success = None
        try:
            request = self._request(due, attempt, at_us)
        except StoreError as error:
            answer = Answer(error=error.detail)
            verdict = self._judged(answer, attempt)
        else:
            answer = await self._sender.send(request, allowed)
            verdict = self._judged(answer, attempt)
            success = isinstance(verdict, Delivered)
        seconds = time.monotonic() - began
        _say(due, attempt, answer, verdict, seconds)
        result = result_of(due, answer, verdict, at_us=at_us, seconds=seconds)
        self._outbox.keep(ident, result, now=time.monotonic())
        return success

    def _request(self, due: Due, attempt: int, at_us: int) -> Request:
        context = secret_context(due.subscription_uuid)
        sealed = (due.hmac_secret, due.hmac_previous)
        keys = [self._unseal(one, context) for one in sealed if one is not None]
        return request_for(due, attempt=attempt, now_us=at_us, keys=keys)

    def _judged(self, answer: Answer, attempt: int) -> Verdict:
        return judge(
            answer,
            attempt=attempt,
            delays=self._rules.delays_s,
            now_us=self._now_us(),
            rng=self._rng,
            retry_after_cap_s=self._rules.retry_after_cap_s,
        )

    async def _land(self) -> None:
        """Wait for what is in flight, which has a time-out, then record it and hand all back."""
        self._landing = True
        while self._flights:
            await asyncio.wait(self._flights, timeout=self._rules.lease_s / 5)
            with contextlib.suppress(StoreError):
                await self._write(claim=[], now=time.monotonic())
        batch = [result for _, result in self._outbox.results]
        try:
            await self._in_catalog(
                lambda: self._ledger.write(
                    results=batch, back=self._lanes.drop_all(), claim=(), renew=()
                )
            )
        except StoreError as error:
            log.warning("dispatch: %d results not recorded: %s", len(batch), error.detail)

    def _now_us(self) -> int:
        """The catalog's time, as last heard."""
        return self._ahead_us + int(time.monotonic() * 1e6)

    async def _in_catalog(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._catalog, call)


def _say(due: Due, attempt: int, answer: Answer, verdict: Verdict, seconds: float) -> None:
    """One line an attempt; a query may hold a secret, so it is left out."""
    told = answer.status if answer.error is None else answer.error
    log.info(
        "delivery %s attempt %d to %s: %s (%s) in %.3f s",
        due.uuid,
        attempt,
        due.callback_url.partition("?")[0],
        type(verdict).__name__,
        told,
        seconds,
        extra={"request_id": due.request_id} if due.request_id else None,
    )


def listen(notices: Notices, wake: Callable[[], None], stopped: threading.Event) -> None:
    """Call `wake` for every notice of deliveries, in a thread of its own, until stopped."""
    with notices.listen(DELIVERIES) as listening:
        while not stopped.is_set():
            if listening.wait(1.0):
                wake()
