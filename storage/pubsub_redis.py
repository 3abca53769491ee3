"""Publish/subscribe wake-ups between all processes of one Redis.

All topics share one Redis channel, so a process needs one subscription for any number of waits, and
waiting costs no round trip.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from config import SettingsError
from storage.pubsub import TopicWaiter, WaiterRegistry, encode_topics, parse_topics

log = logging.getLogger(__name__)

CHANNEL: Final = "store:notices"

_CONNECT_TIMEOUT_S: Final = 1.0
"""Longest time that a dead Redis delays publishing, or the first waiter of a process."""
_PING_AFTER_S: Final = 5.0
"""Silence after which the connection is pinged."""
_RECONNECT_AFTER_S: Final = 15.0
"""Silence after which the connection is given up."""
_COOL_DOWN_S: Final = 2.0
"""Pause of publishing after a timeout of Redis."""
_BACKOFF_S: Final = (0.05, 2.0)


def keepalive_options(url: str) -> dict[str, bool]:
    """Return options that keep a TCP connection alive; a Unix socket needs none."""
    return {} if url.startswith("unix:") else {"socket_keepalive": True}


def _make_client(url: str, *, silence_s: float, retries: int) -> redis.Redis:
    """Make a client that has not connected yet; SettingsError for a malformed URL."""
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=silence_s,
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            **keepalive_options(url),
            retry=Retry(NoBackoff(), retries),
        )
        # The library checks the options only here.
        client.connection_pool.make_connection()
    except (ValueError, TypeError) as error:
        raise SettingsError(f"STORE_REDIS_URL: {error}") from error
    return client


class RedisPubSub:
    """See PubSub; between all processes of one Redis. While it is down, waits time out."""

    def __init__(self, url: str, *, channel: str = CHANNEL) -> None:
        self._url, self._channel = url, channel
        # One retry: the connection may predate a restart of Redis.
        self._client = _make_client(url, silence_s=_CONNECT_TIMEOUT_S, retries=1)
        self._silent_until = 0.0
        self._lock = threading.Lock()
        self._listener: _RedisListener | None = None

    def publish(self, *topics: str) -> None:
        """See PubSub."""
        for message in encode_topics(topics):
            if time.monotonic() >= self._silent_until:
                self._send(message)

    def _send(self, message: str) -> None:
        try:
            self._client.publish(self._channel, message)
        except redis.TimeoutError:
            self._silent_until = time.monotonic() + _COOL_DOWN_S
        except (redis.RedisError, OSError) as error:
            log.debug("a wake-up was not published: %s", error)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[TopicWaiter]:
        """See PubSub."""
        listener = self._process_listener()
        with listener.registry.subscribe(topics) as waiter:
            listener.ready.wait(_CONNECT_TIMEOUT_S)
            yield waiter

    def close(self) -> None:
        """End the listener thread and the connections."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener and listener.pid == os.getpid():
            listener.stopped.set()
            self._send("")  # so that it looks up
            listener.join()
        self._client.close()

    def _process_listener(self) -> "_RedisListener":
        """Return this process's listener: threads and sockets do not survive a fork."""
        with self._lock:
            if self._listener is None or self._listener.pid != os.getpid():
                self._listener = _RedisListener(self._url, self._channel)
            return self._listener


class _RedisListener:
    """One thread on one connection, which reconnects by itself."""

    def __init__(self, url: str, channel: str) -> None:
        self.pid = os.getpid()
        self.registry = WaiterRegistry()
        self.ready = threading.Event()
        self.stopped = threading.Event()
        self._channel = channel
        self._missed = False
        # For what is answered at once; for the next notice `get_message` has its own patience.
        self._client = _make_client(url, silence_s=_PING_AFTER_S, retries=0)
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        least, most = _BACKOFF_S
        pause = least
        while not self.stopped.is_set():
            try:
                self._subscribe()
            except (redis.RedisError, OSError, ValueError) as error:
                log.debug("Redis is down: %s", error)
            pause = least if self.ready.is_set() else min(pause * 2, most)
            self._missed = True
            self.ready.clear()
            self.stopped.wait(pause)

    def _subscribe(self) -> None:
        """Subscribe and wake waiters until the connection breaks."""
        with self._client.pubsub() as subscription:  # type: ignore[no-untyped-call]
            subscription.subscribe(self._channel)
            heard = time.monotonic()
            while not self.stopped.is_set():
                message = subscription.get_message(timeout=_PING_AFTER_S)
                if message is not None:
                    heard = time.monotonic()
                    self._receive(message)
                elif time.monotonic() - heard > _RECONNECT_AFTER_S:
                    raise redis.ConnectionError("no sign of life")
                else:
                    subscription.ping()

    def _receive(self, message: dict[str, object]) -> None:
        if message["type"] == "subscribe":
            self.ready.set()
            # Messages may have been lost meanwhile: wake all.
            if self._missed:
                self.registry.wake_all()
        elif message["type"] == "message":
            data = message["data"]
            self.registry.wake(*parse_topics(data if isinstance(data, bytes) else str(data)))
