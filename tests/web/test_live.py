"""Streams of pages that renew themselves: changes arrive, and end with the right to see them."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from flask import Flask
from werkzeug.test import TestResponse

from api.authz.app import build_auth_services
from config import Settings
from storage.catalog.subscriptions import Subscription
from storage.errors import Unauthorized
from storage.model import Principal
from storage.stores import Stores
from tests.api import conftest as api
from tests.conftest import Outbox
from tests.http_server import serving_app
from tests.subscription_builders import subscribe, tell
from tests.waiting import until
from tests.web.conftest import BROWSER, Visitor
from tests.web.test_areas import new_area, upload
from tests.web.test_deliveries import READER, attempt, log_of
from tests.web.test_deposits import make
from web.app import create_site_app
from web.login import SESSION_COOKIE

Drain = Callable[[], int]
STREAM = {"Accept": "text/event-stream"}


@dataclass
class Site:
    """An application with tokens that can be revoked."""

    app: Flask
    people: dict[str, Principal]

    def visit(self, person: str = "") -> Visitor:
        return Visitor(self.app, person)


Build = Callable[..., Site]


@pytest.fixture
def build(keyed_settings: Settings, stores: Stores, job_queue: Outbox) -> Build:
    """Build a site with settings of its own; streams end soon if nothing happens."""

    def built(**more: Any) -> Site:
        settings = replace(keyed_settings, **{"feed_life_s": 8.0, "feed_heartbeat_s": 0.5} | more)
        people = dict(api.PEOPLE)

        def verify(token: str) -> Principal:
            if token not in people:
                raise Unauthorized("It is revoked.")
            return people[token]

        def refuse(_path: str, _form: Any) -> Any:
            raise AssertionError("streams renew no token")

        auth = build_auth_services(settings, stores.catalog, verify, None, time.time)
        app = create_site_app(
            settings, stores, job_queue=job_queue, verify=verify, auth=auth, post_form=refuse
        )
        return Site(app, people)

    return built


@pytest.fixture
def owner(build: Build) -> Visitor:
    return build().visit("ingest")


@pytest.fixture
def reader(build: Build) -> Visitor:
    return build().visit("reader")


def parts(response: TestResponse) -> Iterator[str]:
    """The part of the page, each time that it is sent."""
    assert response.status_code == 200
    assert response.mimetype == "text/event-stream"
    for chunk in response.iter_encoded():
        for line in chunk.decode().splitlines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))["part"]


def new_deposit(owner: Visitor, drain: Drain) -> str:
    path = new_area(owner)
    upload(owner, path, [("a.json", b'{"a": 1}'), ("bad.json", b"{"), ("d/x.txt", b"text")])
    drain()
    made = make(owner, path, {"a.json": "meta.json"}, "a.json")
    return str(made.headers["Location"])


def test_deposit_arrives_until_it_is_over(owner: Visitor, drain: Drain) -> None:
    path = new_deposit(owner, drain)
    sent = parts(owner.get(path, **STREAM))
    first = next(sent)
    assert "<html" not in first
    assert f'<div id="files" data-live="{path}" data-pending>' in first
    assert "0 of 1 file verified" in first
    drain()
    later = list(sent)
    assert "1 of 1 file verified" in later[-1]
    assert "data-pending" not in later[-1]
    assert "deposited-bundle" in later[-1]


def test_checks_of_an_area_arrive(owner: Visitor, drain: Drain) -> None:
    path = new_area(owner)
    upload(owner, path, [("bad.json", b"{")])
    sent = parts(owner.get(path, **STREAM))
    assert "1 being checked" in next(sent)
    drain()
    (last,) = sent
    assert "1 refused or not valid" in last


@pytest.fixture
def own(stores: Stores) -> Subscription:
    return subscribe(stores.catalog, "https://receiver.example/hook", owner=READER)


def test_deliveries_and_attempts_arrive(reader: Visitor, stores: Stores, own: Subscription) -> None:
    log = parts(reader.get(log_of(own), **STREAM))
    assert "No deliveries" in next(log)
    tell(stores.catalog, [own])
    listed = next(log)
    assert "pending" in listed
    ident = listed.partition(f"{log_of(own)}/")[2][:36]
    one = parts(reader.get(f"{log_of(own)}/{ident}", **STREAM))
    assert "None yet." in next(one)
    attempt(stores, own)
    (last,) = one
    assert "Attempt 1: 500" in last
    assert "failed" in next(log)


def test_unchanged_page_is_sent_once_and_its_stream_ends(build: Build, own: Subscription) -> None:
    reader = build(feed_life_s=1.5).visit("reader")
    whole = reader.get(log_of(own), **STREAM).get_data(as_text=True)
    assert whole.startswith("retry: 1000\n")
    assert whole.count("data: ") == 1
    assert ":\n\n" in whole


def test_head_takes_no_stream(owner: Visitor, drain: Drain) -> None:
    path = new_deposit(owner, drain)
    answer = owner.client.head(path, headers={**BROWSER, **STREAM})
    assert (answer.status_code, answer.mimetype) == (200, "text/html")


@pytest.mark.parametrize("place", ["area", "deposit"])
@pytest.mark.parametrize("lost", ["session", "role"])
def test_stream_ends_with_the_session_and_with_the_role(
    build: Build, drain: Drain, lost: str, place: str
) -> None:
    site = build()
    owner = site.visit("ingest")
    path = new_area(owner) if place == "area" else new_deposit(owner, drain)
    if place == "area":
        upload(owner, path, [("bad.json", b"{")])
    sent = parts(owner.get(path, **STREAM))
    next(sent)
    if lost == "session":
        del site.people["ingest"]
    else:
        # The owner still has an account, but no role that may see areas.
        site.people["ingest"] = Principal("ingest@example.org", frozenset())
    drain()
    began = time.monotonic()
    assert list(sent) == []
    assert time.monotonic() - began < 5
    again = owner.get(path, **STREAM)
    assert again.status_code == (401 if lost == "session" else 403)
    assert again.mimetype == "application/problem+json"


def test_streams_are_limited_and_pages_are_not(owner: Visitor, drain: Drain) -> None:
    path = new_deposit(owner, drain)
    streams = [owner.get(path, **STREAM) for _ in range(4)]
    refused = owner.get(path, **STREAM)
    assert refused.status_code == 429
    assert owner.get(path).status_code == 200
    # Streams of the API are others.
    feed = owner.client.get("/v1/events/feed?replica=aws", headers=STREAM)
    assert feed.status_code == 200
    for one in (*streams, feed):
        one.close()
    again = owner.get(path, **STREAM)
    assert again.status_code == 200
    again.close()


def test_browser_that_leaves_frees_its_stream(build: Build, drain: Drain) -> None:
    """Long before the stream's end, and without a heartbeat that fails."""
    site = build(page_streams=1, feed_life_s=60.0, feed_heartbeat_s=60.0)
    owner = site.visit("ingest")
    path = new_deposit(owner, drain)
    cookie = owner.client.get_cookie(SESSION_COOKIE)
    assert cookie is not None
    headers = {**STREAM, "Cookie": f"{SESSION_COOKIE}={cookie.value}"}
    with serving_app(site.app) as base, httpx.Client(trust_env=False) as http:
        with http.stream("GET", base + path, headers=headers) as stream:
            assert stream.headers["X-Accel-Buffering"] == "no"
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            assert owner.get(path, **STREAM).status_code == 503

        def is_free() -> bool:
            answer = owner.get(path, **STREAM)
            answer.close()
            return answer.status_code == 200

        until(is_free, 10)


def test_streams_are_for_those_who_may_see_the_page(build: Build, drain: Drain) -> None:
    site = build()
    path = new_deposit(site.visit("ingest"), drain)
    assert site.visit("other").get(path, **STREAM).status_code == 403
    assert site.visit().get(path, **STREAM).status_code == 401
