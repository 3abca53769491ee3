"""Datagrams between processes over Unix sockets, and lost ones."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ops.procfile import ROOT
from storage.datagrams import KERNEL_QUEUE_LENGTH, DatagramInbox, SocketFolder
from tests.waiting import PATIENCE_S, until

KILLED = """
import os, signal, sys
from pathlib import Path
from storage.datagrams import DatagramInbox, SocketFolder
DatagramInbox(SocketFolder(Path(sys.argv[1])), "jobs", lambda message: None, lambda: None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def office(tmp_path: Path) -> SocketFolder:
    return SocketFolder(tmp_path / "run")


def nothing(*_given: object) -> None:
    pass


def test_message_reaches_all_receivers_of_its_kind(office: SocketFolder) -> None:
    got: list[tuple[str, bytes]] = []
    inboxes = [
        DatagramInbox(office, kind, lambda message, name=name: got.append((name, message)), nothing)  # type: ignore[misc]
        for name, kind in (("one", "jobs"), ("two", "jobs"), ("three", "notices"))
    ]
    assert office.post("jobs", b"a") == 2
    until(lambda: sorted(got) == [("one", b"a"), ("two", b"a")])
    for inbox in inboxes:
        inbox.close()
    assert office.post("jobs", b"b") == 0


def test_sender_can_exclude_itself(office: SocketFolder) -> None:
    inbox = DatagramInbox(office, "jobs", nothing, nothing)
    assert office.post("jobs", b"a", but=inbox.name) == 0
    inbox.close()


def test_removes_sockets_of_killed_processes(office: SocketFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(folder)) == 1
    assert office.post("jobs", b"a") == 0
    assert os.listdir(folder) == []


def test_overflowing_receiver_learns_of_possible_loss(
    office: SocketFolder,
) -> None:
    missed, busy = threading.Event(), threading.Event()
    inbox = DatagramInbox(office, "jobs", lambda _message: busy.wait(PATIENCE_S), missed.set)  # type: ignore[arg-type]
    for _ in range(50 * KERNEL_QUEUE_LENGTH):
        office.post("jobs", b"a")
    busy.set()
    assert missed.wait(PATIENCE_S)
    inbox.close()


def test_a_message_that_cannot_be_handled_does_not_end_the_inbox(office: SocketFolder) -> None:
    got: list[bytes] = []

    def take(message: bytes) -> None:
        if message == b"bad":
            raise ValueError("not understood")
        got.append(message)

    inbox = DatagramInbox(office, "jobs", take, nothing)
    office.post("jobs", b"bad")
    office.post("jobs", b"good")
    until(lambda: got == [b"good"])
    inbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="long paths go through /proc")
def test_home_path_may_exceed_socket_limit(tmp_path: Path) -> None:
    office = SocketFolder(tmp_path / ("deep/" * 40) / "run")
    got: list[bytes] = []
    inbox = DatagramInbox(office, "jobs", got.append, nothing)
    assert office.post("jobs", b"a") == 1
    until(lambda: got == [b"a"])
    inbox.close()


@pytest.mark.spec("OPS-04")
def test_socket_folder_is_private(office: SocketFolder, tmp_path: Path) -> None:
    DatagramInbox(office, "jobs", nothing, nothing).close()
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
