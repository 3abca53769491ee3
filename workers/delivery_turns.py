"""Turns of endpoints: one lease each, requests within a window, results recorded in groups.

All turns of a process share one event loop, one recorder, one fence and one limit of requests in
flight. A process that dies loses its leases; what it sent and did not record is sent again with
the same transaction id.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Protocol

from pipelines.notifying import pacing
from pipelines.notifying.delivery import Answer, Delivered, Request, judge, request_for, result_of
from pipelines.notifying.subscriptions import secret_context
from storage.catalog.deliveries import Due
from storage.catalog.delivery_turns import Visit, Visited
from storage.catalog.endpoints import Endpoint
from storage.errors import StoreError
from workers.delivery_records import AWAY_S, FIRST_PLACES, Fence, Place, Places, Recorder
from workers.webhooks import Allowed, Withdrawn

log = logging.getLogger(__name__)

AHEAD = 8
"""Deliveries that a turn fetches, in windows: one transaction lasts as long as many answers."""
BUFFERED = 2000
"""Deliveries that all turns of a process fetch ahead."""

Unseal = Callable[[bytes, bytes], bytes]


class Sends(Protocol):
    """Sends a request: `workers.webhooks.Sender`."""

    async def send(self, request: Request, allowed: Allowed) -> Answer:
        """The answer, or why there is none; Withdrawn if it was not allowed."""

    async def close(self) -> None:
        """Close every connection."""


@dataclass(frozen=True)
class Rules:
    """The operator's numbers, see `config.settings`."""

    delays_s: tuple[float, ...]
    in_flight: int = 1000
    first_places: int = FIRST_PLACES
    """In flight or not recorded in a process that begins: see `Places`."""
    retry_after_cap_s: float = 86_400.0
    disable_after_s: float = 0.0
    lease_s: float = 5.0
    turn_s: float = 30.0
    fresh_s: float = 2.0
    """Age at which a fetched delivery is fetched again: it may be superseded by now."""


@dataclass(frozen=True)
class Shared:
    """What the turns of a process share."""

    recorder: Recorder
    fence: Fence
    sender: Sends
    rules: Rules
    unseal: Unseal
    rng: Random
    places: Places
    buffered: Callable[[], int]
    """Deliveries that all turns have fetched and not sent."""


