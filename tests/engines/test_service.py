"""A killed server restarts despite leftover files."""

import os
import signal
from pathlib import Path

import pytest

from tests.engines.service import Service

REFUSES_ONCE = """
if [ -e left ]; then rm left; echo still in use; exit 1; fi
echo $$ > up
exec sleep 60
"""


def serving(folder: Path, script: str) -> Service:
    command, up = ["bash", "-c", f"cd {folder}; {script}"], folder / "up"
    server = Service("", command, folder / "log", lambda: says(up, server.pid))
    return server


def says(up: Path, pid: int) -> bool:
    return up.exists() and up.read_text() == f"{pid}\n"


def test_a_killed_server_is_started_again_until_it_runs(tmp_path: Path) -> None:
    with serving(tmp_path, REFUSES_ONCE) as server:
        before = server.pid
        (tmp_path / "left").touch()
        os.kill(before, signal.SIGKILL)
        server.restart()
        assert server.pid != before
        assert "still in use" in (tmp_path / "log").read_text()


def test_reports_service_that_stays_down(tmp_path: Path) -> None:
    with serving(tmp_path, REFUSES_ONCE.replace("rm left; ", "")) as server:
        server.again_s = 0.3
        (tmp_path / "left").touch()
        with pytest.raises(RuntimeError, match="still in use"):
            server.restart()
