"""Wait for what other threads and processes do."""

import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""A busy machine takes long to start a process; what never holds takes as long to be told."""


def until(holds: Callable[[], object], limit_s: float = PATIENCE_S, every_s: float = 0.02) -> None:
    """Return as soon as it holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(every_s)
