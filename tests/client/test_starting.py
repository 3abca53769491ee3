"""Commands that ask nothing start fast: what is heavy is loaded when something is asked."""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from store_client.cli import registry

STORE = "from store_client.cli.main import main; main()"
LIMIT_S = 0.150
SHARE_OF_PYTHON = 5
"""On a machine that is slow or busy: 150 ms are so much where Python itself takes 30 to start."""
TRIES = 20
"""Other processes at work make a run slower, and none faster: one fast run is enough."""
HEAVY = (
    "asyncio",
    "cryptography",
    "fsspec",
    "http.client",
    "http.server",
    "httpx",
    "jmespath",
    "joserfc",
    "jsonschema",
    "pandas",
    "referencing",
    "rich",
    "ssl",
    "urllib.request",
)
HELP_OF_ALL = """
import sys, click
from store_client.cli import registry
helped = 0
for name in registry.COMMANDS:
    command = registry.load_command(name)
    helped += bool(command.get_help(click.Context(command)))
print(helped, *(name for name in sys.argv[1:] if name in sys.modules), sep="\\n")
"""
COMPLETING = {"_STORE_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "store bun"}


@pytest.mark.spec("CLI-32")
@pytest.mark.parametrize(
    "module", ["store_client", "store_client.client", "store_client.definition"]
)
def test_http_library_is_loaded_lazily(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('httpx', 'rich', 'joserfc') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


@pytest.mark.spec("CLI-32")
@pytest.mark.parametrize("asked", [{}, COMPLETING], ids=["help", "completion"])
def test_help_and_completion_start_in_150_ms(asked: Mapping[str, str], tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **asked}
    took_s = python_s = float("inf")
    for _ in range(TRIES):
        took_s = min(took_s, _processor_s(STORE, environ))
        python_s = min(python_s, _processor_s("pass", environ))
        if took_s < LIMIT_S:
            break
    assert took_s < max(LIMIT_S, SHARE_OF_PYTHON * python_s)


@pytest.mark.spec("CLI-32")
def test_help_of_no_command_loads_what_only_requests_need(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-c", HELP_OF_ALL, *HEAVY]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    helped, *loaded = done.stdout.splitlines()
    assert int(helped) == len(registry.COMMANDS)
    assert loaded == []


def _processor_s(code: str, environ: Mapping[str, str]) -> float:
    """User and system time of a process from start to end."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(command, env=dict(environ), capture_output=True, timeout=60, check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout or code == "pass"
    return (ended.ru_utime - began.ru_utime) + (ended.ru_stime - began.ru_stime)
