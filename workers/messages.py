"""Send the messages of recorded jobs to the broker.

A message is a hint. If it is lost, or not sent because its queue is long, the scheduler finds the
job in the table. So sending never fails for its caller.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from dramatiq import Message

from pipelines.flow import COMMITTED_TOPIC, DELIVER, Step
from storage.model import Job
from storage.protocols import PubSub
from workers.actors import ACTORS
from workers.broker import BrokerQueues
from workers.queues import QUEUE_POLICIES

log = logging.getLogger(__name__)

DEEP_QUEUE = 5_000
"""Messages in one queue beyond which jobs are left to the scheduler."""
_DEPTH_CHECK_S = 1.0
COOL_DOWN_S = 2.0
"""Pause after a failure, so that no request waits for a dead queue twice."""


class MessageSender:
    """Sends messages to one broker; threads may share it."""

    def __init__(self, broker: BrokerQueues, notices: PubSub | None = None) -> None:
        self._broker, self._notices = broker, notices
        self._checked_at: dict[str, float] = {}
        self._deep: dict[str, bool] = {}
        self._silent_until = 0.0

    def send(self, rows: Iterable[Job], request_id: str = "") -> None:
        """Send messages for these jobs; never raises."""
        rows = tuple(rows)
        if self._notices is not None and any(row.step == Step.MATCH for row in rows):
            self._notices.publish(COMMITTED_TOPIC)
        if time.monotonic() < self._silent_until:
            return
        try:
            for row in select_batch_heads(rows):
                self._send(row, request_id)
        except Exception as error:
            self._silent_until = time.monotonic() + COOL_DOWN_S
            log.warning("messages not sent, the scheduler will send them: %s", error)

    def _send(self, row: Job, request_id: str) -> None:
        if row.step == DELIVER:
            # Built here: importing `workers.deliver` would load what only deliveries need.
            message = Message[None](DELIVER, DELIVER, (row.ref,), {}, {})
        else:
            message = ACTORS[Step(row.step)].message(row.replica, row.ref, request_id)
        if not self._is_deep(message.queue_name):
            self._broker.declare_queue(message.queue_name)
            self._broker.enqueue(message)

    def depth(self, queue: str) -> int:
        """Return the number of waiting messages."""
        return self._broker.depth(queue)

    def ping(self) -> None:
        """Raise the broker's error if it cannot be reached."""
        self._broker.depth("verify")

    def _is_deep(self, queue: str) -> bool:
        now = time.monotonic()
        if now - self._checked_at.get(queue, -_DEPTH_CHECK_S) >= _DEPTH_CHECK_S:
            self._deep[queue] = self._broker.depth(queue) > DEEP_QUEUE
            self._checked_at[queue] = now
        return self._deep[queue]


def select_batch_heads(rows: Iterable[Job]) -> Iterator[Job]:
    """Iterate over the jobs that need a message: one per batch, whose claim takes the others."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        batch = 1 if row.step == DELIVER else QUEUE_POLICIES[Step(row.step)].batch
        if counts[row.step, row.replica] % batch == 0:
            yield row
        counts[row.step, row.replica] += 1
