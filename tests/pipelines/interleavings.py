"""Run several actors so that their steps happen in a given order.

A move is a writing unit of work of the catalog or the creation of an object. Each actor runs in a
thread of its own and waits before every move until the schedule names it; an actor that is not
named again is as good as dead, and is let go only after the others were judged.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from storage.catalog import Catalog, Tx
from storage.protocols import BlobInfo, BlobStore
from storage.stores import Stores

PATIENCE_S = 20


class Killed(BaseException):
    """Ends an actor that the schedule left behind."""


class Schedule:
    """Whose turn it is."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = list(order)
        self._turn = threading.Condition()
        self._running: set[str] = set()
        self._waiting: set[str] = set()
        self._dead = False

    def enter(self, name: str) -> None:
        with self._turn:
            self._running.add(name)

    def leave(self, name: str) -> None:
        with self._turn:
            self._running.discard(name)
            self._turn.notify_all()

    @contextmanager
    def move(self, name: str) -> Iterator[None]:
        """Wait for our turn; while we move nobody else does."""
        with self._turn:
            self._waiting.add(name)
            self._turn.notify_all()
            while not self._ours(name):
                if not self._turn.wait(PATIENCE_S):
                    raise AssertionError(f"{name} waited in vain: {self._order}")
                if self._dead:
                    raise Killed
            self._waiting.discard(name)
            self._order.pop(0)
        yield

    def _ours(self, name: str) -> bool:
        # Turns of actors that ended early are skipped; nobody moves before all stand still.
        while self._order and self._order[0] not in self._running:
            self._order.pop(0)
        return bool(self._order) and self._order[0] == name and self._running == self._waiting

    def settle(self) -> None:
        """Wait until every actor ended or stands before a move that the schedule does not name."""
        with self._turn:
            while self._running and not (self._running == self._waiting and not self._left()):
                if not self._turn.wait(PATIENCE_S):
                    raise AssertionError("the actors do not come to rest")

    def _left(self) -> bool:
        return any(name in self._running for name in self._order)

    def kill(self) -> None:
        """End whoever still waits, without another move."""
        with self._turn:
            self._dead = True
            self._turn.notify_all()


class GatedCatalog:
    """A catalog whose writing units of work are moves."""

    def __init__(self, inner: Catalog, schedule: Schedule, name: str) -> None:
        self._inner, self._schedule, self._name = inner, schedule, name

    def read(self) -> Any:
        return self._inner.read()

    def run_query(self, question: Callable[[Tx], Any]) -> Any:
        return self._inner.run_query(question)

    @contextmanager
    def write(self) -> Iterator[Tx]:
        with self._schedule.move(self._name), self._inner.write() as tx:
            yield tx


class GatedBlobs:
    """A bucket in which creating an object is a move."""

    def __init__(self, inner: BlobStore, schedule: Schedule, name: str) -> None:
        self._inner, self._schedule, self._name = inner, schedule, name

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    def put(self, key: str, data: bytes, **more: Any) -> BlobInfo:
        with self._schedule.move(self._name):
            return self._inner.put(key, data, **more)


def gated(stores: Stores, schedule: Schedule, name: str) -> Stores:
    """The stores as one actor sees them."""
    replicas: Mapping[Any, Any] = {
        replica: GatedBlobs(blobs, schedule, name) for replica, blobs in stores.replicas.items()
    }
    catalog: Any = GatedCatalog(stores.catalog, schedule, name)
    return replace(stores, catalog=catalog, replicas=replicas)


def play(
    stores: Stores, order: Sequence[str], actors: Mapping[str, Callable[[Stores], Any]]
) -> dict[str, Any]:
    """Run the actors' moves in this order; what each returned or raised, None if it was killed."""
    schedule = Schedule(order)
    ends: dict[str, Any] = dict.fromkeys(actors)

    def act(name: str, actor: Callable[[Stores], Any]) -> None:
        try:
            ends[name] = actor(gated(stores, schedule, name))
        except Killed:
            pass
        except Exception as error:
            ends[name] = error
        finally:
            schedule.leave(name)

    threads = [threading.Thread(target=act, args=item) for item in actors.items()]
    for name in actors:
        schedule.enter(name)
    for thread in threads:
        thread.start()
    schedule.settle()
    schedule.kill()
    for thread in threads:
        thread.join(PATIENCE_S)
    return ends
