"""The command `login-link`, and the line that `run` ends with."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from auth.login.links import read_link
from ops import ports
from ops.__main__ import cli
from ops.procfile import ROOT
from ops.supervisor import NEXT_STEPS
from storage.catalog import Catalog

pytestmark = pytest.mark.spec("OPS-31")


def test_command_prints_a_link_that_works(catalog: Catalog, catalog_url: str) -> None:
    environ = {"STORE_CATALOG_URL": catalog_url, "STORE_AUTH_EXTERNAL_URL": "https://auth.example"}
    result = CliRunner().invoke(cli, ["login-link", "Ada@Example.org"], env=environ)
    assert result.exit_code == 0, result.output
    url, said = result.stdout.strip(), result.stderr
    assert url.startswith("https://auth.example/login/link?token=")
    token = url.partition("=")[2]
    assert read_link(catalog, token, time.time()) == "ada@example.org"
    assert said.startswith("It logs in ada@example.org once, until ")


def test_command_refers_to_remote_authorization(catalog_url: str) -> None:
    environ = {
        "STORE_CATALOG_URL": catalog_url,
        "STORE_POLICIES_URL": "https://auth.example",
        "STORE_AUTH_EXTERNAL_URL": "https://auth.example",
    }
    result = CliRunner().invoke(cli, ["login-link"], env=environ)
    assert result.exit_code == 1
    assert "managed at https://auth.example: create the link there" in result.output


def run_until_ready(home: Path, port: int, *, terminal: bool) -> str:
    """What `run` prints until the line that says what to try next."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    environ = {**os.environ, "STORE_HOME": str(home), "STORE_PORT": str(port), "COLUMNS": "500"}
    process = subprocess.Popen(
        (sys.executable, "-m", "ops", "run"),
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.STDOUT,
    )
    os.close(writer)
    said, until = b"", time.monotonic() + 60
    output = select.poll()
    output.register(reader, select.POLLIN)
    try:
        while NEXT_STEPS.encode() not in said:
            assert time.monotonic() < until, said.decode()
            if output.poll(500):
                said += os.read(reader, 65_536)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        os.close(reader)
    return said.decode()


@pytest.mark.parametrize("terminal", [True, False])
def test_run_ends_with_the_address_and_shows_a_link_at_a_terminal_only(
    tmp_path: Path, terminal: bool
) -> None:
    port = ports.find_free_port_pair()
    said = run_until_ready(tmp_path / "home", port, terminal=terminal)
    (line,) = [one for one in said.splitlines() if NEXT_STEPS in one]
    assert f"open http://127.0.0.1:{port} in a browser" in line
    assert (f"http://127.0.0.1:{port + 1}/login/link?token=" in line) == terminal
    assert ("python -m ops login-link" in line) == (not terminal)
