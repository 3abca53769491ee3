"""How a process of ours is told to end: by SIGTERM or SIGINT, whichever comes."""

import signal
import threading
from types import FrameType


def when_told() -> threading.Event:
    """An event that is set once this process is told to end; call it from the main thread."""
    stop = threading.Event()

    def told(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    return stop
