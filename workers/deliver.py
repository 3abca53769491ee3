"""The actor `deliver(endpoint)`, its deliverer, middleware and watchdog.

A message says that an endpoint may have due deliveries. The lease on the endpoint's row decides
which process serves it: a message for an endpoint in service only wakes its turn, and the scheduler
sends lost messages again.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, TypeVar
from uuid import uuid4

import dramatiq
from dramatiq.asyncio import EventLoopThread, get_event_loop_thread
from dramatiq.middleware import Middleware

import config
from config import process
from pipelines import deliveries
from pipelines.flow import DELIVER, DELIVERIES_TOPIC, delivery_jobs
from pipelines.subscriptions import SECRET_PURPOSE
from storage.catalog import Catalog
from storage.catalog.endpoints import LeaseHolder
from storage.encryption import SecretBox, derive_keys
from storage.errors import DomainError
from storage.metrics import EVENT_LOOP_LAG
from storage.protocols import PubSub
from storage.stores import Stores
from storage.tracing import Tracer
from workers.broker import UNDECLARED_BROKER
from workers.claims import JobSender
from workers.delivery_records import AttemptPermits, ResultRecorder, SubscriptionFence
from workers.delivery_turns import (
    DeliveryRules,
    EndpointTurn,
    SendsWebhooks,
    TurnContext,
    UnsealSecret,
)
from workers.queues import IDLE_POLL_MS, STOP_TIMEOUT_MS
from workers.webhooks import WebhookSender

log = logging.getLogger(__name__)

QUEUE = DELIVER
TIME_LIMIT_MS = 120_000
"""Much more than a turn and its last requests take."""
PROBING_SHARE = 2
"""Failing receivers get at most this fraction of the threads: one half."""
CROWDED_AFTER_S = 0.1
"""How long all threads may be in use before they are freed."""
CLOSE_TIMEOUT_S = 2.0
"""How long turns may take to release their endpoints after their requests are cancelled."""
STUCK_CHECK_S, STUCK_CHECKS = 1.0, 15
"""Interval and number of missed checks after which an event loop counts as stuck."""
STUCK_EXIT_CODE = 70

OTHER_FILES = 256
"""Files that a process has open besides its requests."""

T = TypeVar("T")


def build_webhook_sender(settings: config.Settings) -> WebhookSender:
    """Build the webhook client; call it inside the event loop."""
    return WebhookSender(
        timeout_s=settings.delivery_timeout_s,
        allow_private=settings.allow_private_callbacks,
        body_bytes=settings.delivery_body_bytes,
    )


class Deliverer:
    """All turns of one process; call `open` and `serve` in its event loop."""

    def __init__(
        self,
        catalog: Catalog,
        notices: PubSub,
        chains: JobSender,
        *,
        rules: DeliveryRules,
        new_sender: Callable[[], SendsWebhooks],
        unseal: UnsealSecret,
        threads: int,
        tracer: Tracer | None = None,
    ) -> None:
        self._catalog, self._notices, self._chains, self._rules = catalog, notices, chains, rules
        self._new_sender, self._unseal, self._threads = new_sender, unseal, threads
        self._tracer = tracer or Tracer()
        self._turns: dict[int, EndpointTurn] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Event] = set()
        """One event per thread that waits for a turn."""
        self._stopping = False
        self._listener: threading.Thread | None = None

    async def open(self) -> None:
        """Start recording results and listening for wake-ups."""
        rules, catalog = self._rules, self._catalog
        process.raise_open_files_limit(rules.in_flight + OTHER_FILES)
        lease_holder = LeaseHolder(
            uuid4().hex, rules.lease_s, deliveries.FAILURES_BEFORE_PROBING, rules.disable_after_s
        )
        self._sender = self._new_sender()
        permits = AttemptPermits(rules.in_flight, rules.first_permits)
        self._recorder = ResultRecorder(catalog, lease_holder, permits)
        self._fence = SubscriptionFence(catalog, self._list_subscriptions)
        self._shared = TurnContext(
            self._recorder,
            self._fence,
            self._sender,
            rules,
            self._unseal,
            Random(),
            permits,
            lambda: sum(len(turn.queue) for turn in self._turns.values()),
            self._tracer,
        )
        self._running = asyncio.create_task(self._recorder.run())
        loop = asyncio.get_running_loop()
        self._listener = threading.Thread(
            target=self._listen, args=(loop,), name="notices of deliveries", daemon=True
        )
        self._listener.start()

    async def serve(self, endpoint_id: int) -> None:
        """Send an endpoint's due deliveries until none is left, or the turn is over.

        While all threads are in use turns continue without them, so that slow receivers do not
        block others.
        """
        turn = self._turns.get(endpoint_id)
        if turn is not None:
            turn.wake()
            return
        turn = self._turns[endpoint_id] = EndpointTurn(
            endpoint_id, self._shared, self._is_turn_over
        )
        released = asyncio.Event()
        task = asyncio.create_task(self._serve(turn))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        task.add_done_callback(lambda _: released.set())
        self._waiting.add(released)
        if len(self._waiting) >= self._threads:
            asyncio.get_running_loop().call_later(CROWDED_AFTER_S, self._free_threads)
        try:
            await released.wait()
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._waiting.discard(released)

    def _free_threads(self) -> None:
        """Free all threads if all are in use."""
        if len(self._waiting) >= self._threads:
            for released in self._waiting:
                released.set()

    async def _serve(self, turn: EndpointTurn) -> None:
        try:
            # If it was woken while releasing the endpoint, it looks again: no wake-up is lost.
            while turn.woken and not self._stopping:
                await self._run(turn)
                if turn.is_over:
                    break
        except DomainError as error:
            log.warning("endpoint %d is not served now: %s", turn.endpoint_id, error.detail)
        except Exception:
            log.exception("endpoint %d is not served now", turn.endpoint_id)
        finally:
            del self._turns[turn.endpoint_id]
        if turn.is_over and not self._stopping:
            await asyncio.to_thread(self._chains.send, delivery_jobs([turn.endpoint_id]))

    async def _run(self, turn: EndpointTurn) -> None:
        probing = sum(each.is_probing for each in self._turns.values())
        claimed = await turn.run(probe=probing * PROBING_SHARE < self._threads)
        if claimed.is_leased_elsewhere:
            # The process with the lease may be waiting for a response, with room for more.
            await asyncio.to_thread(self._notices.publish, DELIVERIES_TOPIC)

    def stop(self) -> None:
        """Begin no more attempts; turns end with their requests."""
        self._stopping = True
        for turn in self._turns.values():
            turn.wake()

    async def close(self, until: float = 0.0) -> None:
        """Wait for responses until `until`, cancel the rest, release endpoints, record results."""
        self.stop()
        while self._turns and time.monotonic() < until:
            await asyncio.sleep(0.02)
        end = time.monotonic() + CLOSE_TIMEOUT_S
        while self._turns and time.monotonic() < end:
            for turn in self._turns.values():
                turn.cancel_requests()
            await asyncio.sleep(0.02)
        await self._recorder.close(self._running)
        self._fence.close()
        await self._sender.close()
        await asyncio.to_thread(self._notices.publish, DELIVERIES_TOPIC)

    def _is_turn_over(self, since_s: float) -> bool:
        """Return whether a turn of this age is over."""
        return self._stopping or since_s > self._rules.turn_s

    def _list_subscriptions(self) -> set[int]:
        """Return the subscriptions of all open and queued deliveries."""
        return {
            due.subscription_id
            for turn in self._turns.values()
            for due in (*turn.queue, *turn.open.values())
        }

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake every turn at every wake-up; runs in a thread."""
        with self._notices.listen(DELIVERIES_TOPIC) as listening:
            while not self._stopping:
                if listening.wait(60.0) and not self._stopping:
                    loop.call_soon_threadsafe(self._wake_turns)

    def _wake_turns(self) -> None:
        for turn in self._turns.values():
            turn.wake()


