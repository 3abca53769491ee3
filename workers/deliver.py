"""The actor `deliver(endpoint)` and what its process needs: event loop, deliverer, watchdog.

A message says that something may be due for an endpoint. The lease on the endpoint's row decides
who serves it: a message for an endpoint that is served already only wakes its turn, and one that
is lost is sent again by the clock.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import dramatiq
from dramatiq.asyncio import EventLoopThread, get_event_loop_thread
from dramatiq.middleware import Middleware

import config
from config import open_files
from pipelines.flow import DELIVER, deliver_to
from pipelines.notifying import pacing
from pipelines.notifying.subscriptions import SEALING
from pipelines.topics import DELIVERIES
from storage.catalog import Catalog
from storage.catalog.delivery_turns import Lessee
from storage.errors import StoreError
from storage.model import Todo
from storage.protocols import Notices
from storage.sealing import Sealer, derive
from storage.stores import Stores
from workers.broker import UNDECLARED
from workers.delivery_records import Fence, Places, Recorder
from workers.delivery_turns import Rules, Sends, Shared, Turn, Unseal
from workers.stopping import IDLE_MS, STOP_MS
from workers.webhooks import Sender

log = logging.getLogger(__name__)

QUEUE = DELIVER
TIME_LIMIT_MS = 120_000
"""Far more than a turn and its last requests take."""
PROBES = 2
"""Receivers that keep failing share this part of the threads: a half."""
CROWDED_S = 0.1
"""How long all threads may be in use before they are freed."""
CLOSE_S = 2.0
"""How long turns may take to release their endpoints once their requests were cancelled."""
STUCK_CHECK_S, STUCK_CHECKS = 5.0, 3
"""An event loop that misses so many checks of the watchdog is stuck."""
EXIT_STUCK = 70

OTHER_FILES = 256
"""What a process has open besides its requests."""

T = TypeVar("T")


class SendsMessages(Protocol):
    """Sends messages: `workers.chains.Chains`."""

    def send(self, rows: tuple[Todo, ...], request_id: str = "") -> None: ...


def rules_of(settings: config.Settings) -> Rules:
    """The operator's numbers."""
    return Rules(
        delays_s=settings.delivery_delays_s,
        in_flight=settings.delivery_in_flight,
        retry_after_cap_s=settings.delivery_retry_after_cap_s,
        disable_after_s=settings.disable_after_s,
    )


def sender_of(settings: config.Settings) -> Sender:
    """What sends, as patient as the operator wants it; build it inside the event loop."""
    return Sender(
        timeout_s=settings.delivery_timeout_s,
        allow_private=settings.allow_private_callbacks,
        body_bytes=settings.delivery_body_bytes,
    )


