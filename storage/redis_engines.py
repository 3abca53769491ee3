"""Publish/subscribe wake-ups and rate limits that all processes of one Redis share.

All topics share one Redis channel, so a process needs one subscription for any number of waits, and
waiting costs no round trip. While Redis is down, waits time out and all requests are allowed: the
limit protects the service and must not end it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from config import SettingsError
from storage.pubsub import TopicWaiter, WaiterRegistry, encode_topics, parse_topics
from storage.rate_limits import Rate, RateDecision

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


def _make_client(
    url: str, *, silence_s: float, retries: int, connect_s: float = _CONNECT_TIMEOUT_S
) -> redis.Redis:
    """Make a client that has not connected yet; SettingsError for a malformed URL."""
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=silence_s,
            socket_connect_timeout=connect_s,
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

    def __init__(self, url: str) -> None:
        self._url = url
        # One retry: the connection may predate a restart of Redis.
        self._client = _make_client(url, silence_s=_CONNECT_TIMEOUT_S, retries=1)
        self._silent_until = 0.0
        self._lock = threading.Lock()
        self._listener: _RedisListener | None = None

    def publish(self, *topics: str) -> None:
        for message in encode_topics(topics):
            if time.monotonic() >= self._silent_until:
                self._send(message)

    def _send(self, message: str) -> None:
        try:
            self._client.publish(CHANNEL, message)
        except redis.TimeoutError:
            self._silent_until = time.monotonic() + _COOL_DOWN_S
        except (redis.RedisError, OSError) as error:
            log.debug("a wake-up was not published: %s", error)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[TopicWaiter]:
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
                self._listener = _RedisListener(self._url)
            return self._listener


class _RedisListener:
    """One thread on one connection, which reconnects by itself."""

    def __init__(self, url: str) -> None:
        self.pid = os.getpid()
        self.registry = WaiterRegistry()
        self.ready = threading.Event()
        self.stopped = threading.Event()
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
            subscription.subscribe(CHANNEL)
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


_TAKE_TIMEOUT_S: Final = 0.25
_ALLOW_ALL_S: Final = 5.0
"""How long all requests are allowed after a failure of Redis."""

_TAKE_TOKEN_SCRIPT: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local burst, per_second = tonumber(ARGV[1]), tonumber(ARGV[2]) / 60
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * per_second)
local taken = 0
if tokens >= 1 then
  tokens, taken = tokens - 1, 1
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens),
           'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(burst / per_second) + 1)
return {taken, math.floor(tokens), math.ceil((1 - tokens) / per_second),
        math.ceil((burst - tokens) / per_second)}
"""


class RedisRateLimiter:
    """See RateLimiter; token buckets that all processes of one Redis share."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        # One retry: the connection may predate a restart of Redis.
        self._client = _make_client(
            url, silence_s=_TAKE_TIMEOUT_S, connect_s=_TAKE_TIMEOUT_S, retries=1
        )
        self._script = self._client.register_script(_TAKE_TOKEN_SCRIPT)
        self._clock = clock
        self._silent_until = float("-inf")

    def take(self, who: str, rate: Rate) -> RateDecision | None:
        if self._clock() < self._silent_until:
            return None
        try:
            found: Any = self._script(
                keys=[f"store:rate:{who}"], args=[rate.burst, rate.per_minute]
            )
        except (redis.RedisError, OSError) as error:
            self._silent_until = self._clock() + _ALLOW_ALL_S
            log.warning("rate limits are off for a while: %s", error)
            return None
        taken, left, next_s, full_s = (int(part) for part in found)
        return RateDecision(bool(taken), left, max(0, next_s), max(0, full_s))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
