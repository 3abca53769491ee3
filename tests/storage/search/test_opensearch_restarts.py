"""An OpenSearch server that restarts."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import DomainError, Unavailable
from storage.protocols import IndexedDocument
from storage.search.grammar.clauses import MatchAllClause
from storage.search.opensearch.index import open_opensearch
from tests.engines import opensearch
from tests.engines.engine import Running
from tests.storage.search import real_opensearch

VERSION = "2026-01-01T000000.000000Z"

pytestmark = real_opensearch.needed


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if (lacks := opensearch.missing()) is not None:
        pytest.skip(lacks)
    with opensearch.running(tmp_path_factory.mktemp("opensearch")) as running:
        yield running


def made(number: int) -> IndexedDocument:
    return IndexedDocument(f"u{number:06d}", VERSION, "s", 1, {"n": number})


def test_acknowledged_documents_survive_restart(node: Running) -> None:
    index = open_opensearch(f"{node.url}/restarted", "aws", time_limit_s=10.0, field_limit=100)
    index.write([made(1)])
    node.restart()
    assert index.search(MatchAllClause(), size=1).total == 1
    assert index.write([made(2)]) == []
    assert index.search(MatchAllClause(), size=1).total == 2
    index.close()


def test_acknowledged_documents_survive_kill(node: Running, tmp_path: Path) -> None:
    index = open_opensearch(f"{node.url}/killed", "aws", time_limit_s=10.0, field_limit=100)
    written: list[int] = []
    errors: list[Exception] = []

    def write() -> None:
        for number in range(100_000):
            try:
                index.write([made(number)])
            except DomainError as error:
                errors.append(error)
                return
            written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    while len(written) < 20:
        writer.join(0.05)
    os.kill(node.pid, signal.SIGKILL)
    writer.join(60)
    assert [type(error) for error in errors] == [Unavailable]
    with pytest.raises(Unavailable):
        index.search(MatchAllClause(), size=1)
    node.restart()
    held = {fqid.uuid for fqid in index.list_ids()}
    assert {made(number).uuid for number in written} <= held
    index.close()