class Deliverer:
    """All turns of one process; `open` and `serve` belong to its event loop."""

    def __init__(
        self,
        catalog: Catalog,
        notices: Notices,
        chains: SendsMessages,
        *,
        rules: Rules,
        new_sender: Callable[[], Sends],
        unseal: Unseal,
        threads: int,
    ) -> None:
        self._catalog, self._notices, self._chains, self._rules = catalog, notices, chains, rules
        self._new_sender, self._unseal, self._threads = new_sender, unseal, threads
        self._turns: dict[int, Turn] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Event] = set()
        """One for each thread that waits for its turn."""
        self._stopping = False
        self._listener: threading.Thread | None = None

    async def open(self) -> None:
        """Start recording results and listening for notices."""
        rules, catalog = self._rules, self._catalog
        open_files.allow(rules.in_flight + OTHER_FILES)
        lessee = Lessee(uuid4().hex, rules.lease_s, pacing.PATIENCE, rules.disable_after_s)
        self._sender = self._new_sender()
        places = Places(rules.in_flight, rules.first_places)
        self._recorder = Recorder(catalog, lessee, places)
        self._fence = Fence(catalog, self._subscriptions)
        self._shared = Shared(
            self._recorder,
            self._fence,
            self._sender,
            rules,
            self._unseal,
            Random(),
            places,
            lambda: sum(len(turn.queue) for turn in self._turns.values()),
        )
        self._running = asyncio.create_task(self._recorder.run())
        loop = asyncio.get_running_loop()
        self._listener = threading.Thread(
            target=self._listen, args=(loop,), name="notices of deliveries", daemon=True
        )
        self._listener.start()

    async def serve(self, endpoint_id: int) -> None:
        """Send what is due to an endpoint until nothing is, or the turn is over.

        While all threads are in use turns go on by themselves, so that slow receivers do not keep
        the threads from others.
        """
        turn = self._turns.get(endpoint_id)
        if turn is not None:
            turn.wake()
            return
        turn = self._turns[endpoint_id] = Turn(endpoint_id, self._shared, self._ends)
        let_go = asyncio.Event()
        serving = asyncio.create_task(self._serve(turn))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        serving.add_done_callback(lambda _: let_go.set())
        self._waiting.add(let_go)
        if len(self._waiting) >= self._threads:
            asyncio.get_running_loop().call_later(CROWDED_S, self._let_go)
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            serving.cancel()
            raise
        finally:
            self._waiting.discard(let_go)

    def _let_go(self) -> None:
        """Free all threads if all are in use."""
        if len(self._waiting) >= self._threads:
            for let_go in self._waiting:
                let_go.set()

    async def _serve(self, turn: Turn) -> None:
        try:
            # Woken while it released the endpoint, it looks again: no wake-up is lost.
            while turn.woken and not self._stopping:
                await self._run(turn)
                if turn.over:
                    break
        except StoreError as error:
            log.warning("endpoint %d is not served now: %s", turn.endpoint_id, error.detail)
        except Exception:
            log.exception("endpoint %d is not served now", turn.endpoint_id)
        finally:
            del self._turns[turn.endpoint_id]
        if turn.over and not self._stopping:
            await asyncio.to_thread(self._chains.send, deliver_to([turn.endpoint_id]))

    async def _run(self, turn: Turn) -> None:
        probing = sum(each.probing for each in self._turns.values())
        claimed = await turn.run(probe=probing * PROBES < self._threads)
        if claimed.elsewhere:
            # The process that leases it may be waiting for an answer: it has room for more.
            await asyncio.to_thread(self._notices.publish, DELIVERIES)

    def stop(self) -> None:
        """Begin no more attempts; turns end when their requests are answered."""
        self._stopping = True
        for turn in self._turns.values():
            turn.wake()

    async def close(self, until: float = 0.0) -> None:
        """Wait so long for answers, cancel the requests that are left, release every endpoint,
        record every result."""
        self.stop()
        while self._turns and time.monotonic() < until:
            await asyncio.sleep(0.02)
        end = time.monotonic() + CLOSE_S
        while self._turns and time.monotonic() < end:
            for turn in self._turns.values():
                turn.abandon()
            await asyncio.sleep(0.02)
        await self._recorder.close(self._running)
        self._fence.close()
        await self._sender.close()
        await asyncio.to_thread(self._notices.publish, DELIVERIES)

    def _ends(self, since_s: float) -> bool:
        """Whether a turn that began so long ago is over."""
        return self._stopping or since_s > self._rules.turn_s

    def _subscriptions(self) -> set[int]:
        """Those of what is in flight or waits for it."""
        return {
            due.subscription_id
            for turn in self._turns.values()
            for due in (*turn.queue, *turn.open.values())
        }

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake every turn at every notice, in a thread of its own."""
        with self._notices.listen(DELIVERIES) as listening:
            while not self._stopping:
                if listening.wait(60.0) and not self._stopping:
                    loop.call_soon_threadsafe(self._wake_turns)

    def _wake_turns(self) -> None:
        for turn in self._turns.values():
            turn.wake()


def deliverer(
    stores: Stores, chains: SendsMessages, settings: config.Settings, *, threads: int
) -> Deliverer:
    """The deliverer of a process with these settings."""
    sealer = Sealer(derive(settings.secret_key.encode(), SEALING))
    return Deliverer(
        stores.catalog,
        stores.notices,
        chains,
        rules=rules_of(settings),
        new_sender=lambda: sender_of(settings),
        unseal=sealer.open,
        threads=threads,
    )


_deliverer: Deliverer | None = None


# Retries are columns of the delivery's row, so dramatiq's own stay off (max_retries=0).
@dramatiq.actor(
    queue_name=QUEUE, priority=0, time_limit=TIME_LIMIT_MS, max_retries=0, broker=UNDECLARED
)
async def deliver(endpoint: str) -> None:
    """Send what is due to one receiver, within its window; subscribers wait for it."""
    if _deliverer is None:
        raise RuntimeError("no deliveries in this process: call `declare` first")
    await _deliverer.serve(int(endpoint))


def declare(broker: dramatiq.Broker, with_deliverer: Deliverer | None = None) -> None:
    """Move the actor to this process's broker; a process that only sends has no deliverer."""
    global _deliverer
    deliver.broker = broker
    broker.declare_actor(deliver)
    if with_deliverer is not None:
        _deliverer = with_deliverer
        broker.add_middleware(Deliveries(with_deliverer))