_deliverer: Deliverer | None = None


# Retries are columns of the delivery's row, so dramatiq's own are off (max_retries=0).
@dramatiq.actor(
    queue_name=QUEUE, priority=0, time_limit=TIME_LIMIT_MS, max_retries=0, broker=UNDECLARED_BROKER
)
async def deliver(endpoint: str) -> None:
    """Send due deliveries to one endpoint, within its window."""
    if _deliverer is None:
        raise RuntimeError("no deliveries in this process: call `declare_deliver` first")
    await _deliverer.serve(int(endpoint))


def declare_deliver(broker: dramatiq.Broker, with_deliverer: Deliverer | None = None) -> None:
    """Move the actor to this process's broker; a process that only sends has no deliverer."""
    global _deliverer
    deliver.broker = broker
    broker.declare_actor(deliver)
    if with_deliverer is not None:
        _deliverer = with_deliverer
        broker.add_middleware(DelivererMiddleware(with_deliverer))


def build_worker(
    broker: dramatiq.Broker,
    stores: Stores,
    chains: JobSender,
    settings: config.Settings,
    *,
    threads: int,
) -> dramatiq.Worker:
    """Build a worker for this queue, not started; its threads only wait for the event loop."""
    rules = DeliveryRules(
        delays_s=settings.delivery_delays_s,
        in_flight=settings.delivery_in_flight,
        retry_after_cap_s=settings.delivery_retry_after_cap_s,
        disable_after_s=settings.disable_after_s,
    )
    deliverer = Deliverer(
        stores.catalog,
        stores.pubsub,
        chains,
        rules=rules,
        new_sender=lambda: build_webhook_sender(settings),
        unseal=SecretBox(*derive_keys(settings.secret_keys, SECRET_PURPOSE)).open,
        threads=threads,
        tracer=stores.tracer,
    )
    declare_deliver(broker, deliverer)
    return dramatiq.Worker(
        broker, queues={QUEUE}, worker_timeout=IDLE_POLL_MS, worker_threads=threads
    )


