"""Pages that refuse what a quota has no room for."""

from pathlib import Path

import pytest

from config import Settings
from storage import keys
from storage.stores import Stores
from tests.web.conftest import Visit, text_of
from tests.web.test_areas import new_area, upload

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
