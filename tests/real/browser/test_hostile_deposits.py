"""Deposits that attack those who look at them: nothing runs, nothing leaves, nothing breaks."""

import uuid
from urllib.parse import quote

import pytest

from storage.model import FQID
from tests.live.api import MATCH_ALL
from tests.live.deposits import (
    DepositedBundle,
    Depositor,
    SampleBundle,
    make_file,
    make_metadata_file,
)
from tests.real.browser import chromium
from tests.real.browser.conftest import OpenPage
from tests.real.browser.site import ADMIN, Site
from tests.waiting import until

SCRIPT = "<script>window.pwned = 1; alert(1); fetch('https://evil.example/')</script>"
IMAGE = "<img src='https://evil.example/x.png' onerror='alert(1)'>"
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'>{SCRIPT}</svg>"
METADATA = {
    "title": SCRIPT,
    "project_title": f"{IMAGE} unhappy title",
    "homepage": "javascript:alert(document.cookie)",
    "spaced": " java\tscript:alert(1)",
    "data": "data:text/html,<script>alert(1)</script>",
    IMAGE: "a name of a field",
    "reversed": "\u202egnp.exe",
}
FILES = (
    ("page.html", "text/html", f"<!doctype html>{SCRIPT}{IMAGE}".encode()),
    ("README.md", "text/markdown", f"# x\n[a](javascript:alert(1)) {SCRIPT}".encode()),
    ("picture.svg", "image/svg+xml", SVG.encode()),
    ("\u202egpj.exe", "image/jpeg", b"MZ not a picture"),
    (f"{IMAGE.replace('/', '-')}.txt", "text/plain", b"a name"),
    ("zero\u200bwidth\u2066.json", "application/json", b'{"broken": '),
    ("line.txt", "text/plain", b"x" * 2_000_000),
)


@pytest.fixture(scope="module")
def hostile(site: Site) -> DepositedBundle:
    files = [make_file(name, kind, content) for name, kind, content in FILES]
    bundle = SampleBundle(
        f"hostile {uuid.uuid4()}", (make_metadata_file("m_0.json", METADATA), *files)
    )
    deposited = Depositor(site.service, site.area).deposit(bundle)
    until(lambda: deposited.fqid in site.service.search("aws", MATCH_ALL))
    return deposited


def paths_of(one: DepositedBundle) -> list[str]:
    """List the pages that show a bundle and its files."""
    bundle = FQID.parse(one.fqid)
    files = [
        f"/files/{file.uuid}?version={bundle.version}&name={quote(file.file.name, safe='')}"
        for file in one.files
    ]
    own = f"/bundles/{bundle.uuid}"
    return ["/", "/search?q=unhappy", own, f"{own}/versions", f"{own}/withdraw", *files]


def test_nothing_runs(site: Site, open_page: OpenPage, hostile: DepositedBundle) -> None:
    page = open_page("/", person=ADMIN, width=chromium.NARROW)
    stuck_out = []
    for path in paths_of(hostile):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        page.wait_for_load_state("load")
        assert page.evaluate("window.pwned") is None, path
        assert page.locator("a[href^='javascript' i], a[href^='data:' i]").count() == 0, path
        assert page.locator("main img[src*='evil']").count() == 0, path
        stuck_out += [f"{path}: {one}" for one in chromium.read_overflow(page)]
    assert not stuck_out, "\n".join(stuck_out)


def test_downloads_are_attachments(site: Site, hostile: DepositedBundle) -> None:
    version = FQID.parse(hostile.fqid).version
    for file in hostile.files[1:4]:
        url = f"{site.store.api}/files/{file.uuid}/download"
        answer = site.service.http.get(
            url, params={"version": version, "replica": "aws"}, follow_redirects=True
        )
        assert answer.status_code == 200
        assert answer.headers["Content-Disposition"].startswith("attachment"), file.file.name
