"""Hints from the web process to the worker of an embedded store."""

from pathlib import Path

import pytest

from storage.datagrams import Office
from storage.errors import Unavailable
from storage.model import Todo
from storage.notices import MemoryNotices
from tests.patience import until
from workers.hints import Hints, listen


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path / "run")


def test_every_row_arrives_with_the_request_that_added_it(office: Office) -> None:
    got: list[Todo] = []
    requests: set[str] = set()

    def take(rows: list[Todo], request_id: str) -> None:
        got.extend(rows)
        requests.add(request_id)

    inbox = listen(office, take, lambda: None)
    rows = [Todo("verify", "aws", f"{n:03d}-ü-{'x' * 300}") for n in range(120)]
    Hints(office, MemoryNotices()).send(rows, "request-1")
    until(lambda: got == rows)
    assert requests == {"request-1"}
    inbox.close()


def test_without_a_worker_nothing_fails_but_the_look_for_one(office: Office) -> None:
    hints = Hints(office, MemoryNotices())
    hints.send([Todo("verify", "aws", "1")])
    with pytest.raises(Unavailable, match="No worker runs"):
        hints.ping()
    inbox = listen(office, lambda _rows, _request_id: None, lambda: None)
    hints.ping()
    inbox.close()
