"""Every page, light and dark, narrow and wide: accessible, inside the window, and quiet."""

import re

import pytest

from tests.real.browser import accessibility, chromium, screenshots
from tests.real.browser.conftest import OpenPage
from tests.real.browser.site import ADMIN, Site
from tests.real.browser.visits import NO_PAGES, VISITS, list_shown, list_visits
from web.pages import list_pages

DARK_RULES = ["color-contrast"]
"""Rules that the colour scheme can break; the others hold in both."""


def test_every_page_is_visited() -> None:
    assert {one.name for one in list_shown()} == set(VISITS)


def test_gallery_shows_every_visit() -> None:
    assert screenshots.GALLERY.read_text(encoding="utf-8") == screenshots.build_gallery()
    pictures = re.findall(r"images/(\w+\.png)", screenshots.build_gallery())
    assert set(pictures) == {path.name for path in screenshots.TARGET.glob("*.png")}


def test_views_without_a_page_exist() -> None:
    assert set(NO_PAGES) <= {one.name for one in list_pages()}


@pytest.mark.parametrize("visit", list_visits())
def test_page_has_no_violations(site: Site, open_page: OpenPage, visit: str) -> None:
    person, where = list_visits()[visit]
    page = open_page(where(site), person=person)
    chromium.settle(page)
    found = list[str]()
    for width in (chromium.WIDE, chromium.PHONE):
        page.set_viewport_size({"width": width, "height": chromium.HEIGHT})
        page.emulate_media(color_scheme="light")
        found += [f"light, {width}: {one}" for one in accessibility.find_violations(page)]
        page.emulate_media(color_scheme="dark")
        found += [
            f"dark, {width}: {one}" for one in accessibility.find_violations(page, only=DARK_RULES)
        ]
    page.set_viewport_size({"width": chromium.NARROW, "height": chromium.HEIGHT})
    found += [f"sticks out: {one}" for one in chromium.read_overflow(page)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("visit", list_visits())
def test_page_is_complete_without_scripts(site: Site, open_page: OpenPage, visit: str) -> None:
    person, where = list_visits()[visit]
    page = open_page(where(site), person=person, width=chromium.NARROW, scripts=False)
    assert page.locator("h1").count() == 1
    assert page.locator("h1").inner_text().strip()
    assert page.locator("main").inner_text().strip() != page.locator("h1").inner_text().strip()


@pytest.mark.parametrize("view", ["list_deliveries", "show_subscription", "show_audit_log"])
def test_wide_tables_fit_from_a_thousand_pixels_on(
    site: Site, open_page: OpenPage, view: str
) -> None:
    page = open_page(VISITS[view](site), person=ADMIN, width=1000)
    tables = page.locator(".scroll")
    assert tables.count() > 0
    for table in tables.all():
        assert table.evaluate("(one) => one.scrollWidth <= one.clientWidth")
