"""Fixtures: one browser and one seeded store for all tests of a process, a window for each test."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.engines.chromium import VARIABLE
from tests.real.browser import chromium
from tests.real.browser.site import Site, running_site


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, for all tests of this process."""
    program = os.environ.get(VARIABLE, "")
    if not program:
        pytest.skip(f"{VARIABLE} names no browser")
    with chromium.running_browser(program) as running:
        yield running


@pytest.fixture(scope="session")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A seeded store whose pages the browser can open."""
    with running_site(tmp_path_factory.mktemp("site"), browser) as running:
        yield running


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(site: Site) -> Iterator[OpenPage]:
    """Open a page in a window of its own; what it should not do fails the test at its end."""
    watch, contexts = chromium.Watch(site.hosts), []

    def open_(path: str = "/", **how: Any) -> Page:
        context = site.open_context(watch, **how)
        contexts.append(context)
        page = context.new_page()
        page.goto(path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert watch.seen == []
