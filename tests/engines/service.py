"""A server process that can be stopped and restarted with its data."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.engines.engine import start, stop, wait_until

PAUSE_S = 0.2
"""Between two tries to start it again."""


@dataclass
class Service(AbstractContextManager["Service"]):
    """See Running; `command` starts it in the foreground, `environ` is for its clients."""

    url: str
    command: Sequence[str | Path]
    log: Path
    ready: Callable[[], bool]
    environ: Mapping[str, str] = field(default_factory=dict)
    own_environ: Mapping[str, str] = field(default_factory=dict)
    end: signal.Signals = signal.SIGTERM
    again_s: float = 30.0
    """How long a start is tried again after a kill, as a supervisor would."""

    def __enter__(self) -> "Service":
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stop(self._process, self.end)

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def restart(self) -> None:
        """See Running; it may have been killed before, and then what it left behind, such as
        children that have yet to notice, may keep it from starting for a moment."""
        stop(self._process, self.end)
        deadline = time.monotonic() + self.again_s
        while True:
            try:
                return self._start()
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_S)

    def _start(self) -> None:
        self._process = start(self.command, self.log, **self.own_environ)
        wait_until(self.ready, self._process, self.log)
