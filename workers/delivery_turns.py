"""One endpoint's turn: a lease, requests within a window, results recorded in groups.

All turns of a process share one event loop, one recorder, one fence and one limit of requests in
flight. A process that crashes loses its leases; what it sent and did not record is sent again with
the same transaction id.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Protocol

from pipelines import deliveries
from pipelines.deliveries import WebhookRequest, WebhookResponse, build_request, build_result
from pipelines.subscriptions import secret_context
from storage.catalog.deliveries import AttemptResult, DueDelivery
from storage.catalog.endpoints import Endpoint, EndpointVisit, VisitResult
from storage.errors import DomainError
from storage.metrics import DELIVERIES, DELIVERY_ATTEMPTS, DELIVERY_SECONDS
from storage.tracing import Attribute, Span, Tracer, split_request
from workers.delivery_records import (
    FIRST_PERMITS,
    OUTAGE_PAUSE_S,
    AttemptPermit,
    AttemptPermits,
    ResultRecorder,
    SubscriptionFence,
)
from workers.webhooks import DeliveryWithdrawn, SendPermission

log = logging.getLogger(__name__)

PREFETCH_WINDOWS = 8
"""Windows of deliveries that a turn fetches: one transaction takes as long as many responses."""
PREFETCH_LIMIT = 2000
"""Deliveries that all turns of a process fetch ahead."""

UnsealSecret = Callable[[bytes, bytes], bytes]


class SendsWebhooks(Protocol):
    """Sends requests; see `workers.webhooks.WebhookSender`."""

    async def send(self, request: WebhookRequest, allowed: SendPermission) -> WebhookResponse:
        """Return the response or error; DeliveryWithdrawn if `allowed` refuses."""

    async def close(self) -> None:
        """Close every connection."""


@dataclass(frozen=True)
class DeliveryRules:
    """The operator's numbers; see `config.settings`."""

    delays_s: tuple[float, ...]
    in_flight: int = 1000
    first_permits: int = FIRST_PERMITS
    """Attempt permits of a new process; see `AttemptPermits`."""
    retry_after_cap_s: float = 86_400.0
    disable_after_s: float = 0.0
    lease_s: float = 5.0
    turn_s: float = 30.0
    fresh_s: float = 2.0
    """Age at which a fetched delivery is fetched again, since it may be superseded; twice the time
    that it took to fetch if that is more, but no longer than a lease."""


@dataclass(frozen=True)
class TurnContext:
    """What all turns of a process share."""

    recorder: ResultRecorder
    fence: SubscriptionFence
    sender: SendsWebhooks
    rules: DeliveryRules
    unseal: UnsealSecret
    rng: Random
    permits: AttemptPermits
    buffered: Callable[[], int]
    """Deliveries that all turns have fetched and not sent."""
    tracer: Tracer = field(default_factory=Tracer)


