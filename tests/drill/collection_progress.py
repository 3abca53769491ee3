"""Track which acknowledged collections are in both replicas."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from storage.model import FQID, REPLICAS, Replica
from tests.live.progress import Progress

ASKED_AT_ONCE = 64
"""Versions that one look asks for: each is a request, while the store has other work."""


class Curating(Protocol):
    """Whose collections they are."""

    @property
    def kept(self) -> Mapping[str, object]:
        """The versions that are to be there, by name; grows and shrinks meanwhile."""

    def idle(self) -> bool:
        """Whether nothing more is on its way to the store."""


class Asked(Protocol):
    """The store as far as it is asked."""

    def stands(self, fqid: FQID, replica: Replica) -> bool:
        """Whether readers of a replica see this version of a collection."""


@dataclass
class Arrivals:
    """Versions that were seen in both replicas; asked for in turn, none twice that was seen."""

    curator: Curating
    asked: Asked
    arrived: set[str] = field(default_factory=set)
    _seen: set[tuple[str, Replica]] = field(default_factory=set)
    _queue: deque[str] = field(default_factory=deque)

    def look(self) -> None:
        """Ask for some of what is missing, another some each time."""
        missing = self.missing()
        waiting = set(self._queue)
        self._queue.extend(sorted(missing - waiting))
        for _ in range(min(ASKED_AT_ONCE, len(self._queue))):
            name = self._queue.popleft()
            if name in missing and not self._whole(name):
                self._queue.append(name)

    def _whole(self, name: str) -> bool:
        for replica in REPLICAS:
            if (name, replica) not in self._seen:
                if not self.asked.stands(FQID.parse(name), replica):
                    return False
                self._seen.add((name, replica))
        self.arrived.add(name)
        return True

    def missing(self) -> set[str]:
        """Versions that are to be there and were not seen in both replicas yet."""
        return set(self.curator.kept) - self.arrived

    def steps(self) -> int:
        """A number that grows with every copy that is seen."""
        return len(self._seen)

    def is_complete(self) -> bool:
        """Whether all are there, and no more will come."""
        return self.curator.idle() and not self.missing()


@dataclass(frozen=True)
class Everything:
    """Bundles and collections, watched as one."""

    progress: Progress
    arrivals: Arrivals

    def steps(self) -> int:
        """A number that grows as long as anything happens."""
        return self.progress.steps() + self.arrivals.steps()

    def is_complete(self) -> bool:
        """Whether both went the whole way."""
        return self.progress.is_complete() and self.arrivals.is_complete()
