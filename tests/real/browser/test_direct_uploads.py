"""Uploads from a browser straight into a bucket, and through the store if the bucket refuses."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request

from ops import local_store
from ops.procfile import ROOT
from tests.real import engines
from tests.real.browser import chromium
from tests.real.browser.site import ADMIN, BrowsedStore
from tests.real.browser.test_tasks import drop
from tests.storage.blobs import backend_gcs
from tests.waiting import until

pytestmark = pytest.mark.skipif(not engines.NAMED["S3"], reason="STORE_TEST_S3 names no server")

MIB = 1024**2
PART_NUMBER = re.compile(r"(?:[?&]part(?:Number)?=|/)([0-9]+)(?=[?&]|$)")
REFUSAL = re.compile("CORS policy|net::ERR_FAILED")
"""What Chromium writes into its console when a bucket refuses a page."""


@dataclass
class CloudStore(BrowsedStore):
    """A store whose upload areas are in a bucket of this address; on S3, its replicas are, too."""

    bucket: str

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts and ports that pages may ask."""
        return super().hosts | {urlsplit(self.bucket).netloc}

    def let_pages_in(self) -> None:
        """Give the bucket the rule of docs/deployment.md; the server of GCS lets all in."""
        if not self.bucket.startswith(engines.endpoint("S3")):
            return
        text = (ROOT / "docs" / "deployment.md").read_text()
        [rules] = re.findall(r"```json\n(\{\s*\"CORSRules\".*?)```", text, re.DOTALL)
        rules = json.loads(rules.replace("https://data.example.org", self.store.api))
        engines.s3().put_bucket_cors(Bucket=self.name, CORSConfiguration=rules)

    def keep_pages_out(self) -> None:
        """Take the rule away."""
        engines.s3().delete_bucket_cors(Bucket=self.name)

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self.bucket.split("/")[-2]


@contextmanager
def running_cloud(home: Path, browser: Browser, cloud: str) -> Iterator[CloudStore]:
    """Start a store with upload areas on a real server, and log its administrator in."""
    settings = {"STORE_AREAS_URL": engines.s3_bucket() if cloud == "s3" else engines.gcs_bucket()}
    if cloud == "s3":
        settings |= {f"STORE_REPLICA_{name}": engines.s3_bucket() for name in ("AWS", "GCP")}
    # The account of tests, which signs URLs; its tokens come from the simulated server.
    with backend_gcs.running(home), local_store.running_store(home, settings) as store:
        bucket = (
            f"{engines.endpoint(cloud.upper())}/{engines.name_of(settings['STORE_AREAS_URL'])}/"
        )
        running = CloudStore(store, browser, {}, bucket)
        running.log_in(ADMIN)
        yield running


CLOUDS = [name for name in ("s3", "gcs") if engines.NAMED[name.upper()]]


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(
    request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CloudStore]:
    with running_cloud(tmp_path_factory.mktemp("cloud"), browser, request.param) as running:
        yield running


@dataclass
class Requests:
    """What a browser sent, and where to."""

    seen: list[Request] = field(default_factory=list)

    def attach(self, context: BrowserContext) -> None:
        """Note the requests of all pages of a context."""
        context.on("requestfinished", lambda request: self.seen.append(request))

    def list_parts(self, url: str) -> list[int]:
        """Numbers of the parts that arrived below a URL."""
        return [
            int(number)
            for one in self.seen
            if one.method == "PUT" and one.url.startswith(url)
            for number in PART_NUMBER.findall(one.url)
        ]

    def count_bytes(self, url: str) -> int:
        """Bytes of bodies that were announced to a URL and below."""
        headers = [one.all_headers() for one in self.seen if one.url.startswith(url)]
        return sum(int(each.get("content-length", "0")) for each in headers)


