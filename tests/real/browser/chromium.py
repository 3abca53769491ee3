"""Open pages in Debian's Chromium, and note everything that a page should not do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    sync_playwright,
)

NARROW, PHONE, WIDE = 360, 375, 1440
HEIGHT = 900
TIMEOUT_MS = 20_000
EXPECTED_STATUS = re.compile(r"^Failed to load resource: the server responded with a status of 4")
"""What the browser says of an answer that a test looks at itself."""


@contextmanager
def running_browser(program: str) -> Iterator[Browser]:
    """Start Chromium; stop it at the end."""
    with sync_playwright() as playwright:
        # /dev/shm is small in containers.
        options = ["--disable-dev-shm-usage", "--font-render-hinting=none"]
        browser = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """What pages of a context did that they should not."""

    hosts: frozenset[str]
    """Hosts and ports that they may ask."""
    seen: list[str] = field(default_factory=list)

    def attach(self, context: BrowserContext) -> None:
        """Listen to all pages of a context."""
        context.on("console", self._hear)
        context.on("weberror", lambda error: self.seen.append(f"error: {error.error}"))
        context.on("dialog", self._dismiss)
        context.on("request", self._check_host)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not EXPECTED_STATUS.match(message.text):
            self.seen.append(f"console: {message.text}")

    def _dismiss(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":
            dialog.accept()
            return
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check_host(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc not in self.hosts:
            self.seen.append(f"request of another host: {request.url}")


def path_of(page: Page) -> str:
    """Return the path that a page is at."""
    return urlsplit(page.url).path


def settle(page: Page) -> None:
    """Wait until a page has all that its scripts add; live pages never stop asking."""
    page.wait_for_load_state("load")
    if page.locator("#reference").count():
        page.locator("#reference .opblock").first.wait_for()


def read_overflow(page: Page) -> list[str]:
    """List what sticks out of the page, if it scrolls sideways."""
    found: list[str] = page.evaluate(
        """() => {
          const root = document.documentElement, width = root.clientWidth;
          if (root.scrollWidth <= width) return [];
          const scrolls = (one) => one !== root && one !== document.body
            && getComputedStyle(one).overflowX !== "visible";
          const hidden = (one) => {
            for (let at = one.parentElement; at; at = at.parentElement) {
              if (scrolls(at)) return getComputedStyle(one).position !== "absolute";
            }
            return false;
          };
          const out = [...document.querySelectorAll("body *")]
            .filter((one) => one.getBoundingClientRect().right > width + 1 && !hidden(one))
            .map((one) => one.outerHTML.slice(0, 120));
          return out.length ? out : [`something, by ${root.scrollWidth - width} px`];
        }"""
    )
    return found