def worker(
    broker: dramatiq.Broker,
    stores: Stores,
    chains: SendsMessages,
    settings: config.Settings,
    *,
    threads: int,
) -> dramatiq.Worker:
    """A worker of this queue alone, not started yet; its threads only wait for the event loop."""
    declare(broker, deliverer(stores, chains, settings, threads=threads))
    return dramatiq.Worker(broker, queues={QUEUE}, worker_timeout=IDLE_MS, worker_threads=threads)


class Deliveries(Middleware):
    """Opens and closes the deliverer with the worker that runs the queue `deliver`."""

    def __init__(self, opened: Deliverer) -> None:
        self._deliverer = opened
        self._watchdog: Watchdog | None = None
        self._stop_by = 0.0

    def before_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Open it in the event loop, which the middleware AsyncIO has started."""
        if _delivers(worker):
            thread = _event_loop_thread()
            _run(thread, self._deliverer.open())
            self._watchdog = Watchdog(thread.loop)
            self._watchdog.start()

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Let the turns end while the worker waits for its threads."""
        if _delivers(worker):
            self._stop_by = time.monotonic() + STOP_MS / 1000
            _event_loop_thread().loop.call_soon_threadsafe(self._deliverer.stop)

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Record what is left, before AsyncIO stops the event loop."""
        if _delivers(worker):
            if self._watchdog is not None:
                self._watchdog.stop()
            _run(_event_loop_thread(), self._deliverer.close(self._stop_by))


def _delivers(worker: dramatiq.Worker) -> bool:
    return worker.consumer_whitelist is None or QUEUE in worker.consumer_whitelist


def _event_loop_thread() -> EventLoopThread:
    thread = get_event_loop_thread()
    if thread is None:
        raise RuntimeError("the broker lacks the middleware AsyncIO")
    return thread


def _run(thread: EventLoopThread, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, thread.loop).result()


def _end_process() -> None:
    os._exit(EXIT_STUCK)


class Watchdog:
    """Ends the process when its event loop is stuck, so that the supervisor starts it again."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        check_s: float = STUCK_CHECK_S,
        bite: Callable[[], None] = _end_process,
    ) -> None:
        self._loop, self._check_s, self._bite = loop, check_s, bite
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Watch until stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        # Checks are counted, not seconds: a process that was suspended has missed one, not many.
        ticked, missed = threading.Event(), 0
        self._loop.call_soon_threadsafe(ticked.set)
        while not self._stopped.wait(self._check_s):
            missed = 0 if ticked.is_set() else missed + 1
            if missed == STUCK_CHECKS:
                log.critical("the event loop of deliveries is stuck: this process ends")
                self._bite()
                return
            if ticked.is_set():
                ticked.clear()
                self._loop.call_soon_threadsafe(ticked.set)
