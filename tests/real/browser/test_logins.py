"""Logging in and out, as users do it."""

import re

import pytest

from tests.real.browser import accessibility, chromium
from tests.real.browser.conftest import OpenPage
from tests.real.browser.site import PASSWORD, READER

both = pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
widths = pytest.mark.parametrize("width", [chromium.PHONE, chromium.WIDE])


@both
@widths
def test_user_logs_in_and_out(open_page: OpenPage, width: int, scripts: bool) -> None:
    page = open_page("/docs", width=width, scripts=scripts)
    page.get_by_role("navigation").get_by_role("link", name="Log in").click()
    page.get_by_label(re.compile("e-?mail", re.I)).fill(READER)
    page.get_by_label(re.compile("password", re.I)).fill(PASSWORD)
    page.get_by_role("button", name=re.compile("log in|sign in", re.I)).click()
    page.get_by_role("link", name=READER).wait_for()
    assert chromium.path_of(page) == "/docs"
    page.get_by_role("button", name="Log out").click()
    page.wait_for_load_state()
    page.goto("/")
    page.get_by_role("navigation").get_by_role("link", name="Log in").wait_for()


def test_login_pages_have_no_violations(open_page: OpenPage) -> None:
    page = open_page("/login?next=/")
    assert accessibility.find_violations(page) == []
    page.set_viewport_size({"width": chromium.NARROW, "height": chromium.HEIGHT})
    assert chromium.read_overflow(page) == []
    page.emulate_media(color_scheme="dark")
    assert accessibility.find_violations(page) == []
