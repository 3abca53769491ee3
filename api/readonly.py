"""Whether writes are taken: the operator's switch as this process last saw it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from storage.catalog import Catalog, switches

LOOK_S = 1.0
"""How long one look counts; every write of a process would ask the catalog else."""


@dataclass
class ReadOnly:
    """Why writes are refused, or None; shared by the threads of one process."""

    catalog: Catalog
    always: bool = False
    clock: Callable[[], float] = time.monotonic
    _looked_at: float = field(default=float("-inf"), init=False)
    _reason: str | None = field(default=None, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def reason(self) -> str | None:
        """What writers are told."""
        if self.always:
            return "The store is read-only at the moment."
        with self._lock:
            if self.clock() - self._looked_at >= LOOK_S:
                with self.catalog.read() as tx:
                    self._reason = switches.read_only(tx)
                self._looked_at = self.clock()
            return self._reason
