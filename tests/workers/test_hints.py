"""Hints from the web process to the embedded worker."""

from pathlib import Path

import pytest

from storage.datagrams import SocketFolder
from storage.errors import Unavailable
from storage.model import Job
from storage.pubsub import MemoryPubSub
from tests.waiting import until
from workers.hints import HintSender, listen_for_hints


@pytest.fixture
def office(tmp_path: Path) -> SocketFolder:
    return SocketFolder(tmp_path / "run")


def test_every_row_arrives_with_the_request_that_added_it(office: SocketFolder) -> None:
    got: list[Job] = []
    requests: set[str] = set()

    def take(rows: list[Job], request_id: str) -> None:
        got.extend(rows)
        requests.add(request_id)

    inbox = listen_for_hints(office, take, lambda: None)
    rows = [Job("verify", "aws", f"{n:03d}-ü-{'x' * 300}") for n in range(120)]
    HintSender(office, MemoryPubSub()).send(rows, "request-1")
    until(lambda: got == rows)
    assert requests == {"request-1"}
    inbox.close()


def test_missing_worker_fails_only_its_check(office: SocketFolder) -> None:
    hints = HintSender(office, MemoryPubSub())
    hints.send([Job("verify", "aws", "1")])
    with pytest.raises(Unavailable, match="No worker is running"):
        hints.ping()
    inbox = listen_for_hints(office, lambda _rows, _request_id: None, lambda: None)
    hints.ping()
    inbox.close()
