"""Pages that renew themselves: by their stream, or by polling where there is none."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import httpx
import pytest
from playwright.sync_api import Page

from pipelines.flow import Step
from storage.catalog import Catalog, deposits, jobs
from storage.catalog.deposits import Deposit
from storage.catalog.sql import Tx
from storage.datagrams import open_socket_folder
from storage.model import Job
from storage.pubsub import MemoryPubSub
from store_client import create_version
from tests.real.browser.conftest import OpenPage
from tests.real.browser.site import ADMIN, Site
from workers.hints import HintSender

MOST_STREAMS = 4
"""The default of STORE_CLIENT_STREAMS."""


@contextmanager
def writing(site: Site) -> Iterator[Tx]:
    """A transaction of the store's catalog."""
    catalog = Catalog(f"sqlite:///{site.store.home}/catalog.sqlite", connections=1)
    with closing(catalog), catalog.write() as tx:
        yield tx


@pytest.fixture
def deposit(site: Site) -> Deposit:
    """A deposit of the administrator that waits for its job."""
    with writing(site) as tx:
        former = deposits.find(tx, site.deposit)
        assert former is not None
        bundle, file = str(uuid.uuid4()), str(uuid.uuid4())
        new = replace(
            former,
            id=str(uuid.uuid4()),
            uuid=bundle,
            version=create_version(),
            entries=[("notes.txt", "notes.txt", file, False)],
            state="STARTING",
            finished_us=None,
        )
        deposits.insert_deposit(tx, new)
    return new


def start(site: Site, deposit: Deposit) -> None:
    """Let the store carry out a deposit."""
    job = Job(Step.DEPOSIT, deposit.replica, deposit.id)
    with writing(site) as tx:
        jobs.insert(tx, [job])
    HintSender(open_socket_folder(site.store.home), MemoryPubSub()).send([job])


def watch_requests(page: Page) -> list[str]:
    """List the kinds of the page's requests from now on."""
    kinds: list[str] = []
    page.on("request", lambda request: kinds.append(request.resource_type))
    return kinds


@contextmanager
def taking_all_streams(site: Site, path: str) -> Iterator[None]:
    """Hold as many streams as one user may."""
    cookies = {one["name"]: one["value"] for one in site.cookies[ADMIN]["cookies"]}
    headers = {"Accept": "text/event-stream"}
    with ExitStack() as stack:
        http = stack.enter_context(httpx.Client(trust_env=False, cookies=cookies, timeout=60))
        for _ in range(MOST_STREAMS + 1):
            stream = http.stream("GET", site.store.api + path, headers=headers)
            status = stack.enter_context(stream).status_code
            if status == 429:
                break
        assert status == 429
        yield


def test_change_of_a_deposit_arrives_by_the_stream(
    open_page: OpenPage, site: Site, deposit: Deposit
) -> None:
    page = open_page("/deposits", person=ADMIN)
    kinds = watch_requests(page)
    with page.expect_response(lambda one: one.request.resource_type == "eventsource") as opened:
        page.goto(f"/deposits/{deposit.id}")
    assert opened.value.status == 200
    assert "starting" in page.locator("#deposit-status").inner_text()
    start(site, deposit)
    page.locator("#deposited-bundle").wait_for()
    assert "1 of 1 file verified" in page.locator("#deposit-status").inner_text()
    assert kinds.count("document") == 1
    assert "fetch" not in kinds
    # Its stream has ended for good.
    streams = kinds.count("eventsource")
    page.wait_for_timeout(2500)
    assert kinds.count("eventsource") == streams


def test_page_polls_if_it_gets_no_stream(open_page: OpenPage, site: Site, deposit: Deposit) -> None:
    path = f"/deposits/{deposit.id}"
    with taking_all_streams(site, path):
        page = open_page("/deposits", person=ADMIN)
        kinds = watch_requests(page)
        with page.expect_response(lambda one: one.request.resource_type == "eventsource") as opened:
            page.goto(path)
        assert opened.value.status == 429
        start(site, deposit)
        page.locator("#deposited-bundle").wait_for()
    assert kinds.count("fetch") > 0
    assert kinds.count("document") == 1


def test_hidden_page_leaves_its_stream_to_others(
    open_page: OpenPage, site: Site, deposit: Deposit
) -> None:
    page = open_page(f"/deposits/{deposit.id}", person=ADMIN)
    kinds = watch_requests(page)
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    start(site, deposit)
    page.wait_for_timeout(2500)
    assert page.locator("#deposited-bundle").count() == 0
    page.evaluate(hide, False)
    page.locator("#deposited-bundle").wait_for()
    assert kinds.count("eventsource") > 0
    assert "fetch" not in kinds