class EndpointTurn:
    """One endpoint while this process leases it."""

    def __init__(
        self, endpoint_id: int, shared: TurnContext, ends: Callable[[float], bool]
    ) -> None:
        self.endpoint_id = endpoint_id
        self.woken = True
        """Whether due deliveries may exist that were not fetched yet."""
        self.queue: deque[DueDelivery] = deque()
        self.open: dict[int, DueDelivery] = {}
        """In flight, or not yet recorded."""
        self._endpoint = Endpoint(endpoint_id, 0, 1.0, 0)
        self._shared, self._ends = shared, ends
        self._flights: set[asyncio.Task[bool | None]] = set()
        self._changed = asyncio.Event()
        self._is_leased = self._full = self._claims_probe = False
        self._stale_at = self._until = self._began = 0.0
        self._low = 0

    @property
    def is_probing(self) -> bool:
        """Return whether the receiver keeps failing, or may do so."""
        return self._claims_probe or deliveries.is_probing(self._endpoint)

    @property
    def is_over(self) -> bool:
        """Return whether this turn begins no more attempts, though more may be due."""
        return self._ends(time.monotonic() - self._began)

    def wake(self) -> None:
        """Look for due deliveries again."""
        self.woken = True
        self._changed.set()

    def mark_recorded(self, delivery_id: int) -> None:
        """Remove a recorded attempt: the delivery after it may be fetched."""
        self.open.pop(delivery_id, None)

    def stop_attempts(self) -> None:
        """Begin no more attempts, and let the lease expire."""
        self._is_leased = False
        self.queue.clear()
        self._changed.set()

    def cancel_requests(self) -> None:
        """Cancel the requests in flight; they will be sent again."""
        for flight in list(self._flights):
            flight.cancel()

    async def run(self, *, probe: bool) -> VisitResult:
        """Claim the endpoint, send what is due, release it; return the result of the claim.

        DomainError if the catalog is down at the claim.
        """
        self._began = time.monotonic()
        self.woken, self._claims_probe = False, probe
        try:
            limit = self._count_prefetch(deliveries.INITIAL_WINDOW)
            claimed = await self._visit(EndpointVisit(self.endpoint_id, True, probe, limit))
            self._endpoint = claimed.endpoint or self._endpoint
            self._claims_probe = False
            while self._is_leased or self._flights:
                self._start_attempts()
                try:
                    await self._step()
                except DomainError:
                    await asyncio.sleep(OUTAGE_PAUSE_S)
        finally:
            self.cancel_requests()
        return claimed

    async def _step(self) -> None:
        """Visit the endpoint's row if there is a reason, or wait until there is one."""
        visit = self._next_visit() if self._is_leased else None
        if visit is not None:
            await self._visit(visit)
            return
        timeout_s = self._renewal_s() if self._is_leased else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()

    def _next_visit(self) -> EndpointVisit | None:
        if self._is_resting() or self.is_over:
            self.queue.clear()
            if not self._flights:
                return EndpointVisit(self.endpoint_id, released=self._endpoint)
            return EndpointVisit(self.endpoint_id) if self._renewal_s() <= 0 else None
        ahead = self._count_prefetch(deliveries.concurrency_limit(self._endpoint))
        # The query finds open deliveries, too.
        fetch = EndpointVisit(self.endpoint_id, limit=ahead + len(self.open))
        if not self._flights and not self.queue:
            self.woken = False
            return replace(fetch, released=self._endpoint)
        if self._is_low():
            self.woken = False
            return fetch
        if self._renewal_s() <= 0:
            # While requests hang, others may have become due, and their message may be lost.
            return fetch if not self.queue else EndpointVisit(self.endpoint_id)
        return None

    def _is_low(self) -> bool:
        """Return whether half of the fetched deliveries are begun, and there may be more."""
        return (self.woken or self._full) and len(self.queue) <= self._low

    def _renewal_s(self) -> float:
        """Return the seconds until the lease must be renewed."""
        return self._until - time.monotonic() - self._shared.rules.lease_s * 2 / 3

    def _is_resting(self) -> bool:
        return deliveries.is_probing(self._endpoint) and self._endpoint.resume_us > self._now_us()

    def _count_prefetch(self, window: int) -> int:
        """Return how many deliveries to fetch ahead of attempts."""
        room = PREFETCH_LIMIT - self._shared.buffered() + len(self.queue)
        return min(PREFETCH_WINDOWS * window, max(window, room))

    async def _visit(self, visit: EndpointVisit) -> VisitResult:
        began = time.monotonic()
        visited = await self._shared.recorder.visit(visit)
        self._is_leased = visited.is_leased
        self._until = began + self._shared.rules.lease_s
        if not visited.is_leased:
            self.queue.clear()
        elif visit.limit:
            self._replace_queue(
                visited.deliveries, began, full=len(visited.deliveries) >= visit.limit
            )
        return visited

    def _replace_queue(
        self, due_deliveries: Sequence[DueDelivery], began: float, *, full: bool
    ) -> None:
        """Replace the queue, except for ordering keys with an open attempt."""
        busy_keys = {due.ordering_key for due in self.open.values()}
        self.queue.clear()
        for due in due_deliveries:
            if due.deleted or due.halted:
                self._shared.recorder.withdraw(due, "deleted" if due.deleted else "halted")
            elif due.ordering_key not in busy_keys:
                self.queue.append(due)
        self._full, self._low = full, len(self.queue) // 2
        rules, fetching_s = self._shared.rules, time.monotonic() - began
        self._stale_at = began + max(rules.fresh_s, min(2 * fetching_s, rules.lease_s))
        active = {due.subscription_id for due in self.queue if not due.ignores_pause}
        self._shared.fence.mark_active(active, began)

    def _start_attempts(self) -> None:
        """Begin as many attempts as the window allows."""
        if self.queue and time.monotonic() > self._stale_at:
            self.queue.clear()
            self.woken = True
        while self.queue and self._is_leased and not self.is_over and not self._is_resting():
            if len(self._flights) >= deliveries.concurrency_limit(self._endpoint):
                return
            due = self.queue.popleft()
            self.open[due.id] = due
            flight = asyncio.create_task(self._attempt(due, self._stale_at))
            self._flights.add(flight)
            flight.add_done_callback(self._finish_attempt)

    def _finish_attempt(self, flight: "asyncio.Task[bool | None]") -> None:
        self._flights.discard(flight)
        if not flight.cancelled():
            self._adapt_window(flight)
            self._start_attempts()
        if not self._flights or self._is_low():
            self._changed.set()

    def _adapt_window(self, flight: "asyncio.Task[bool | None]") -> None:
        error = flight.exception()
        if error is not None:
            log.error("an attempt for endpoint %d failed", self.endpoint_id, exc_info=error)
            self.stop_attempts()
        elif flight.result():
            self._endpoint = deliveries.record_success(self._endpoint)
        elif flight.result() is not None:
            self._endpoint = deliveries.record_failure(self._endpoint, now_us=self._now_us())

    async def _attempt(self, due: DueDelivery, stale_at: float) -> bool | None:
        """Make one attempt; return whether it succeeded, None if that is unknown."""
        permit: AttemptPermit | None = None
        try:
            suspect = self._claims_probe or deliveries.is_suspect(self._endpoint)
            permit = await self._shared.permits.acquire(suspect=suspect)
            if time.monotonic() > min(self._until, stale_at):
                raise DeliveryWithdrawn
            return await self._make_attempt(due, permit)
        except BaseException as error:
            # Nothing will be recorded, so it may be fetched again.
            if permit is not None:
                permit.release()
            self.open.pop(due.id, None)
            if isinstance(error, DeliveryWithdrawn):
                return None
            raise

    async def _make_attempt(self, due: DueDelivery, permit: AttemptPermit) -> bool | None:
        allowed = partial(self._may_begin, due, permit)
        if not await allowed():
            raise DeliveryWithdrawn
        began, at_us, attempt = time.monotonic(), self._now_us(), due.attempts + 1
        request: WebhookRequest | None = None
        span = self._start_span(due)
        try:
            request = self._build_request(due, attempt, at_us, span.traceparent)
            response = await self._shared.sender.send(request, allowed)
        except DomainError as error:
            response = WebhookResponse(error=error.detail, failure="unsent")
        rules = self._shared.rules
        result = build_result(
            due,
            response,
            at_us=at_us,
            now_us=self._now_us(),
            seconds=time.monotonic() - began,
            delays=rules.delays_s,
            retry_after_cap_s=rules.retry_after_cap_s,
            rng=self._shared.rng,
        )
        _log_attempt(due, attempt, result)
        _count_attempt(attempt, response, result)
        _end_span(span, due, attempt, result)
        self._shared.recorder.record(result, self, permit)
        return None if request is None else result.is_success

    async def _may_begin(self, due: DueDelivery, permit: AttemptPermit) -> bool:
        """Return whether the subscription is active; withdraw the delivery if not.

        The permit is not lent meanwhile: all attempts that wait for the catalog begin at once when
        it responds. One that was lent before, because connecting took long, is counted again.
        """
        permit.take_back()
        try:
            reason = await self._shared.fence.find_stop_reason(due.subscription_id)
        except DomainError as error:
            log.warning("a delivery waits: %s", error.detail)
            return False
        if reason is None or (reason == "halted" and due.ignores_pause):
            permit.lend_later()
            return True
        self._shared.recorder.withdraw(due, reason)
        return False

    def _start_span(self, due: DueDelivery) -> Span:
        traceparent = split_request(due.request_id)[1]
        return self._shared.tracer.start("client", traceparent) if traceparent else Span()

    def _build_request(
        self, due: DueDelivery, attempt: int, at_us: int, traceparent: str
    ) -> WebhookRequest:
        context = secret_context(due.subscription_uuid)
        sealed = (due.hmac_secret, due.hmac_previous)
        keys = [self._shared.unseal(secret, context) for secret in sealed if secret is not None]
        return build_request(due, attempt=attempt, now_us=at_us, keys=keys, traceparent=traceparent)

    def _now_us(self) -> int:
        return self._shared.recorder.now_us()


