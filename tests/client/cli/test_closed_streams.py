"""A shell that closes standard input, output or error: no fault of this client."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from store_client.cli.arguments import FileBytes, JsonValue, SecretText
from tests.client.cli.people import PROGRAM


def run(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "STORE_CLIENT_HOME": str(home),
        "STORE_CLIENT_URL": "http://127.0.0.1:9",
    }
    shell = ["/bin/sh", "-c", line.replace("store", str(PROGRAM), 1)]
    return subprocess.run(
        shell, capture_output=True, text=True, env=environ, timeout=60, check=False
    )


@pytest.mark.spec("CLI-105")
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_output_is_not_written_to(tmp_path: Path, closed: str) -> None:
    done = run(f"store create-version --json {closed}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.spec("CLI-105")
def test_a_token_is_missed_on_a_standard_input_that_is_closed(tmp_path: Path) -> None:
    done = run("store login --access-token - <&-", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no token on standard input" in done.stderr


@pytest.mark.spec("CLI-105")
@pytest.mark.parametrize("kind", [FileBytes(), JsonValue(), SecretText()])
def test_closed_standard_input_is_not_empty_input(
    monkeypatch: pytest.MonkeyPatch, kind: click.ParamType[Any]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(click.BadParameter, match="standard input is closed"):
        kind.convert("-", None, None)
