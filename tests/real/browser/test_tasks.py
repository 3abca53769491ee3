"""What users come for, done as they would: by what they read, on a phone or a desk."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page

from storage.model import FQID
from tests.real.browser import accessibility, chromium
from tests.real.browser.conftest import OpenPage
from tests.real.browser.site import ADMIN, Site, leave_dead_job
from tests.waiting import until

ways = pytest.mark.parametrize(
    ("width", "scripts"),
    [
        (chromium.PHONE, True),
        (chromium.PHONE, False),
        (chromium.WIDE, True),
        (chromium.WIDE, False),
    ],
    ids=["phone", "phone without scripts", "desk", "desk without scripts"],
)


@ways
def test_finds_a_cohort_and_takes_its_manifest(
    open_page: OpenPage, width: int, scripts: bool
) -> None:
    page = open_page("/", width=width, scripts=scripts)
    page.get_by_role("searchbox").fill("Mus musculus")
    page.get_by_role("search").get_by_role("button").click()
    page.wait_for_url(re.compile("/search"))
    found = page.get_by_role("region", name="Results")
    assert "Gastrulation in the mouse embryo" in found.inner_text()
    page.get_by_role("complementary").get_by_role("link", name="male", exact=True).click()
    page.get_by_role("list", name="Active filters").wait_for()
    assert "1 bundle" in found.inner_text()
    page.get_by_text("Take these 1 bundle").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="manifest.tsv").click()
    header, *rows = Path(download.value.path()).read_text().splitlines()
    assert "bundle_uuid" in header.split("\t")
    assert any("reads/lane1_R1.fastq.gz" in row for row in rows)
    assert chromium.read_overflow(page) == []


def test_suggests_fields_while_a_query_is_typed(open_page: OpenPage) -> None:
    page = open_page("/search")
    box = page.locator("#q")
    box.press_sequentially("liver orga")
    option = page.get_by_role("option", name="organism")
    option.first.wait_for()
    assert accessibility.find_violations(page) == []
    box.press("ArrowDown")
    box.press("Enter")
    assert box.input_value().startswith("liver files.")
    assert box.input_value().endswith(":")
    box.press_sequentially("x orga")
    option.first.wait_for()
    box.press("Escape")
    assert page.get_by_role("option").count() == 0


@dataclass
class Receiver:
    """A receiver of notifications that can be broken and mended."""

    url: str
    works: bool = False


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """Start a broken receiver; stop it at the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = b"thank you" if receiver.works else b"the disk of the pipeline is full"
            self.send_response(200 if receiver.works else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/pipeline")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def reload_until(page: Page, text: str) -> None:
    """Reload a page until it has this text, as its readers do."""

    def there() -> bool:
        page.reload()
        return text in page.locator("main").inner_text()

    until(there)


@ways
def test_finds_and_mends_a_broken_subscription(
    open_page: OpenPage, width: int, scripts: bool
) -> None:
    with running_receiver() as receiver:
        page = open_page("/subscriptions", person=ADMIN, width=width, scripts=scripts)
        page.get_by_role("button", name="New subscription").click()
        page.get_by_label("Callback URL").fill(receiver.url)
        page.get_by_label("Signature").select_option("none")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("button", name="Send a test").click()
        page.wait_for_url(re.compile("/deliveries/"))
        reload_until(page, "the disk of the pipeline is full")
        assert "500" in page.locator("main").inner_text()
        receiver.works = True
        page.get_by_role("button", name="Resend").click()
        page.get_by_role("status").first.wait_for()
        reload_until(page, "thank you")
        assert "delivered" in page.locator("main").inner_text()


@ways
def test_finds_out_why_a_user_may_not_write_and_grants_it(
    open_page: OpenPage, width: int, scripts: bool
) -> None:
    user = f"writer-{width}-{scripts}@example.org".lower()
    page = open_page("/admin/users", person=ADMIN, width=width, scripts=scripts)
    page.get_by_role("textbox", name="E-mail address").fill(user)
    page.get_by_role("button", name="Create user").click()
    page.goto("/admin/why")
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_label("Action").fill("store:PutBundle")
    page.get_by_role("button", name="Explain").click()
    assert "denied" in page.locator("main").inner_text()
    row = page.get_by_role("listitem").filter(has_text="store_ingest")
    row.get_by_role("button", name="Give").click()
    page.goto(f"/admin/why?who={user}&action=store:PutBundle")
    answer = page.locator("main").inner_text()
    assert "allowed" in answer
    assert "denied" not in answer


@ways
def test_retries_a_dead_job(site: Site, open_page: OpenPage, width: int, scripts: bool) -> None:
    number = 2 + [chromium.PHONE, chromium.WIDE].index(width) * 2 + scripts
    bundle = FQID.parse(site.deposited[number].fqid)
    leave_dead_job(site.store, bundle)
    page = open_page("/operations", person=ADMIN, width=width, scripts=scripts)
    row = (
        page.get_by_role("row")
        .filter(has=page.get_by_role("button", name="Retry"))
        .filter(has_text=bundle.uuid)
    )
    assert "507 quota exceeded" in row.inner_text()
    row.get_by_role("button", name="Retry").click()
    page.get_by_text("1 dead job is due again.").wait_for()
    assert (
        page.get_by_role("row")
        .filter(has=page.get_by_role("button", name="Retry"))
        .filter(has_text=bundle.uuid)
        .count()
        == 0
    )


FOLDER = {
    "sample.json": b'{"organism": "Danio rerio", "project_title": "A dropped folder"}',
    "reads/lane1.fastq.gz": b"\x1f\x8b" + b"ACGT" * 5_000,
    "notes.txt": b"fins",
}


def make_folder(home: Path) -> Path:
    """Write a folder to deposit."""
    folder = home / "run7"
    for name, content in FOLDER.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def drop(page: Page, folder: Path) -> None:
    """Drop a folder of this machine on the page, as the desktop does."""
    place = page.locator("#drop")
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
        where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 20}
        session.send("Input.dispatchDragEvent", {"type": kind, "data": data, **where})


@ways
def test_deposits_a_folder_and_watches_it_verified(
    open_page: OpenPage, width: int, scripts: bool, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path)
    page = open_page("/areas", person=ADMIN, width=width, scripts=scripts)
    page.locator("#new-area").click()
    page.wait_for_url(re.compile("/areas/[0-9a-f-]{36}"))
    if scripts:
        drop(page, folder)
        page.locator("#area-files").filter(has_text="reads/lane1.fastq.gz").wait_for()
    else:
        page.locator("#f-files").set_input_files([folder / name for name in FOLDER])
        page.locator("#upload-submit").click()
    if scripts:
        # The list renews itself.
        until(lambda: page.locator("#area-files .state.ok").count() >= len(FOLDER))
    else:
        until(lambda: page.reload() and page.locator("#area-files .state.ok").count() >= 3)
    assert chromium.read_overflow(page) == []
    page.locator("#make-bundle").click()
    page.locator("#put-bundle").click()
    page.wait_for_url(re.compile("/deposits/"))
    link = page.locator("#deposited-bundle")
    until(lambda: link.count() == 1 if scripts else page.reload() and link.count() == 1)
    link.click()
    page.wait_for_url(re.compile("/bundles/"))
    shown = page.locator("main").inner_text()
    assert "A dropped folder" in shown
    assert "sample.json" in shown
