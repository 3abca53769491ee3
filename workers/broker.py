"""The broker that carries messages from chains and the clock to the actors.

The to-do rows are the queue; a message only says that a row may be due. So nothing is retried,
delayed or kept by the broker, and losing it loses nothing.
"""

import os

import redis

from workers.queues import HEARTBEAT_TIMEOUT_MS, MAINTENANCE_CHANCE, PREFETCH

# The library reads this variable once, when its worker module is first imported.
os.environ.setdefault("dramatiq_queue_prefetch", str(PREFETCH))

from dramatiq.brokers.redis import RedisBroker as _RedisBroker
from dramatiq.brokers.stub import StubBroker


class RedisBroker(_RedisBroker):
    """Without delay queues: the next attempt's time lives in the catalog."""

    def declare_queue(self, queue_name: str) -> None:
        """Know a queue, without the companion that nobody would poll for anything."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def depth(self, queue_name: str) -> int:
        """Messages that wait in a queue, not counting those that a worker holds."""
        return int(self.client.llen(f"{self.namespace}:{queue_name}"))


def connect(url: str) -> RedisBroker:
    """A broker whose dead workers' messages are taken over within seconds."""
    client = redis.Redis.from_url(url, socket_timeout=10, socket_keepalive=True)
    return RedisBroker(  # type: ignore[no-untyped-call]
        client=client,
        middleware=[],
        heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
        maintenance_chance=MAINTENANCE_CHANCE,
    )


class MemoryBroker(StubBroker):
    """The same in one process, for tests."""

    def depth(self, queue_name: str) -> int:
        """Messages that wait in a queue."""
        queue = self.queues.get(queue_name)
        return 0 if queue is None else int(queue.qsize())


Broker = RedisBroker | MemoryBroker
