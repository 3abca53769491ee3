"""A started engine, and what all engines need to start."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

CACHE = Path(__file__).resolve().parents[2] / ".engines"
"""Where engines are installed that come from no package of the system; not in version control."""
STOP_S = 30.0


class Running(Protocol):
    """An engine on 127.0.0.1, ready when one has it; the block that started it stops it."""

    @property
    def url(self) -> str:
        """Where the store finds it, as its settings take it."""

    @property
    def environ(self) -> Mapping[str, str]:
        """What the environment of its clients must hold beside the URL."""

    @property
    def pid(self) -> int:
        """The process that one may kill."""

    def restart(self) -> None:
        """Stop it, start it on the same port with the same data, wait until it is ready."""


def start(command: Sequence[str | Path], log: Path, **environ: str) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, what it says appended to a file."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | environ,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """Ask it to end, then make it; no error when it has ended."""
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, *, seconds: float = 60.0
) -> None:
    """Come back once it is ready; RuntimeError with its last words when it ends or is too late."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        if ready():
            return
        time.sleep(0.05)
    stop(process)
    raise RuntimeError(f"not ready: {process.args!r}\n{log.read_text(errors='replace')[-4000:]}")
