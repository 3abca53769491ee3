"""A store with its authorization service, and somebody who types commands there."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from store_client.cli.main import cli
from store_client.configuration import Configuration
from tests.client.auth.auth_service import World
from tests.client.auth.conftest import browser, config, settings, world

__all__ = ["browser", "config", "settings", "world"]

PROGRAM = Path(sys.executable).with_name("store")
UNSAID = ("STORE_CLIENT_URL", "STORE_CLIENT_PROFILE", "CLOUD_APPLICATION_CREDENTIALS", "DISPLAY")


@dataclass(frozen=True)
class Typist:
    """Types commands in this process, or starts them in another one."""

    home: Path
    url: str
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def said(self) -> dict[str, str | None]:
        unsaid: dict[str, str | None] = dict.fromkeys(UNSAID)
        return {**unsaid, "STORE_CLIENT_HOME": str(self.home), **self.environ}

    def types(self, *words: str, given: str | None = None, code: int = 0) -> Result:
        """What came of a command at the store of this world."""
        return self.types_anywhere(*words, "--url", self.url, given=given, code=code)

    def types_anywhere(self, *words: str, given: str | None = None, code: int = 0) -> Result:
        """The same without saying which store."""
        done = CliRunner(env=self.said).invoke(cli, words, input=given)
        assert done.exit_code == code, f"{done.exit_code}\n{done.output}"
        return done

    def reads(self, *words: str) -> Any:
        """The JSON document that a command writes."""
        return json.loads(self.types(*words, "--json").stdout)

    def starts(self, *words: str) -> "subprocess.Popen[str]":
        """The installed command, which goes on while others act."""
        environ = {name: value for name, value in os.environ.items() if name not in UNSAID}
        more = {name: value for name, value in self.said.items() if value is not None}
        return subprocess.Popen(
            [PROGRAM, *words, "--url", self.url],
            env={**environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def typist(world: World, config: Configuration) -> Typist:
    return Typist(config.home, world.url)
