"""A store of our own to play on: a home, free ports, every process, and its end."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.leash import leashed
from ops import home as homes
from ops import ports
from ops.procfile import ROOT

READY_S = 90.0
STOP_S = 30.0
LOG = "store.log"
WIDEST = 1_000


class StoreFailed(Exception):
    """The store did not start; the text ends with the last lines of its log."""


class OperatorFailed(Exception):
    """A command ended otherwise than well; the text is what it said."""


@dataclass(frozen=True)
class Stage:
    """A running store."""

    home: Path
    api: str
    auth: str
    token: str
    started_in_s: float
    environ: Mapping[str, str]

    def operate(self, *words: str, typed: str = "") -> str:
        """What an operator's command says, who types this; OperatorFailed."""
        done = subprocess.run(
            (sys.executable, "-m", "ops", *words),
            cwd=ROOT,
            env=dict(self.environ),
            input=typed,
            capture_output=True,
            text=True,
            timeout=READY_S,
        )
        if done.returncode != 0:
            raise OperatorFailed(f"ops {' '.join(words)}: {done.stderr[-WIDEST:]}")
        return done.stdout

    def processes(self) -> dict[str, Any]:
        """Who runs now, as the supervisor says."""
        return homes.read(self.home, homes.PROCESSES) or {"processes": {}}

    def complaints(self, lines: int = 20) -> str:
        """The last lines of the store's log that are more than news."""
        text = (self.home / LOG).read_text(errors="replace")
        found = [line for line in text.splitlines() if '"level": "INFO"' not in line]
        return "\n".join(line[:WIDEST] for line in found[-lines:])


@contextmanager
def temporary_home(*, keep: bool = False) -> Iterator[Path]:
    """A folder that goes with the block."""
    # Told to end, we still end what we started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    home = Path(tempfile.mkdtemp(prefix="store-"))
    try:
        yield home
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def running(home: Path, settings: Mapping[str, str]) -> Iterator[Stage]:
    """A store on this home until the block is left; StoreFailed when it does not start."""
    began = time.monotonic()
    environ = _environ(home, settings)
    process = _started(home, environ)
    try:
        address = _ready(home, process)
        token = (home / homes.ADMIN_TOKEN).read_text().strip()
        took_s = time.monotonic() - began
        yield Stage(home, address["api"], address["auth"], token, took_s, environ)
    finally:
        _stop(process)


def _environ(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    # What the operator set for a real store must not reach this one.
    inherited = {key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")}
    own = {"STORE_HOME": str(home), "STORE_PORT": str(ports.free_pair())}
    return {**inherited, **own, **settings}


def _started(home: Path, environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with (home / LOG).open("ab") as log:
        return subprocess.Popen(
            leashed((sys.executable, "-m", "ops", "run")),
            cwd=ROOT,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )


def _ready(home: Path, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := homes.read(home, homes.READY):
            return found
        time.sleep(0.05)
    raise StoreFailed(f"the store did not become ready:\n{_tail(home, 30)}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
        return
    process.kill()
    process.wait()


def _tail(home: Path, lines: int) -> str:
    text = (home / LOG).read_text(errors="replace")
    return "\n".join(text.splitlines()[-lines:])