def _log_attempt(due: DueDelivery, attempt: int, result: AttemptResult) -> None:
    """Log an attempt in one line, without the query, which may hold a secret."""
    log.info(
        "delivery %s attempt %d to %s: %s (%s) in %.3f s",
        due.uuid,
        attempt,
        due.callback_url.partition("?")[0],
        result.state,
        result.status if result.error is None else result.error,
        result.seconds,
        extra={"request_id": split_request(due.request_id)[0]} if due.request_id else None,
    )


def _count_attempt(attempt: int, response: WebhookResponse, result: AttemptResult) -> None:
    """Count an attempt; the last one of a delivery that is given up counts as `gave_up`, too."""
    endpoint = response.endpoint
    outcome = "delivered" if result.is_success else response.failure or "refused"
    DELIVERIES.labels(outcome, endpoint).inc()
    DELIVERY_SECONDS.labels(endpoint).observe(result.seconds)
    if result.is_success:
        DELIVERY_ATTEMPTS.labels(endpoint).observe(attempt)
    elif result.state == "failed":
        DELIVERIES.labels("gave_up", endpoint).inc()


def _end_span(span: Span, due: DueDelivery, attempt: int, result: AttemptResult) -> None:
    """Record an attempt without the receiver's URL, which may hold a secret."""
    attributes: dict[str, Attribute] = {
        "store.delivery": due.uuid,
        "store.attempt": attempt,
        "store.outcome": result.state,
        "store.request_id": split_request(due.request_id)[0],
    }
    if result.status is not None:
        attributes["http.response.status_code"] = result.status
    span.end("deliver", attributes, failed=not result.is_success)
