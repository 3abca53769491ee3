"""A tool of Compose reads compose.yaml, and refuses it without a secret."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from ops.procfile import ROOT
from tests.engines.platforms import VARIABLE

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="make test-image installs it")
SAID = {
    "STORE_DEPLOYMENT": "store.example",
    "STORE_EXTERNAL_URL": "https://store.example",
    "STORE_AUTH_EXTERNAL_URL": "https://auth.store.example",
    "STORE_SECRET_KEY": "0123456789abcdef",
    "POSTGRES_PASSWORD": "aa",
    "REDIS_PASSWORD": "bb",
}


def configure(said: Mapping[str, str], *options: str) -> "subprocess.CompletedProcess[str]":
    """Print what podman-compose makes of compose.yaml."""
    program = Path(os.environ[VARIABLE]) / "podman-compose"
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **said}
    return subprocess.run(
        [program, "-f", "compose.yaml", *options, "config"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_compose_file_is_read_with_all_values() -> None:
    done = configure(SAID)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    written = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert services.keys() == {name for name, part in written.items() if "profiles" not in part}
    environ = services["api"]["environment"]
    assert environ["STORE_EXTERNAL_URL"] == SAID["STORE_EXTERNAL_URL"]
    assert "${" not in str(environ)


def test_compose_refuses_a_missing_secret() -> None:
    said = {name: value for name, value in SAID.items() if name != "STORE_SECRET_KEY"}
    done = configure(said)
    assert done.returncode
    assert "STORE_SECRET_KEY" in done.stderr


def test_profile_adds_a_mirror() -> None:
    done = configure(SAID | {"STORE_MIRROR_OF": "https://other.example"}, "--profile", "mirror")
    assert done.returncode == 0, done.stderr
    assert "https://other.example" in yaml.safe_load(done.stdout)["services"]["mirror"]["command"]