class Turn:
    """One endpoint while this process leases it."""

    def __init__(self, endpoint_id: int, shared: Shared, ends: Callable[[float], bool]) -> None:
        self.endpoint_id = endpoint_id
        self.woken = True
        """Whether something may be due that was not fetched yet."""
        self.queue: deque[Due] = deque()
        self.open: dict[int, Due] = {}
        """In flight, or not yet recorded."""
        self._endpoint = Endpoint(endpoint_id, 0, 1.0, 0)
        self._shared, self._ends = shared, ends
        self._flights: set[asyncio.Task[bool | None]] = set()
        self._changed = asyncio.Event()
        self._held = self._full = self._claims_probe = False
        self._fetched = self._until = self._began = 0.0
        self._low = 0

    @property
    def probing(self) -> bool:
        """Whether the receiver keeps failing, or may do so."""
        return self._claims_probe or pacing.probing(self._endpoint)

    @property
    def over(self) -> bool:
        """Whether this turn begins no more attempts, though more may be due."""
        return self._ends(time.monotonic() - self._began)

    def wake(self) -> None:
        """Look for due deliveries again."""
        self.woken = True
        self._changed.set()

    def recorded(self, delivery_id: int) -> None:
        """The result of an attempt is in the catalog: what follows it may be fetched."""
        self.open.pop(delivery_id, None)

    def give_up(self) -> None:
        """Begin no more attempts, and let the lease run out."""
        self._held = False
        self.queue.clear()
        self._changed.set()

    def abandon(self) -> None:
        """Cancel the requests in flight; they will be sent again."""
        for flight in list(self._flights):
            flight.cancel()

    async def run(self, *, probe: bool) -> Visited:
        """Claim the endpoint, send what is due, release it; returns what the claim came to.

        StoreError if the catalog is away when it is claimed.
        """
        self._began = time.monotonic()
        self.woken, self._claims_probe = False, probe
        try:
            want = self._ahead(pacing.FIRST_WINDOW)
            claimed = await self._visit(Visit(self.endpoint_id, True, probe, want))
            self._endpoint = claimed.endpoint or self._endpoint
            self._claims_probe = False
            while self._held or self._flights:
                self._launch()
                try:
                    await self._step()
                except StoreError:
                    await asyncio.sleep(AWAY_S)
        finally:
            self.abandon()
        return claimed

    async def _step(self) -> None:
        """Visit the endpoint's row if there is a reason, or wait until there is one."""
        visit = self._next_visit() if self._held else None
        if visit is not None:
            await self._visit(visit)
            return
        left = self._renewal_s() if self._held else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()
        self._changed.clear()

    def _next_visit(self) -> Visit | None:
        if self._resting() or self.over:
            self.queue.clear()
            if not self._flights:
                return Visit(self.endpoint_id, back=self._endpoint)
            return Visit(self.endpoint_id) if self._renewal_s() <= 0 else None
        ahead = self._ahead(pacing.allowed(self._endpoint))
        # What is open is found again.
        fetch = Visit(self.endpoint_id, want=ahead + len(self.open))
        if not self._flights and not self.queue:
            self.woken = False
            return replace(fetch, back=self._endpoint)
        if self._is_low():
            self.woken = False
            return fetch
        if self._renewal_s() <= 0:
            # While requests hang others may have come due, and their message may be lost.
            return fetch if not self.queue else Visit(self.endpoint_id)
        return None

    def _is_low(self) -> bool:
        """Whether half of what was fetched is begun, and there may be more."""
        return (self.woken or self._full) and len(self.queue) <= self._low

    def _renewal_s(self) -> float:
        """Seconds until the lease is to be renewed."""
        return self._until - time.monotonic() - self._shared.rules.lease_s * 2 / 3

    def _is_suspect(self) -> bool:
        return self._claims_probe or pacing.suspect(self._endpoint)

    def _resting(self) -> bool:
        return pacing.probing(self._endpoint) and self._endpoint.resume_us > self._now_us()

    def _ahead(self, window: int) -> int:
        """Deliveries to have fetched and not begun."""
        room = BUFFERED - self._shared.buffered() + len(self.queue)
        return min(AHEAD * window, max(window, room))

    async def _visit(self, visit: Visit) -> Visited:
        began = time.monotonic()
        visited = await self._shared.recorder.visit(visit)
        self._held = visited.held
        self._until = began + self._shared.rules.lease_s
        if not visited.held:
            self.queue.clear()
        elif visit.want:
            self._feed(visited.due, began, full=len(visited.due) >= visit.want)
        return visited

    def _feed(self, found: Sequence[Due], began: float, *, full: bool) -> None:
        """Replace the queue by what was found, but for pairs with an attempt that is open."""
        busy = {due.pair for due in self.open.values()}
        self.queue.clear()
        for due in found:
            if due.deleted or due.halted:
                self._shared.recorder.put_aside(due, "deleted" if due.deleted else "halted")
            elif due.pair not in busy:
                self.queue.append(due)
        self._full, self._fetched, self._low = full, began, len(self.queue) // 2
        active = {due.subscription_id for due in self.queue if not due.is_test}
        self._shared.fence.admit(active, began)

    def _launch(self) -> None:
        """Begin as many attempts as the window allows."""
        if self.queue and time.monotonic() - self._fetched > self._shared.rules.fresh_s:
            self.queue.clear()
            self.woken = True
        while self.queue and self._held and not self.over and not self._resting():
            if len(self._flights) >= pacing.allowed(self._endpoint):
                return
            due = self.queue.popleft()
            self.open[due.id] = due
            flight = asyncio.create_task(self._attempt(due, self._fetched))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: "asyncio.Task[bool | None]") -> None:
        self._flights.discard(flight)
        if not flight.cancelled():
            self._learn(flight)
            self._launch()
        if not self._flights or self._is_low():
            self._changed.set()

    def _learn(self, flight: "asyncio.Task[bool | None]") -> None:
        error = flight.exception()
        if error is not None:
            log.error("an attempt for endpoint %d failed", self.endpoint_id, exc_info=error)
            self.give_up()
        elif flight.result():
            self._endpoint = pacing.succeeded(self._endpoint)
        elif flight.result() is not None:
            self._endpoint = pacing.failed(self._endpoint, now_us=self._now_us())

    async def _attempt(self, due: Due, fetched: float) -> bool | None:
        """Make one attempt; whether the receiver took it, None if that says nothing of it."""
        place: Place | None = None
        try:
            place = await self._shared.places.take(suspect=self._is_suspect())
            now = time.monotonic()
            if now > self._until or now - fetched > self._shared.rules.fresh_s:
                raise Withdrawn
            return await self._make(due, place)
        except BaseException as error:
            # Nothing will be recorded of it: it may be fetched again.
            if place is not None:
                place.leave()
            self.open.pop(due.id, None)
            if isinstance(error, Withdrawn):
                return None
            raise

    async def _make(self, due: Due, place: Place) -> bool | None:
        allowed = partial(self._may_begin, due)
        if not await allowed():
            raise Withdrawn
        began, at_us, attempt = time.monotonic(), self._now_us(), due.attempts + 1
        request: Request | None = None
        try:
            request = self._request(due, attempt, at_us)
            answer = await self._shared.sender.send(request, allowed)
        except StoreError as error:
            answer = Answer(error=error.detail)
        rules = self._shared.rules
        verdict = judge(
            answer,
            attempt=attempt,
            delays=rules.delays_s,
            now_us=self._now_us(),
            rng=self._shared.rng,
            retry_after_cap_s=rules.retry_after_cap_s,
        )
        seconds = time.monotonic() - began
        _log_attempt(due, attempt, answer, type(verdict).__name__, seconds)
        result = result_of(due, answer, verdict, at_us=at_us, seconds=seconds)
        self._shared.recorder.keep(result, self, place)
        return None if request is None else isinstance(verdict, Delivered)

    async def _may_begin(self, due: Due) -> bool:
        """Whether the subscription is still there and active; what is not is put aside."""
        try:
            how = await self._shared.fence.stopped(due.subscription_id)
        except StoreError as error:
            log.warning("a delivery waits: %s", error.detail)
            return False
        if how is None or (how == "halted" and due.is_test):
            return True
        self._shared.recorder.put_aside(due, how)
        return False

    def _request(self, due: Due, attempt: int, at_us: int) -> Request:
        context = secret_context(due.subscription_uuid)
        sealed = (due.hmac_secret, due.hmac_previous)
        keys = [self._shared.unseal(one, context) for one in sealed if one is not None]
        return request_for(due, attempt=attempt, now_us=at_us, keys=keys)

    def _now_us(self) -> int:
        return self._shared.recorder.now_us()


def _log_attempt(due: Due, attempt: int, answer: Answer, verdict: str, seconds: float) -> None:
    """One line for each attempt; a query may hold a secret, so it is left out."""
    log.info(
        "delivery %s attempt %d to %s: %s (%s) in %.3f s",
        due.uuid,
        attempt,
        due.callback_url.partition("?")[0],
        verdict,
        answer.status if answer.error is None else answer.error,
        seconds,
        extra={"request_id": due.request_id} if due.request_id else None,
    )
