"""Wake-up calls between all processes of one Redis.

All notices of a store travel on one Redis channel whose messages are lists of topics, so that a
process needs one connection and one subscription whatever it waits for, and waiting costs no round
trip.
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

from config.settings import SettingsError
from storage.notices import Board, Waiter, messages, topics_of

log = logging.getLogger(__name__)

CHANNEL: Final = "store:notices"

_PATIENCE_S: Final = 1.0
"""How long publishing, or the first waiter of a process, may be held up by a dead Redis."""
_SILENCE_S: Final = 5.0
"""After so long without a message the connection is asked for a sign of life …"""
_DEAD_S: Final = 15.0
"""… and after so long it is given up."""
_COOL_DOWN_S: Final = 2.0
"""How long nothing is published after Redis did not answer in time."""
_BACK_OFF_S: Final = (0.05, 2.0)


def keepalive(url: str) -> dict[str, bool]:
    """Options that keep a connection over TCP alive; a Unix socket has none."""
    return {} if url.startswith("unix:") else {"socket_keepalive": True}


def _client(url: str, *, silence_s: float, retries: int) -> redis.Redis:
    """A client that has not connected yet; SettingsError when the URL leads nowhere."""
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=silence_s,
            socket_connect_timeout=_PATIENCE_S,
            **keepalive(url),
            retry=Retry(NoBackoff(), retries),
        )
        # Only now the library looks at the options.
        client.connection_pool.make_connection()
    except (ValueError, TypeError) as error:
        raise SettingsError(f"STORE_REDIS_URL: {error}") from error
    return client


class RedisNotices:
    """Notices between all processes of one Redis. While it is down, waiters just time out."""

    def __init__(self, url: str, *, channel: str = CHANNEL) -> None:
        self._url, self._channel = url, channel
        # One retry, because the connection may be from before Redis was restarted.
        self._client = _client(url, silence_s=_PATIENCE_S, retries=1)
        self._silent_until = 0.0
        self._lock = threading.Lock()
        self._listener: _Listener | None = None

    def publish(self, *topics: str) -> None:
        """See Notices."""
        for message in messages(topics):
            if time.monotonic() >= self._silent_until:
                self._say(message)

    def _say(self, message: str) -> None:
        try:
            self._client.publish(self._channel, message)
        except redis.TimeoutError:
            self._silent_until = time.monotonic() + _COOL_DOWN_S
        except (redis.RedisError, OSError) as error:
            log.debug("a notice was not published: %s", error)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Waiter]:
        """See Notices."""
        listener = self._own_listener()
        with listener.board.listening(topics) as waiter:
            listener.ready.wait(_PATIENCE_S)
            yield waiter

    def close(self) -> None:
        """End the listener thread and the connections; for tests and orderly exits."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener and listener.pid == os.getpid():
            listener.stopped.set()
            self._say("")  # so that it looks up
            listener.join()
        self._client.close()

    def _own_listener(self) -> "_Listener":
        """This process's listener: threads and sockets do not survive a fork."""
        with self._lock:
            if self._listener is None or self._listener.pid != os.getpid():
                self._listener = _Listener(self._url, self._channel)
            return self._listener


class _Listener:
    """One thread on one connection, which comes back by itself after Redis does."""

    def __init__(self, url: str, channel: str) -> None:
        self.pid = os.getpid()
        self.board = Board()
        self.ready = threading.Event()
        self.stopped = threading.Event()
        self._channel = channel
        self._missed = False
        # For what is answered at once; for the next notice `get_message` has its own patience.
        self._client = _client(url, silence_s=_SILENCE_S, retries=0)
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        least, most = _BACK_OFF_S
        pause = least
        while not self.stopped.is_set():
            try:
                self._follow()
            except (redis.RedisError, OSError, ValueError) as error:
                log.debug("the notice board is away: %s", error)
            pause = least if self.ready.is_set() else min(pause * 2, most)
            self._missed = True
            self.ready.clear()
            self.stopped.wait(pause)

    def _follow(self) -> None:
        """Subscribe and hand out notices until the connection breaks."""
        with self._client.pubsub() as subscription:  # type: ignore[no-untyped-call]
            subscription.subscribe(self._channel)
            heard = time.monotonic()
            while not self.stopped.is_set():
                message = subscription.get_message(timeout=_SILENCE_S)
                if message is not None:
                    heard = time.monotonic()
                    self._receive(message)
                elif time.monotonic() - heard > _DEAD_S:
                    raise redis.ConnectionError("no sign of life")
                else:
                    subscription.ping()

    def _receive(self, message: dict[str, object]) -> None:
        if message["type"] == "subscribe":
            self.ready.set()
            # Nobody knows what was said meanwhile: all look for themselves.
            if self._missed:
                self.board.wake_all()
        elif message["type"] == "message":
            data = message["data"]
            self.board.wake(*topics_of(data if isinstance(data, bytes) else str(data)))
