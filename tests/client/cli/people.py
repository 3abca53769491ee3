"""Somebody who types commands, in this process or in another one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner, Result

from store_client.cli.context import ProgramRun
from store_client.cli.main import cli
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.http import HttpSession

PROGRAM = Path(sys.executable).with_name("store")
"""The installed command."""


@dataclass(frozen=True)
class Typist:
    """Types commands that run in this process; `make` makes their client."""

    home: Path
    make: Callable[[Configuration], Client]
    environ: Mapping[str, str] = field(default_factory=dict)

    def types(self, *words: str, given: str | bytes | None = None) -> Result:
        """What came of a command line."""
        environ = {"STORE_CLIENT_HOME": str(self.home), **self.environ}
        return CliRunner(env=environ).invoke(
            cli, words, input=given, obj=ProgramRun(make=self.make)
        )

    def reads(self, *words: str, given: str | bytes | None = None) -> Any:
        """The JSON document that a command line that goes well writes."""
        done = self.types(*words, given=given)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


def showing(token: str) -> Callable[[Configuration], Client]:
    """Makes clients that show a token."""
    return lambda config: Client(config=config, token=token)


def nowhere(config: Configuration) -> Client:
    """Makes clients of a store that cannot be reached."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    transport = httpx.MockTransport(refuse)
    session = HttpSession(config.url, transport=transport, sleep=lambda _: None)
    return Client(config=config, session=session)


def typed(home: Path, *words: str, **environ: str) -> Result:
    """Run a command line in this process, as the installed command does it."""
    environ = {"STORE_CLIENT_HOME": str(home), **environ}
    return CliRunner(env=environ).invoke(cli, words, catch_exceptions=False)


def program(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command."""
    return subprocess.run(
        [str(PROGRAM), *words],
        env={"PATH": os.environ["PATH"], "STORE_CLIENT_HOME": str(home), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
