"""Sends the messages for what a completion recorded: the one place that enqueues.

A message is a hint. When it is lost, or not sent because its queue is long, the clock finds the
to-do row. So sending never fails for its caller.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from dramatiq import Message

from pipelines.flow import DELIVER, Step
from pipelines.topics import COMMITTED
from storage.model import Todo
from storage.protocols import Notices
from workers.actors import ACTORS
from workers.broker import Queues
from workers.queues import QUEUE_POLICIES

log = logging.getLogger(__name__)

DEEP = 5_000
"""Messages in one queue beyond which the rows are left to the clock."""
_LOOK_EVERY_S = 1.0
COOL_DOWN_S = 2.0
"""How long nothing is sent after a failure, so that no request waits for a dead queue twice."""


class Chains:
    """A sender on one broker, shared by the threads of a process."""

    def __init__(self, broker: Queues, notices: Notices | None = None) -> None:
        self._broker, self._notices = broker, notices
        self._looked: dict[str, float] = {}
        self._deep: dict[str, bool] = {}
        self._silent_until = 0.0

    def send(self, rows: Iterable[Todo], request_id: str = "") -> None:
        """Hint at these rows; never raises."""
        rows = tuple(rows)
        if self._notices is not None and any(row.step == Step.MATCH for row in rows):
            self._notices.publish(COMMITTED)
        if time.monotonic() < self._silent_until:
            return
        try:
            for row in batch_heads(rows):
                self._send(row, request_id)
        except Exception as error:
            self._silent_until = time.monotonic() + COOL_DOWN_S
            log.warning("messages not sent, the clock will: %s", error)

    def _send(self, row: Todo, request_id: str) -> None:
        if row.step == DELIVER:
            # Spelled out: its module needs what only a process that delivers needs.
            message = Message[None](DELIVER, DELIVER, (row.ref,), {}, {})
        else:
            message = ACTORS[Step(row.step)].message(row.replica, row.ref, request_id)
        if not self._is_deep(message.queue_name):
            self._broker.declare_queue(message.queue_name)
            self._broker.enqueue(message)

    def depth(self, queue: str) -> int:
        """Messages waiting in a queue."""
        return self._broker.depth(queue)

    def ping(self) -> None:
        """Raise whatever the broker raises when it cannot be reached."""
        self._broker.depth("verify")

    def _is_deep(self, queue: str) -> bool:
        now = time.monotonic()
        if now - self._looked.get(queue, -_LOOK_EVERY_S) >= _LOOK_EVERY_S:
            self._deep[queue] = self._broker.depth(queue) > DEEP
            self._looked[queue] = now
        return self._deep[queue]


def batch_heads(rows: Iterable[Todo]) -> Iterator[Todo]:
    """The jobs that get a message: one of each batch, whose claim takes the others too."""
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        batch = 1 if row.step == DELIVER else QUEUE_POLICIES[Step(row.step)].batch
        if seen[row.step, row.replica] % batch == 0:
            yield row
        seen[row.step, row.replica] += 1
