"""An event loop with a virtual clock that skips idle time."""

import asyncio
import selectors
from typing import Any

REALLY_WAITED_S = 0.05
"""What is on its way between two sockets of one machine arrives in this time, or is waited for
again after the leap."""


class _Hasty(selectors.DefaultSelector):
    """Waits for a moment only, and says what it left out."""

    left_out_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= REALLY_WAITED_S:
            return super().select(timeout)
        found = super().select(REALLY_WAITED_S)
        if not found:
            self.left_out_s += timeout - REALLY_WAITED_S
        return found


class LeapingLoop(asyncio.SelectorEventLoop):
    """For `asyncio.Runner(loop_factory=LeapingLoop)`: ten seconds of silence take a moment."""

    def __init__(self) -> None:
        self._hasty = _Hasty()
        super().__init__(self._hasty)

    def time(self) -> float:
        """The clock of timers: real time, and what was leapt over."""
        return super().time() + self._hasty.left_out_s

    def leapt_s(self) -> float:
        """Only what was leapt over."""
        return self._hasty.left_out_s
