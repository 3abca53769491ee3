"""Ctrl-C, and the same command again."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from store_client import Client
from store_client.auth.credentials import SavedLogin, write_login
from store_client.configuration import Configuration
from store_client.transfer import api
from tests.client.areas.builders import noise, wrote
from tests.client.cli.people import PROGRAM
from tests.client.conftest import Served
from tests.waiting import until

FILES, SIZE = 80, 400_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        wrote(tmp_path / f"run7/{number % 7}/{number:03}.bin", noise(SIZE, number))
    return tmp_path / "run7"


def store_command(home: Path, store: Served, *words: str) -> subprocess.Popen[str]:
    environ = {"STORE_CLIENT_HOME": str(home), "STORE_CLIENT_URL": store.url}
    return subprocess.Popen(
        [str(PROGRAM), *words],
        env={"PATH": os.environ["PATH"], **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.spec("ARC-14")
def test_ctrl_c_keeps_progress_and_same_command_resumes(
    store: Served, client: Client, area: str, folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "user"
    write_login(Configuration(home, home / "cache", store.url), SavedLogin("admin"))
    words = ("files", "--uuid", area, "--sync", "--jobs", "2", str(folder))
    going = store_command(home, store, *words)
    until(lambda: len(list(api.list_area_files(client, area))) >= 5)
    going.send_signal(signal.SIGINT)
    _, said = going.communicate(timeout=60)
    assert going.returncode == 130, said
    assert "with --sync to resume" in said
    assert "Traceback" not in said
    arrived = {found["name"] for found in api.list_area_files(client, area)}
    assert 5 <= len(arrived) < FILES
    again = store_command(home, store, *words)
    shown, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    states = {row["name"]: row["state"] for row in json.loads(shown)}
    assert {name for name, state in states.items() if state == "unchanged"} == arrived
    assert len(states) == FILES == len(list(api.list_area_files(client, area)))
