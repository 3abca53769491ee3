"""Ctrl-C while a server takes what it is sent and never answers."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from store_client.downloads.manifests import REQUIRED
from tests.client.cli.people import PROGRAM

UUID, VERSION = "00000000-0000-4000-8000-00000000000a", "2026-01-31T235959.000000Z"
COMMANDS = {
    "upload --replica aws --src-dir data": "before anything was sent",
    f"files --uuid {UUID} data": "to resume",
    "download-manifest --replica aws --manifest m.tsv": "before anything was downloaded",
}


@pytest.mark.spec("UPL-60", "CLI-142")
@pytest.mark.parametrize(("command", "note"), COMMANDS.items())
def test_slow_response_times_out(tmp_path: Path, command: str, note: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_bytes(b"a")
    row = (UUID, VERSION, "a", UUID, "0" * 64, "1")
    (tmp_path / "m.tsv").write_text("\t".join(REQUIRED) + "\n" + "\t".join(row) + "\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        going = subprocess.Popen(
            [str(PROGRAM), *command.split()],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "STORE_CLIENT_HOME": str(tmp_path / "home"),
                "STORE_CLIENT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        asked, _ = silent.accept()
        with asked:
            assert asked.recv(1)
            going.send_signal(signal.SIGINT)
            try:
                _, said = going.communicate(timeout=15)
            finally:
                going.kill()
                going.wait()
    assert going.returncode == 130, said
    assert note in said
    assert not [path for path in tmp_path.glob(".store/**/*") if path.is_file()]
