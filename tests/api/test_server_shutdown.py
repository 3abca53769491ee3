"""Gunicorn workers end with their master."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ops import ports
from ops.procfile import ROOT
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spec("OPS-04")

APPLICATION = """
import time
def application(environ, start_response):
    open(environ["PATH_INFO"], "w").close()
    time.sleep(60)
"""


@pytest.mark.parametrize("config", ["api/gunicorn.py", "api/authz/gunicorn.py"])
def test_worker_with_request_ends_with_its_master(tmp_path: Path, config: str) -> None:
    (tmp_path / "sleeping.py").write_text(APPLICATION)
    port = ports.find_free_port_pair()
    master = subprocess.Popen(
        [
            *(sys.executable, "-m", "gunicorn", "-c", config, "--bind", f"127.0.0.1:{port}"),
            *("--pythonpath", str(tmp_path), "sleeping:application"),
        ],
        cwd=ROOT,
        env={**os.environ, "STORE_HOME": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _listens(port))
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(b"GET %b/begun HTTP/1.1\r\nHost: x\r\n\r\n" % os.fsencode(tmp_path))
            until((tmp_path / "begun").exists)
            master.send_signal(signal.SIGKILL)
            master.wait(PATIENCE_S)
            # Not the timeout of a request that goes on.
            client.settimeout(10)
            assert client.recv(1) == b""
    finally:
        master.kill()
        master.wait(PATIENCE_S)
    until(lambda: ports.is_free("127.0.0.1", port))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
