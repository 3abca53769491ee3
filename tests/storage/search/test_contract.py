"""Every engine against the one contract."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.protocols import SearchIndex
from storage.search.embedded import EmbeddedIndex
from tests.storage.contracts.search_index import SearchIndexContract


def _embedded(tmp_path: Path) -> Iterator[SearchIndex]:
    index = EmbeddedIndex(tmp_path / "aws.sqlite")
    yield index
    index.close()


@pytest.fixture(params=[_embedded], ids=["embedded"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SearchIndex]:
    """An empty index of each engine in turn."""
    engine: Callable[[Path], Iterator[SearchIndex]] = request.param
    yield from engine(tmp_path)


class TestSearchIndex(SearchIndexContract):
    """The whole suite."""
