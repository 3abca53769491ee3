"""How a process of ours is told to end: by SIGTERM or SIGINT, whichever comes."""

import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from dramatiq import Worker

IDLE_MS = 1_000
"""How often a thread of a worker that waits looks whether it shall end."""
STOP_MS = 8_000
"""How long work may take to end: less than the supervisor waits before it kills."""


def when_told() -> threading.Event:
    """An event that is set once this process is told to end; call it from the main thread."""
    stop = threading.Event()

    def told(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    return stop


def stop(workers: Sequence[Worker]) -> None:
    """Stop all workers of a process at once: each waits until its threads look up."""
    with ThreadPoolExecutor(len(workers)) as pool:
        for worker in workers:
            pool.submit(worker.stop, timeout=STOP_MS)
