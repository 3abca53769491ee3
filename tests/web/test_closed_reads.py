"""Pages of a store whose reads need a permission: the policies of the API apply."""

from dataclasses import replace

import pytest

from config import Settings
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.web.conftest import Visit


@pytest.fixture
def keyed_settings(keyed_settings: Settings) -> Settings:
    """Settings that close all reads."""
    return replace(keyed_settings, closed_operations=("*",))


def test_pages_of_data_need_login(visit: Visit, depositor: Depositor) -> None:
    bundle, file = depositor.bundle(1), uuid_of(0x100)
    paths = [
        f"/bundles/{bundle}",
        f"/bundles/{bundle}/versions",
        f"/bundles/{bundle}/diff?from={VERSION}&to={VERSION}",
        f"/files/{file}",
        f"/files/{file}/download",
        f"/preview/files/{file}",
    ]
    for path in paths:
        anonymous = visit().get(path)
        assert anonymous.status_code == 303, path
        assert anonymous.headers["Location"].startswith("/login?next=")
        assert visit("reader").get(path).status_code in (200, 303), path
        assert not visit("reader").get(path).headers.get("Location", "").startswith("/login")


def test_withdrawn_bundle_is_404_like_in_the_api(visit: Visit, depositor: Depositor) -> None:
    bundle = depositor.bundle(1)
    depositor.client.delete(
        f"/v1/bundles/{bundle}?replica=aws", json={"reason": "secret reason"}, headers=INGEST
    )
    page = visit("reader").get(f"/bundles/{bundle}")
    assert page.status_code == 404
    assert "secret reason" not in page.text
