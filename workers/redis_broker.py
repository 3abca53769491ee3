"""The broker of a store with several workers: messages travel through Redis."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import redis
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.brokers.redis import RedisBroker as _RedisBroker
from dramatiq.errors import ConnectionClosed
from redis.backoff import NoBackoff
from redis.retry import Retry

from config import SettingsError
from storage.errors import Unavailable
from storage.notices_redis import keepalive
from storage.protocols import Notices
from workers import actors
from workers.broker import middleware
from workers.chains import Chains
from workers.queues import HEARTBEAT_TIMEOUT_MS, MAINTENANCE_CHANCE

log = logging.getLogger(__name__)

POLL_MS = 25
"""Longest pause of a consumer between two looks while messages come."""
WARM_S = 2.0
"""How long after its last message came or went a queue is looked at again and again …"""
COLD_S = 1.0
"""… and how long a look waits from then on, unless a notice ends it: less than the silence after
which the messages that a worker holds are given to others."""
NOTICE_S = 0.5
"""Least time between two notices of one sender for one queue: less than a queue stays warm."""
PATIENCE_S = 3.0
"""How long one command may take: the server is asked for nothing that it would have to wait for."""


WITHOUT_REDIS = "STORE_REDIS_URL has to name the Redis that the processes of this store share"


def _topic(queue_name: str) -> str:
    return f"queue:{queue_name}"


class RedisBroker(_RedisBroker):
    """Without delay queues: the next attempt's time lives in the catalog. An idle worker is woken
    by a notice, so that an idle store need not ask its queues forty times a second."""

    def __init__(self, notices: Notices, poll_ms: int, **parameters: Any) -> None:
        super().__init__(**parameters)  # type: ignore[no-untyped-call]
        self.notices = notices
        self._poll_ms = poll_ms
        self._noticed: dict[str, float] = {}

    def declare_queue(self, queue_name: str) -> None:
        """Know a queue, without the companion that nobody would poll for anything."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Put a message into its queue, and wake who waits for one."""
        with self.reached():
            sent = super().enqueue(message, delay=delay)
        now = time.monotonic()
        if now - self._noticed.get(message.queue_name, -NOTICE_S) >= NOTICE_S:
            self._noticed[message.queue_name] = now
            self.notices.publish(_topic(message.queue_name))
        return sent

    def depth(self, queue_name: str) -> int:
        """Messages that wait in a queue, not counting those that a worker holds."""
        with self.reached():
            return int(self.client.llen(f"{self.namespace}:{queue_name}"))

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Whatever the server does not do in the block is Unavailable."""
        try:
            yield
        except (redis.RedisError, OSError) as error:
            self._recover(error)
            raise Unavailable(f"The queue cannot be used: {error}", retry_after_s=1) from error

    def _recover(self, error: Exception) -> None:
        """What waiting alone would not end."""
        try:
            if isinstance(error, redis.exceptions.ReadOnlyError):
                # It became another server's replica: its name leads elsewhere by now.
                self.client.connection_pool.disconnect()
            if isinstance(error, redis.exceptions.OutOfMemoryError):
                # Full, it lets nobody fetch either. Our messages are hints: they make room.
                self._forget()
        except (redis.RedisError, OSError) as again:
            log.debug("the queue does not recover: %s", again)

    def _forget(self) -> None:
        held = [f"{self.namespace}:{name}" for name in self.queues]
        gone = self.client.delete(*held, *(f"{name}.msgs" for name in held))
        log.warning("the queue's server is out of memory: %d lists of messages dropped", gone)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """See the base class; an idle consumer waits for a notice instead of polling."""
        # The timeout is the worker's, whose threads need not look as often: a message wakes them.
        stock = super().consume(queue_name, prefetch, min(timeout, self._poll_ms))
        return NotifiedConsumer(self, stock, queue_name)


class NotifiedConsumer(Consumer):
    """Polls while messages come, and sleeps until a notice when none do."""

    def __init__(self, broker: RedisBroker, stock: Consumer, queue_name: str) -> None:
        self._stock = stock
        self._reached = broker.reached
        self._warm_until = 0.0
        self._open = ExitStack()
        self._notice = self._open.enter_context(broker.notices.listen(_topic(queue_name)))

    def __next__(self) -> MessageProxy | None:
        """The next message, or None when there was none for a while."""
        try:
            with self._reached():
                message = next(self._stock)
        except Unavailable as error:
            raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]
        is_cold = message is None and time.monotonic() >= self._warm_until
        if message is not None or (is_cold and self._notice.wait(COLD_S)):
            self._stay_warm()
        return message

    # The row is done or given back, whatever becomes of its message: one that stays comes again
    # when this process has ended, and finds no row. So no thread waits for the server here.

    def ack(self, message: MessageProxy) -> None:
        """Forget a message, or leave that to others; there is room for another one now."""
        self._stay_warm()
        self._at_best(self._stock.ack, message)

    def nack(self, message: Any) -> None:
        """The same: the row knows of the failure."""
        self.ack(message)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Give messages back at the end of a process, or leave that to others."""
        self._at_best(self._stock.requeue, messages)

    def _stay_warm(self) -> None:
        self._warm_until = time.monotonic() + WARM_S

    def _at_best(self, command: Callable[[Any], None], given: Any) -> None:
        try:
            with self._reached():
                command(given)
        except (Unavailable, ConnectionClosed) as error:
            log.debug("a message stays: %s", error)

    def close(self) -> None:
        """Hear no more notices."""
        self._open.close()
        self._stock.close()


def connect(url: str, notices: Notices, *, poll_ms: int = POLL_MS) -> RedisBroker:
    """A broker whose dead workers' messages are taken over within seconds; SettingsError without
    an address."""
    if not url:
        raise SettingsError(WITHOUT_REDIS)
    client = redis.Redis.from_url(
        url,
        socket_timeout=PATIENCE_S,
        socket_connect_timeout=PATIENCE_S,
        **keepalive(url),
        # Once more, at once: the connection may be from before the server was restarted.
        retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),
    )
    return RedisBroker(
        notices,
        poll_ms,
        client=client,
        middleware=middleware(),
        heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
        maintenance_chance=MAINTENANCE_CHANCE,
    )


def sender(url: str, notices: Notices) -> Chains:
    """Sends to the queues at this address; call it after forking."""
    broker = connect(url, notices)
    actors.declare(broker)
    return Chains(broker, notices)