class DelivererMiddleware(Middleware):
    """Opens and closes the deliverer with the worker of the queue `deliver`."""

    def __init__(self, opened: Deliverer) -> None:
        self._deliverer = opened
        self._watchdog: Watchdog | None = None
        self._stop_by = 0.0

    def before_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Open the deliverer in the event loop, which the AsyncIO middleware started."""
        if _runs_deliver_queue(worker):
            thread = _event_loop_thread()
            _run_in_loop(thread, self._deliverer.open())
            self._watchdog = Watchdog(thread.loop)
            self._watchdog.start()

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Let the turns end while the worker waits for its threads."""
        if _runs_deliver_queue(worker):
            self._stop_by = time.monotonic() + STOP_TIMEOUT_MS / 1000
            _event_loop_thread().loop.call_soon_threadsafe(self._deliverer.stop)

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Record the rest before AsyncIO stops the event loop."""
        if _runs_deliver_queue(worker):
            if self._watchdog is not None:
                self._watchdog.stop()
            _run_in_loop(_event_loop_thread(), self._deliverer.close(self._stop_by))


def _runs_deliver_queue(worker: dramatiq.Worker) -> bool:
    return worker.consumer_whitelist is None or QUEUE in worker.consumer_whitelist


def _event_loop_thread() -> EventLoopThread:
    thread = get_event_loop_thread()
    if thread is None:
        raise RuntimeError("the broker lacks the middleware AsyncIO")
    return thread


def _run_in_loop(thread: EventLoopThread, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, thread.loop).result()


class Watchdog:
    """Measures an event loop's lag; ends the process if the loop is stuck, for its restart.

    It has a separate thread, so that the metric grows while the loop stands.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        check_s: float = STUCK_CHECK_S,
        bite: Callable[[], None] | None = None,
    ) -> None:
        self._loop, self._check_s = loop, check_s
        self._bite = bite or partial(os._exit, STUCK_EXIT_CODE)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        lag = EVENT_LOOP_LAG.labels("worker")
        # Count checks, not seconds: a suspended process misses one check, not many.
        tick, missed = _Tick(self._loop), 0
        while not self._stopped.wait(self._check_s):
            lag.set(tick.lag_s())
            if tick.is_done():
                tick, missed = _Tick(self._loop), 0
                continue
            missed += 1
            if missed == STUCK_CHECKS:
                log.critical("the event loop of deliveries is stuck: this process ends")
                self._bite()
                return


class _Tick:
    """A callback that an event loop has to run, and how late it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due, self._ran = time.monotonic(), 0.0
        loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._ran = time.monotonic()

    def is_done(self) -> bool:
        """Return whether the loop has run it."""
        return self._ran > 0

    def lag_s(self) -> float:
        """Return how long the loop took to run it; while it has not, how long it has been due."""
        return (self._ran or time.monotonic()) - self._due
