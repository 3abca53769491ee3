"""Pages that refuse what a quota has no room for."""

from dataclasses import replace
from pathlib import Path

import pytest

from config import Settings
from pipelines import areas
from pipelines.areas import IncomingFile
from storage import keys
from storage.errors import QuotaExceeded
from storage.stores import Stores
from tests.builders import new_uuid
from tests.conftest import Outbox
from tests.web.conftest import Visit, text_of
from tests.web.test_areas import new_area, upload
from web.app import build_app

OWNER = "ingest@example.org"
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


def test_what_was_stored_before_counts_from_the_first_request(
    keyed_settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    area = new_uuid()
    areas.create(stores, area, OWNER)
    put_file(replace(stores, quotas=None), area, "a", bytes(8))
    build_app(keyed_settings, stores, job_queue)
    with pytest.raises(QuotaExceeded, match="2 are left, and this needs 3"):
        put_file(stores, area, "b", bytes(3))


def put_file(stores: Stores, area: str, name: str, content: bytes) -> None:
    file = IncomingFile(area, name, "text/plain", iter((content,)), len(content), 1000)
    areas.receive_file(stores, file, OWNER)
