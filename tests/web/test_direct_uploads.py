"""What the page of an area lets its scripts reach: the bucket, if parts may go there."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import Unavailable
from storage.protocols import BlobStore
from storage.stores import Stores
from tests.storage.blobs.test_contract import BACKENDS
from tests.web.conftest import Visit
from tests.web.test_areas import new_area


@pytest.fixture(params=["s3", "gcs"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    with BACKENDS[request.param](tmp_path) as backend:
        yield backend.area or backend.store


@pytest.fixture
def stores(stores: Stores, bucket: BlobStore) -> Stores:
    """A store whose upload areas are in a cloud."""
    return replace(stores, areas=bucket)


def read_connections(page: Any) -> str:
    found = re.search(r"connect-src ([^;]*);", page.headers["Content-Security-Policy"])
    assert found is not None
    return found[1]


def test_only_the_page_of_an_open_area_may_reach_the_bucket(
    visit: Visit, bucket: BlobStore
) -> None:
    owner = visit("ingest")
    path = new_area(owner)
    page = owner.get(path)
    direct: Any = bucket.find_direct_uploads()
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/store-[0-9a-f-]{36}/", direct.url)
    assert read_connections(page) == f"'self' {direct.url}"
    assert " data-direct" in page.text
    for other in ("/", "/areas", f"{path}/bundle", f"{path}/delete"):
        assert read_connections(owner.get(other)) == "'self'", other
    owner.post(f"{path}/state", state="LOCKED")
    locked = owner.get(path)
    assert read_connections(locked) == "'self'"
    assert " data-direct" not in locked.text


class Unreachable:
    """A bucket of which not even the address is known."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def find_direct_uploads(self) -> None:
        raise Unavailable("no credentials")


class TestWithoutCredentials:
    @pytest.fixture
    def stores(self, stores: Stores) -> Stores:
        bucket: Any = Unreachable(stores.areas)
        return replace(stores, areas=bucket)

    def test_page_is_shown_and_parts_come_through_the_store(self, visit: Visit) -> None:
        owner = visit("ingest")
        page = owner.get(new_area(owner))
        assert page.status_code == 200
        assert read_connections(page) == "'self'"
        assert " data-direct" not in page.text
