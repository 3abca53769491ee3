"""Search pages when the index still holds deleted bundles."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import failover
from pipelines.failover import MAX_SEARCH_ROUNDS, SearchPageRequest
from storage.catalog import versions
from storage.errors import TimeLimitExceeded, Unavailable
from storage.model import FQID
from storage.protocols import SearchHit, SearchIndex, SearchPage
from storage.stores import Stores
from tests.builders import new_uuid, version

pytestmark = pytest.mark.spec("SEA-07")

EVERY = [FQID(new_uuid(), version(place)) for place in range(60)]


@dataclass
class Lagging:
    """An index that holds these, whatever the catalog says; counts how often it is asked."""

    held: Sequence[FQID]
    fails: dict[int, Exception] = field(default_factory=dict)
    asked: int = 0

    def find(self, size: int, after: str | None) -> SearchPage:
        self.asked += 1
        if self.asked in self.fails:
            raise self.fails[self.asked]
        start = 0 if after is None else int(after) + 1
        found = self.held[start : start + size]
        hits = [SearchHit(*one, None, str(place)) for place, one in enumerate(found, start)]
        more = start + size < len(self.held)
        return SearchPage(hits, len(self.held), hits[-1].page_token if more and hits else None)


def ask(index: SearchIndex, *, size: int, after: str | None) -> SearchPage:
    assert isinstance(index, Lagging)
    return index.find(size, after)


def having(stores: Stores, index: Lagging) -> Stores:
    search: Any = {"aws": index, "gcp": index}
    return replace(stores, search=search)


@pytest.fixture(scope="module")
def shown(race_stores: Stores) -> Iterator[Stores]:
    """Every one of them is to be seen in aws, and those of another list nowhere."""
    with race_stores.catalog.write() as tx:
        for place, fqid in enumerate(EVERY):
            versions.publish(tx, "bundle", "aws", fqid, 10_000 + place)
    yield race_stores
    with race_stores.catalog.write() as tx:
        for fqid in EVERY:
            versions.unpublish(tx, "bundle", fqid.uuid, None)


def pages(stores: Stores, index: Lagging, size: int, most: int) -> list[SearchPage]:
    found: list[SearchPage] = []
    after = None
    while not found or after is not None:
        wanted = SearchPageRequest(size, most, after)
        page = failover.search_with_failover(having(stores, index), "aws", ask, wanted)[1]
        found.append(page)
        after = page.after
    return found


def named(found: Sequence[SearchPage]) -> list[FQID]:
    return [FQID(hit.uuid, hit.version) for page in found for hit in page.hits]


def mixed(withdrawn: Collection[int]) -> list[FQID]:
    """As many again that were withdrawn, in these places."""
    places = {*withdrawn}
    seen = iter(EVERY)
    gone = (FQID(new_uuid(), version(place)) for place in range(200))
    return [next(gone) if place in places else next(seen) for place in range(60 + len(places))]


@given(
    withdrawn=st.sets(st.integers(0, 50), max_size=40),
    size=st.integers(1, 70),
    most=st.integers(20, 80),
)
def test_a_walk_has_full_pages_and_every_hit_once(
    shown: Stores, withdrawn: set[int], size: int, most: int
) -> None:
    index = Lagging(mixed(withdrawn))
    found = pages(shown, index, size, max(size, most))
    assert named(found) == EVERY
    assert [len(page.hits) for page in found[:-1]] == [size] * (len(found) - 1)
    assert found[-1].hits


def test_page_of_visible_hits_takes_one_request(shown: Stores) -> None:
    index = Lagging(EVERY)
    assert len(pages(shown, index, 20, 500)) == index.asked == 3


def test_no_link_leads_to_an_empty_page(shown: Stores) -> None:
    index = Lagging([*EVERY[:20], *(FQID(new_uuid(), version()) for _ in range(30))])
    (page,) = pages(shown, index, 20, 500)
    assert (len(page.hits), page.total, page.after) == (20, 20, None)


def test_bounds_requests_and_continues_behind_them(shown: Stores) -> None:
    gone = [FQID(new_uuid(), version()) for _ in range(200)]
    index = Lagging([EVERY[0], *gone, *EVERY[1:]])
    first = failover.search_with_failover(
        having(shown, index), "aws", ask, SearchPageRequest(5, 10)
    )[1]
    assert (len(first.hits), index.asked) == (1, MAX_SEARCH_ROUNDS + 1)
    assert first.after is not None
    assert named(pages(shown, index, 5, 10)) == EVERY


@pytest.mark.parametrize("error", [Unavailable("away"), TimeLimitExceeded("too long")])
def test_failed_further_request_leaves_a_short_page(shown: Stores, error: Exception) -> None:
    gone = [FQID(new_uuid(), version()) for _ in range(5)]
    index = Lagging([EVERY[0], *gone, *EVERY[1:]], fails={2: error})
    found = pages(shown, index, 5, 10)
    assert len(found[0].hits) == 1
    assert named(found) == EVERY