def open_area(cloud: CloudStore, watch: chromium.Watch, requests: Requests) -> Page:
    """Open the page of a new area, in a window of its own."""
    context = cloud.open_context(watch, person=ADMIN)
    requests.attach(context)
    page = context.new_page()
    page.goto("/areas")
    page.locator("#new-area").click()
    page.wait_for_url(re.compile("/areas/[0-9a-f-]{36}"))
    return page


def make_file(path: Path, size: int) -> Path:
    """Write a file whose blocks differ."""
    with path.open("wb") as file:
        for number in range(size // MIB):
            file.write(number.to_bytes(8, "big") + os.urandom(1024) * 1024)
        file.truncate(size)
    return path


def make_bundle(page: Page) -> None:
    """Make a bundle of the area's files, which takes verified ones only."""
    page.locator("#area-files .state.ok").wait_for(timeout=60_000)
    page.locator("#make-bundle").click()
    page.locator("#put-bundle").click()
    page.wait_for_url(re.compile("/deposits/"))
    page.locator("#deposited-bundle").click(timeout=120_000)
    page.wait_for_url(re.compile("/bundles/"))


def wait_until_uploaded(page: Page) -> None:
    """Wait until the page says that its only file is there."""
    status = page.locator("#upload-status")
    status.filter(has_text="1 of 1 files uploaded").wait_for(timeout=60_000)


def test_parts_go_straight_to_the_bucket(cloud: CloudStore, tmp_path: Path) -> None:
    cloud.let_pages_in()
    assert "browser uploads\tok" in cloud.store.run_command("status")
    watch, requests = chromium.Watch(cloud.hosts), Requests()
    page = open_area(cloud, watch, requests)
    drop(page, make_file(tmp_path / "reads.bam", 20 * MIB))
    wait_until_uploaded(page)
    assert requests.list_parts(cloud.bucket) == [1]
    assert requests.count_bytes(cloud.bucket) == 20 * MIB
    assert requests.list_parts(cloud.store.api) == []
    assert requests.count_bytes(cloud.store.api) < 20_000
    make_bundle(page)
    assert "reads.bam" in page.locator("main").inner_text()
    assert watch.seen == []
    page.context.close()


@pytest.mark.parametrize("cloud", ["s3"], indirect=True)
def test_parts_resume_after_a_reload(cloud: CloudStore, tmp_path: Path) -> None:
    cloud.let_pages_in()
    watch, requests = chromium.Watch(cloud.hosts), Requests()
    page = open_area(cloud, watch, requests)
    file = make_file(tmp_path / "reads.bam", 130 * MIB)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1}
    session.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": 8 * MIB})
    drop(page, file)
    # The last part is short; the others are on their way when the page is left.
    until(lambda: page.wait_for_timeout(50) is None and requests.list_parts(cloud.bucket) == [3])
    page.reload()
    assert requests.list_parts(cloud.bucket) == [3]
    session.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": -1})
    drop(page, file)
    wait_until_uploaded(page)
    assert sorted(requests.list_parts(cloud.bucket)) == [1, 2, 3]
    assert requests.list_parts(cloud.store.api) == []
    make_bundle(page)
    assert watch.seen == []
    page.context.close()


@pytest.mark.parametrize("cloud", ["s3"], indirect=True)
def test_parts_pass_through_the_store_if_the_bucket_refuses_the_page(
    cloud: CloudStore, tmp_path: Path
) -> None:
    cloud.keep_pages_out()
    assert "browser uploads\twarning" in cloud.store.run_command("status")
    watch, requests = chromium.Watch(cloud.hosts), Requests()
    page = open_area(cloud, watch, requests)
    drop(page, make_file(tmp_path / "reads.bam", 20 * MIB))
    wait_until_uploaded(page)
    assert page.locator("#progress .message").count() == 0
    assert requests.list_parts(cloud.bucket) == []
    assert requests.list_parts(cloud.store.api) == [1]
    assert requests.count_bytes(cloud.store.api) > 20 * MIB
    make_bundle(page)
    assert watch.seen
    assert all(REFUSAL.search(seen) for seen in watch.seen), watch.seen
    page.context.close()
