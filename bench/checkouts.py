"""Stores of this checkout and of an older one, each started from its own folder.

Both run with the same interpreter and libraries. What belongs to a store is the tree of processes
below its supervisor, whatever their number and names.
"""

import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.processors import TICKS
from config.process import bind_command_to_parent
from ops import home as homes
from ops import ports
from ops.local_store import LocalStore, temporary_home
from ops.procfile import ROOT

READY_S = 120.0
STOP_S = 30.0
LOOK_S = 0.02
PACKAGES = ("config", "storage", "pipelines", "auth", "workers", "api", "ops")


@dataclass(frozen=True)
class GitCheckout:
    """The code of one commit."""

    name: str
    root: Path


@dataclass(frozen=True)
class Store:
    """A running store, and what it took until it was ready."""

    stage: LocalStore
    pid: int
    processor_s: float


def this_checkout() -> GitCheckout:
    """The code that this bench belongs to, compiled."""
    return _compiled(GitCheckout("this checkout", ROOT))


@contextmanager
def checkout_of(commit: str) -> Iterator[GitCheckout]:
    """The code of a commit, compiled, in a temporary folder; CalledProcessError if unknown."""
    packed = subprocess.run(
        ("git", "archive", "--format=tar", commit), cwd=ROOT, capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory(prefix="checkout-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield _compiled(GitCheckout(commit, Path(folder)))


def _compiled(checkout: GitCheckout) -> GitCheckout:
    """Compile it, as `make run` does: otherwise the first to start would pay for the others."""
    compile_all = (sys.executable, "-m", "compileall", "-q", *PACKAGES)
    subprocess.run(compile_all, cwd=checkout.root, check=True)
    return checkout


@contextmanager
def started(checkout: GitCheckout, settings: Mapping[str, str]) -> Iterator[Store]:
    """A store on a new home, until the block ends."""
    with temporary_home() as home:
        inherited = {key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")}
        own = {"STORE_HOME": str(home), "STORE_PORT": str(ports.find_free_port_pair())}
        environ = {**inherited, **own, "STORE_LOG_LEVEL": "WARNING", **settings}
        began = time.monotonic()
        with (home / "store.log").open("wb") as log:
            process = subprocess.Popen(
                bind_command_to_parent((sys.executable, "-m", "ops", "run")),
                cwd=checkout.root,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        try:
            yield _ready(home, process, environ, began)
        finally:
            _stop(process)


def _ready(
    home: Path, process: "subprocess.Popen[bytes]", environ: Mapping[str, str], began: float
) -> Store:
    while (found := homes.read_json(home, homes.READY)) is None:
        if process.poll() is not None or time.monotonic() - began > READY_S:
            raise RuntimeError((home / "store.log").read_text(errors="replace")[-2_000:])
        time.sleep(LOOK_S)
    took_s, processor_s = time.monotonic() - began, spent_s(process.pid)
    token = (home / homes.ADMIN_TOKEN).read_text().strip()
    stage = LocalStore(home, found["api"], found["auth"], token, took_s, environ)
    return Store(stage, process.pid, processor_s)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(_fields(path)[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def spent_s(pid: int) -> float:
    """Processor time of a tree, with that of its processes that have ended."""
    total = 0
    for one in tree(pid):
        with suppress(OSError):
            # utime, stime, and those of children that were waited for.
            total += sum(map(int, _fields(Path(f"/proc/{one}/stat"))[11:15]))
    return total / TICKS


def pss_mb(pid: int) -> float:
    """Memory of a tree; what several processes share counts once."""
    total = 0
    for one in tree(pid):
        with suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def _fields(path: Path) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold blanks and brackets."""
    return path.read_text().rpartition(")")[2].split()
