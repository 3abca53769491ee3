"""HTTP servers as the Procfile starts them, in separate processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ops import ports, procfile

PATIENCE_S = 60.0


def migrated(home: Path) -> Path:
    """The home, with an empty catalog."""
    done = subprocess.run(
        (sys.executable, "-m", "ops", "migrate"),
        cwd=procfile.ROOT,
        env=environ(home, 0),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return home


def environ(home: Path, first: int, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a store in this home, without a queue; settings of this process are not inherited."""
    inherited = {key: raw for key, raw in os.environ.items() if not key.startswith("STORE_")}
    own = {"STORE_HOME": str(home), "STORE_SECRET_KEY": "s" * 32}
    # Of a queue that is not there: nothing here waits for work.
    queue = {"STORE_REDIS_URL": f"redis://127.0.0.1:{ports.find_free_port()}/0"}
    return {
        **inherited,
        **own,
        **queue,
        **(more or {}),
        **({"STORE_PORT": str(first)} if first else {}),
    }


@contextmanager
def started(
    name: str, home: Path, first: int, more: Mapping[str, str] | None = None
) -> Iterator[None]:
    """One process of the Procfile."""
    (line,) = (line for line in procfile.read_procfile() if line.name == name)
    with (home / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            (sys.executable, "-m", *line.command),
            cwd=procfile.ROOT,
            env=environ(home, first, more),
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(first if name == "api" else first + 1, process)
            yield
        finally:
            process.terminate()
            process.wait(30)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            answered = asked(port, b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert answered.startswith(b"HTTP/1.1 ")
            return
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)


def asked(port: int, sent: bytes) -> bytes:
    """All that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
        made.sendall(sent)
        return b"".join(iter(lambda: made.recv(65_536), b""))
