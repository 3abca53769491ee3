"""Start and stop a whole store on this machine, for the demonstration and for tests."""

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

from config.process import bind_command_to_parent
from ops import home as homes
from ops import ports
from ops.procfile import ROOT

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0
LOG = "store.log"
LONGEST_LINE = 1_000


class StartError(Exception):
    """The store did not start; the message ends with the last lines of its log."""


class CommandError(Exception):
    """An operator's command failed; the message is its standard error."""


@dataclass(frozen=True)
class LocalStore:
    """A running store: its home, URLs, administrator's token, environment and supervisor's pid."""

    home: Path
    api: str
    auth: str
    token: str
    started_in_s: float
    environ: Mapping[str, str]
    pid: int

    def run_command(self, *words: str, stdin: str = "") -> str:
        """Run an operator's command; return what it prints. CommandError if it fails."""
        done = subprocess.run(
            (sys.executable, "-m", "ops", *words),
            cwd=ROOT,
            env=dict(self.environ),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise CommandError(f"ops {' '.join(words)}: {done.stderr[-LONGEST_LINE:]}")
        return done.stdout

    def read_processes(self) -> dict[str, Any]:
        """Read the supervisor's list of running processes."""
        return homes.read_json(self.home, homes.PROCESSES) or {"processes": {}}

    def read_warnings(self, lines: int = 20) -> str:
        """Read the last lines of the log above level INFO."""
        text = (self.home / LOG).read_text(errors="replace")
        found = [line for line in text.splitlines() if '"level": "INFO"' not in line]
        return "\n".join(line[:LONGEST_LINE] for line in found[-lines:])


@contextmanager
def temporary_home(*, keep: bool = False) -> Iterator[Path]:
    """A folder that is removed with the block, unless it is to be kept."""
    # SIGTERM must run the `finally` blocks, which stop what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    home = Path(tempfile.mkdtemp(prefix="store-"))
    try:
        yield home
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def running_store(
    home: Path, settings: Mapping[str, str], root: Path = ROOT
) -> Iterator[LocalStore]:
    """A store in this home until the block ends, of the code in `root`; StartError if it fails."""
    began = time.monotonic()
    environ = _environment(home, settings)
    process = _start(home, environ, root)
    try:
        urls = _wait_until_ready(home, process)
        token = (home / homes.ADMIN_TOKEN).read_text().strip()
        took_s = time.monotonic() - began
        yield LocalStore(home, urls["api"], urls["auth"], token, took_s, environ, process.pid)
    finally:
        _stop(process)


def _environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    # Settings of a real store must not reach this one.
    inherited = {key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")}
    own = {"STORE_HOME": str(home), "STORE_PORT": str(ports.find_free_port_pair())}
    return {**inherited, **own, **settings}


def _start(home: Path, environ: Mapping[str, str], root: Path) -> "subprocess.Popen[bytes]":
    with (home / LOG).open("ab") as log:
        return subprocess.Popen(
            bind_command_to_parent((sys.executable, "-m", "ops", "run")),
            cwd=root,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )


def _wait_until_ready(home: Path, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := homes.read_json(home, homes.READY):
            return found
        time.sleep(0.05)
    lines = (home / LOG).read_text(errors="replace").splitlines()[-30:]
    raise StartError("\n".join(("the store did not become ready:", *lines)))


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
        return
    process.kill()
    process.wait()
