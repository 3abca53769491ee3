"""The Redis broker of a store with several workers, woken by pub/sub."""

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
from storage.protocols import PubSub
from storage.redis_engines import keepalive_options
from workers import actors
from workers.broker import build_middleware
from workers.messages import MessageSender
from workers.queues import HEARTBEAT_TIMEOUT_MS, MAINTENANCE_CHANCE

log = logging.getLogger(__name__)

POLL_MS = 25
"""Longest pause between two polls of a consumer while messages come."""
WARM_QUEUE_S = 2.0
"""How long after its last message a queue is still polled often."""
COLD_WAIT_S = 1.0
"""Longest wait between polls of an idle queue, unless a wake-up ends it; less than the silence
after which a worker's messages go to others."""
NOTICE_INTERVAL_S = 0.5
"""Least time between two wake-ups of a sender for one queue; less than a queue stays warm."""
COMMAND_TIMEOUT_S = 3.0
"""Timeout of one command; no command blocks on the server."""


REDIS_URL_MISSING = "STORE_REDIS_URL: must name the Redis that the processes of this store share"


def _queue_topic(queue_name: str) -> str:
    return f"queue:{queue_name}"


class RedisBroker(_RedisBroker):
    """dramatiq's RedisBroker without delay queues, woken by pub/sub.

    The time of the next attempt is in the catalog. An idle worker waits for a wake-up instead of
    polling its queues forty times a second.
    """

    def __init__(self, notices: PubSub, poll_ms: int, **parameters: Any) -> None:
        super().__init__(**parameters)  # type: ignore[no-untyped-call]
        self.pubsub = notices
        self._poll_ms = poll_ms
        self._noticed: dict[str, float] = {}

    def declare_queue(self, queue_name: str) -> None:
        """Create a queue, without dramatiq's second one for delayed messages."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Put a message into its queue, and wake its consumers."""
        with self.translate_errors():
            sent = super().enqueue(message, delay=delay)
        now = time.monotonic()
        if now - self._noticed.get(message.queue_name, -NOTICE_INTERVAL_S) >= NOTICE_INTERVAL_S:
            self._noticed[message.queue_name] = now
            self.pubsub.publish(_queue_topic(message.queue_name))
        return sent

    def depth(self, queue_name: str) -> int:
        """Return the number of waiting messages, without those that a worker holds."""
        with self.translate_errors():
            return int(self.client.llen(f"{self.namespace}:{queue_name}"))

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise Unavailable for errors of the server in the block."""
        try:
            yield
        except (redis.RedisError, OSError) as error:
            self._recover(error)
            raise Unavailable(f"The queue cannot be used: {error}", retry_after_s=1) from error

    def _recover(self, error: Exception) -> None:
        """Repair faults that do not pass."""
        try:
            if isinstance(error, redis.exceptions.ReadOnlyError):
                # It became a replica: its name now leads to another server.
                self.client.connection_pool.disconnect()
            if isinstance(error, redis.exceptions.OutOfMemoryError):
                # A full server blocks fetching, too. Our messages are hints: drop them.
                self._drop_messages()
        except (redis.RedisError, OSError) as second_error:
            log.debug("the queue does not recover: %s", second_error)

    def _drop_messages(self) -> None:
        keys = [f"{self.namespace}:{name}" for name in self.queues]
        dropped = self.client.delete(*keys, *(f"{name}.msgs" for name in keys))
        log.warning("the queue's server is out of memory: %d lists of messages dropped", dropped)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """See the base class; an idle consumer waits for a wake-up instead of polling."""
        # The timeout is the worker's, whose threads need not poll as often.
        stock = super().consume(queue_name, prefetch, min(timeout, self._poll_ms))
        return NotifiedConsumer(self, stock, queue_name)


class NotifiedConsumer(Consumer):
    """Polls while messages come, and waits for a wake-up while none do."""

    def __init__(self, broker: RedisBroker, stock: Consumer, queue_name: str) -> None:
        self._stock = stock
        self._reached = broker.translate_errors
        self._warm_until = 0.0
        self._open = ExitStack()
        self._notice = self._open.enter_context(broker.pubsub.listen(_queue_topic(queue_name)))

    def __next__(self) -> MessageProxy | None:
        """Return the next message, or None if there was none for a while."""
        try:
            with self._reached():
                message = next(self._stock)
        except Unavailable as error:
            raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]
        is_cold = message is None and time.monotonic() >= self._warm_until
        if message is not None or (is_cold and self._notice.wait(COLD_WAIT_S)):
            self._stay_warm()
        return message

    # The job is completed or released whatever happens to its message: a leftover message comes
    # again after this process ends, and finds no job. So no thread waits for the server here.

    def ack(self, message: MessageProxy) -> None:
        """Remove a message, or leave that to others; there is room for another one now."""
        self._stay_warm()
        self._try_command(self._stock.ack, message)

    def nack(self, message: Any) -> None:
        """Do the same: the job's row records the failure."""
        self.ack(message)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Return messages when a process ends, or leave that to others."""
        self._try_command(self._stock.requeue, messages)

    def _stay_warm(self) -> None:
        self._warm_until = time.monotonic() + WARM_QUEUE_S

    def _try_command(self, command: Callable[[Any], None], argument: Any) -> None:
        try:
            with self._reached():
                command(argument)
        except (Unavailable, ConnectionClosed) as error:
            log.debug("a message stays: %s", error)

    def close(self) -> None:
        """Unsubscribe and close."""
        self._open.close()
        self._stock.close()


def connect_broker(url: str, notices: PubSub, *, poll_ms: int = POLL_MS) -> RedisBroker:
    """Connect to Redis; dead workers' messages go to others within seconds.

    SettingsError without a URL.
    """
    if not url:
        raise SettingsError(REDIS_URL_MISSING)
    client = redis.Redis.from_url(
        url,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=COMMAND_TIMEOUT_S,
        **keepalive_options(url),
        # One immediate retry: the connection may predate a restart of the server.
        retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),
    )
    return RedisBroker(
        notices,
        poll_ms,
        client=client,
        middleware=build_middleware(),
        heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
        maintenance_chance=MAINTENANCE_CHANCE,
    )


def build_sender(url: str, notices: PubSub) -> MessageSender:
    """Build a sender to the queues of this Redis; call it after forking."""
    broker = connect_broker(url, notices)
    actors.declare_actors(broker)
    return MessageSender(broker, notices)
