"""Heartbeats of workers and the scheduler, written only while their threads make progress.

`python -m ops probe` reads them.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from typing import Any

from dramatiq import Broker, Worker
from dramatiq.broker import MessageProxy
from dramatiq.middleware import Middleware

from storage.heartbeats import HEARTBEAT_S, HeartbeatFile, notify_systemd

log = logging.getLogger(__name__)

FindStuck = Callable[[], str | None]
"""Returns what makes no progress; None if everything does."""

ALL_QUEUES = "worker"
"""Name of a worker of all queues."""
OVERRUN_S = 300.0
"""How long a job may ignore the end of its time limit."""


def name_process(queues: Collection[str]) -> str:
    """Return the name of a worker's heartbeat by its queues; without any, that of all queues."""
    return "+".join(sorted(set(queues))) or ALL_QUEUES


def beat_until(
    stop: threading.Event,
    folder: Path,
    name: str,
    checks: Sequence[FindStuck],
    notify_socket: str = "",
) -> None:
    """Write heartbeats until the event is set, except while a check finds something stuck.

    `notify_socket` is that of systemd, if the process is a unit of it. It is notified even if
    the file cannot be written.
    """
    before: str | None = None
    with closing(_HeartbeatWriter(folder, name)) as writer:
        while True:
            stuck = next(filter(None, (check() for check in checks)), None)
            if stuck is None:
                writer.beat()
                if notify_socket:
                    with suppress(OSError):
                        notify_systemd(notify_socket)
            elif stuck != before:
                log.error("no heartbeat: %s", stuck)
            before = stuck
            if stop.wait(HEARTBEAT_S):
                return


class _HeartbeatWriter:
    """Writes heartbeats; logs the first of several errors, which must not end the process."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._file: HeartbeatFile | None = None
        self._has_failed = False

    def beat(self) -> None:
        try:
            if self._file is None:
                self._file = HeartbeatFile(self._folder, self._name)
            else:
                self._file.beat()
        except OSError as error:
            if not self._has_failed:
                log.error(
                    "heartbeat: cannot be written to %s (see STORE_HOME): %s",
                    self._folder,
                    error.strerror,
                )
            self._has_failed = True
            if error.errno == errno.ESTALE:
                self.close()
        else:
            self._has_failed = False

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


class JobWatch(Middleware):
    """Finds threads of workers that ended, or that run a job far beyond its time limit."""

    def __init__(self, *, overrun_s: float = OVERRUN_S) -> None:
        self._overrun_s = overrun_s
        self._deadlines: dict[int, tuple[float, str]] = {}
        """When the job of each thread must have ended, and its actor."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Note when the job must have ended."""
        actor = broker.actors.get(message.actor_name)
        limit_ms = actor.options.get("time_limit", inf) if actor else inf
        deadline = time.monotonic() + limit_ms / 1000 + self._overrun_s
        self._deadlines[threading.get_ident()] = deadline, message.actor_name

    def after_process_message(self, broker: Broker, message: MessageProxy, **_result: Any) -> None:
        """Forget the job."""
        self._deadlines.pop(threading.get_ident(), None)

    after_skip_message = after_process_message

    def find_stuck(self, workers: Sequence[Worker]) -> str | None:
        """Return what makes no progress; None if everything does."""
        for worker in workers:
            if not all(thread.is_alive() for thread in [*worker.workers]):
                return "a thread of jobs has ended"
            for queue, consumer in [*worker.consumers.items()]:
                if not consumer.is_alive():
                    return f"the consumer of the queue {queue} has ended"
        now = time.monotonic()
        for deadline, actor in [*self._deadlines.values()]:
            if now > deadline:
                return f"a job of {actor} ignores its time limit"
        return None
