"""Pages that refuse what a quota has no room for."""

from pathlib import Path

import pytest

from config import Settings
from pipelines.quotas import LAST_COUNT_KEY
from storage import keys
from storage.catalog import store_state
from storage.stores import Stores
from tests.conftest import Outbox
from tests.web.conftest import Visit, text_of
from tests.web.test_areas import new_area, upload
from web.app import build_app

pytestmark = pytest.mark.spec("OPS-45")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    secret = "a secret for tests only"
    return Settings(home=tmp_path / "home", secret_key=secret, wait_s=0.0, quota_bytes=10)


def test_page_of_an_area_says_what_is_left(visit: Visit, stores: Stores) -> None:
    owner = visit("ingest")
    path = new_area(owner)
    page = upload(owner, path, [("a", b"1234567"), ("b", b"1234567"), ("c", b"123")])
    assert page.status_code == 400
    assert "b : The quota of user ingest@example.org is 10 bytes: 3 are left" in text_of(page)
    assert "<bdi>c</bdi></th>" in page.text
    prefix = keys.area_prefix(path.rpartition("/")[2])
    assert {info.key.removeprefix(prefix) for info in stores.areas.list(prefix)} == {"a", "c"}


def test_serves_before_the_first_count(
    keyed_settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    with stores.catalog.write() as tx:
        store_state.write_value(tx, LAST_COUNT_KEY, None)
    client = build_app(keyed_settings, stores, job_queue).test_client()
    assert client.get("/livez").status_code == 200
    with stores.catalog.read() as tx:
        assert store_state.read_value(tx, LAST_COUNT_KEY) is None
