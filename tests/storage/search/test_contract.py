"""Every search engine against the shared contract."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.protocols import SearchIndex
from storage.search.embedded.index import EmbeddedIndex
from tests.storage.contracts.search_facets import SearchFacetContract
from tests.storage.contracts.search_index import SearchIndexContract
from tests.storage.search.real_opensearch import OPENSEARCH, opensearch

pytestmark = pytest.mark.spec("SEA-10")


def _embedded(tmp_path: Path) -> Iterator[SearchIndex]:
    index = EmbeddedIndex(tmp_path / "aws.sqlite")
    yield index
    index.close()


def _opensearch(tmp_path: Path) -> Iterator[SearchIndex]:
    with opensearch() as index:
        yield index


ENGINES = {"embedded": _embedded, **({"opensearch": _opensearch} if OPENSEARCH else {})}


@pytest.fixture(params=list(ENGINES.values()), ids=list(ENGINES))
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SearchIndex]:
    """An empty index of each engine in turn."""
    engine: Callable[[Path], Iterator[SearchIndex]] = request.param
    yield from engine(tmp_path)


class TestSearchIndex(SearchIndexContract):
    """The whole suite."""


class TestSearchFacets(SearchFacetContract):
    """The whole suite of facets and fields."""
