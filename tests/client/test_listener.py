"""The event feed, matches by dry runs, and webhooks that are forwarded to receivers of all kinds."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from config import Settings
from pipelines.deliveries import build_request
from pipelines.recovery import epochs
from storage.catalog import events
from storage.stores import Stores
from store_client import (
    Client,
    Damaged,
    Misused,
    NotAllowed,
    Refused,
    StoreError,
    TimedOut,
    Unreachable,
)
from store_client.configuration import Configuration
from store_client.http import HttpSession
from store_client.listener import (
    MAX_RECEIVED,
    EventFeed,
    MatchFinder,
    WebhookForwarder,
    call_until_answered,
)
from store_client.webhooks import verify
from tests.client.conftest import Served, served
from tests.client.download.deposits import Depositor
from tests.conftest import Outbox
from tests.http_server import serving
from tests.pipelines.delivery_builders import a_due

SECRET = "the secret of the listener"
ORGAN = "files.s_json[0].organ"


@pytest.fixture
def depositor(client: Client) -> Depositor:
    return Depositor(client)


@pytest.fixture
def happens(depositor: Depositor, stores: Stores) -> Callable[..., str]:
    """A bundle comes, and is in the feed."""

    def happen(number: int, organ: str = "heart") -> str:
        uuid = depositor.bundle(number, {"s.json": json.dumps({"organ": organ}).encode()})
        assign(stores)
        return uuid

    return happen


def assign(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        events.assign_sequence(tx)


Scripted = Callable[..., Client]


@pytest.fixture
def scripted(client: Client, config: Configuration) -> Scripted:
    """Makes clients of a store that gives these answers, the last again and again.

    Its dry runs may lack a member.
    """
    definition = client.session.request("GET", "/v1/swagger.json").json()
    body = definition["paths"]["/subscriptions/dry-run"]["post"]["requestBody"]
    name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]

    def make(answers: list[httpx.Response], *, without: str = "") -> Client:
        definition["components"]["schemas"][name]["properties"].pop(without, None)

        def respond(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/swagger.json":
                return httpx.Response(200, json=definition)
            if request.url.path == "/swagger.json":
                return httpx.Response(404, json={})
            return answers.pop(0) if len(answers) > 1 else answers[0]

        session = HttpSession(config.url, transport=httpx.MockTransport(respond), sleep=no_sleep)
        own = replace(config, home=config.home / "scripted", cache=config.cache / "scripted")
        return Client(config=own, session=session)

    return make


def no_sleep(_: float) -> None:
    raise AssertionError("nothing has to be waited for")


# The feed


@pytest.mark.spec("LSN-01")
def test_feed_has_each_event_once_from_now_on(client: Client, happens: Any) -> None:
    happens(1)
    feed = EventFeed(client, "aws", sleep=no_sleep)
    feed.open()
    second = happens(2)
    following = feed.follow()
    assert [one["bundle_uuid"] for one in next(following)] == [second]
    third, fourth = happens(3), happens(4)
    assert [one["bundle_uuid"] for one in next(following)] == [third, fourth]


@pytest.mark.spec("LSN-01")
def test_feed_begins_at_a_time(client: Client, happens: Any) -> None:
    first, second = happens(1), happens(2)
    feed = EventFeed(client, "aws", sleep=no_sleep)
    feed.open("2026-01-01T000000.000000Z")
    (one, two) = next(feed.follow())
    assert [one["bundle_uuid"], two["bundle_uuid"]] == [first, second]
    later = EventFeed(client, "aws", sleep=no_sleep)
    later.open(two["timestamp"])
    assert next(later.follow()) == [two]


@pytest.mark.spec("LSN-02")
def test_feed_continues_after_the_catalog_was_restored(
    client: Client, happens: Any, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    feed = EventFeed(client, "aws", sleep=no_sleep)
    feed.open()
    following = feed.follow()
    happens(1)
    assert len(next(following)) == 1
    epochs.force_new_epoch(stores)
    second = happens(2)
    with caplog.at_level(logging.WARNING, logger="store_client"):
        assert [one["bundle_uuid"] for one in next(following)] == [second], "not the first again"
    assert "the store was restored" in caplog.text


@pytest.mark.spec("LSN-02")
def test_feed_reports_a_cursor_that_is_refused_for_good(scripted: Scripted) -> None:
    refusal = httpx.Response(400, json={"title": "Bad", "code": "illegal_token"})
    with scripted([httpx.Response(200, json={"events": [], "cursor": "x"}), refusal]) as client:
        feed = EventFeed(client, "aws", sleep=no_sleep)
        feed.open()
        with pytest.raises(Refused, match="Bad"):
            next(feed.follow())


EVENT = dict.fromkeys(("event_id", "event_type", "bundle_uuid", "bundle_version", "timestamp"), "x")


class Waited(Exception):
    """Ends a feed that goes on for ever."""


@pytest.mark.spec("LSN-02")
@pytest.mark.parametrize("events", [[], [EVENT]])
def test_a_store_that_does_not_wait_is_not_asked_again_and_again(
    scripted: Scripted, events: list[Any]
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise Waited

    answer = httpx.Response(200, json={"events": events, "cursor": "x"})
    with scripted([*[answer] * 9, httpx.Response(400, json={"title": "enough"})]) as client:
        feed = EventFeed(client, "aws", sleep=wait)
        feed.open()
        with pytest.raises(Waited):
            assert len(list(feed.follow())) == len(events)
    assert all(0.5 < seconds <= 1 for seconds in waits)


@pytest.mark.spec("LSN-02")
@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"events": []},
        {"cursor": "x"},
        {"events": 1, "cursor": ""},
        {"events": [1], "cursor": ""},
        {"events": [{"event_id": "x"}], "cursor": ""},
        {"events": [{**EVENT, "event_type": 1}], "cursor": ""},
    ],
)
def test_answers_that_are_no_feed_are_reported(scripted: Scripted, answer: Any) -> None:
    with (
        scripted([httpx.Response(200, json=answer)]) as client,
        pytest.raises(Damaged, match="not an event feed"),
    ):
        EventFeed(client, "aws", sleep=no_sleep).open()


@pytest.mark.spec("LSN-02")
def test_calls_are_repeated_until_the_store_answers() -> None:
    troubles: list[Exception] = [
        Unreachable("down"),
        TimedOut("slow"),
        Refused("busy", status=429),
        Damaged("half an answer"),
        *[Unreachable("down")] * 3,
    ]
    waited: list[float] = []

    def call() -> str:
        if troubles:
            raise troubles.pop(0)
        return "answer"

    assert call_until_answered(call, waited.append) == "answer"
    assert waited == [1, 2, 4, 8, 15, 15, 15]
    troubles.append(NotAllowed("logged out", status=401))
    with pytest.raises(NotAllowed):
        call_until_answered(call, no_sleep)


# Matches


def finder(client: Client, **query: Any) -> MatchFinder:
    return MatchFinder(client, "aws", query, sleep=no_sleep)


def read_feed(client: Client) -> list[Any]:
    return list(client.call("get_events_feed", replica="aws", after="")["events"])


@pytest.mark.spec("LSN-03")
def test_the_store_decides_what_matches(client: Client, happens: Any, stores: Stores) -> None:
    heart, liver = happens(1), happens(2, "liver")
    client.call("delete_bundle", uuid=heart, replica="aws", reason="wrong")
    assign(stores)
    feed = read_feed(client)
    values = {"attachments": {"organ": {"type": "jmespath", "expression": ORGAN}}}
    for query, expected in (
        ({}, [("CREATE", heart), ("CREATE", liver), ("TOMBSTONE", heart)]),
        ({"jmespath_query": f"{ORGAN} == 'heart'"}, [("CREATE", heart), ("TOMBSTONE", heart)]),
        ({"es_query": {"match": {"files.s_json.organ": "heart"}}}, [("CREATE", heart)]),
        ({"jmespath_query": "absent"}, []),
    ):
        one = finder(client, **query, **values)
        one.check()
        matches = list(one.find(feed))
        seen = [(match.event["event_type"], match.event["bundle_uuid"]) for match in matches]
        assert seen == expected
        for match in matches:
            payload = match.payload or {}
            assert payload["subscription_id"] == one.subscription_id
            assert payload["match"]["bundle_uuid"] == match.event["bundle_uuid"]
            assert payload["attachments"] == {
                "organ": "heart" if match.event["bundle_uuid"] == heart else "liver"
            }
    assert client.call("get_subscriptions", replica="aws") == {"subscriptions": []}


@pytest.mark.spec("LSN-03")
def test_many_events_are_tried_in_order(client: Client, happens: Any) -> None:
    happens(1)
    happens(2, "liver")
    feed = read_feed(client) * 60
    found = list(finder(client, jmespath_query=f"{ORGAN} == 'liver'").find(feed))
    assert [match.event for match in found] == feed[1::2]


@pytest.mark.spec("LSN-03")
def test_failed_queries_are_reported(client: Client, happens: Any) -> None:
    happens(1)
    (match,) = finder(client, jmespath_query="abs(event_type)").find(read_feed(client))
    assert match.payload is None
    assert "abs()" in match.error


@pytest.mark.spec("LSN-03")
def test_events_whose_evaluation_takes_too_long_are_reported(
    settings: Settings,
    stores: Stores,
    job_queue: Outbox,
    drain: Callable[[], int],
    config: Configuration,
    happens: Any,
) -> None:
    happens(1)
    happens(2)
    hasty = replace(settings, dry_run_s=-1.0)
    with (
        served(hasty, stores, job_queue, drain) as store,
        Client(config=replace(config, url=store.url), token="admin") as client,
    ):
        found = list(finder(client).find(read_feed(client)))
    assert [match.error for match in found] == ["The query failed: it takes too long."] * 2


@pytest.mark.spec("LSN-02")
def test_events_that_a_restored_store_lost_are_left_out(client: Client, happens: Any) -> None:
    happens(1)
    (event,) = read_feed(client)
    lost = {**event, "event_id": "00000000-0000-4000-8000-000000000000"}
    found = list(finder(client).find([lost, event, lost]))
    assert [match.event for match in found] == [event]


@pytest.mark.spec("LSN-03")
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"jmespath_query": "a["}, "jmespath_query"),
        ({"es_query": {"nothing": {}}}, "es_query"),
        ({"attachments": {"_x": {"type": "jmespath", "expression": "a"}}}, "attachments"),
    ],
)
def test_invalid_queries_are_reported_at_once(client: Client, query: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        finder(client, **query).check()


@pytest.mark.spec("LSN-03")
def test_who_may_not_subscribe_may_not_listen(store: Served, config: Configuration) -> None:
    with Client(config=config, token="") as anonymous, pytest.raises(NotAllowed):
        finder(anonymous).check()


# Forwarding


class Receiver(BaseHTTPRequestHandler):
    """Receivers of all kinds, by path."""

    protocol_version = "HTTP/1.1"
    came: list[tuple[str, dict[str, str], bytes]]
    over: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.came.append((self.path, dict(self.headers), body))
        kind = self.path.strip("/").partition("?")[0]
        getattr(self, f"be_{kind}", self.be_good)()

    def respond(self, status: int, *headers: tuple[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def be_good(self) -> None:
        self.respond(204)

    def be_broken(self) -> None:
        self.respond(500, body=b"Traceback")

    def be_elsewhere(self) -> None:
        self.respond(302, ("Location", "/other"))

    def be_silent(self) -> None:
        self.over.wait(30)
        self.close_connection = True

    def be_dripping(self) -> None:
        self.drip(b"HTTP/1.1 200 OK\r\nX-Long: ")

    def be_dripping_body(self) -> None:
        self.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")

    def drip(self, begin: bytes) -> None:
        self.wfile.write(begin)
        while not self.over.wait(0.02):
            try:
                self.wfile.write(b"x")
            except OSError:
                break
        self.close_connection = True

    def be_endless(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
        sent = 0
        while not self.over.is_set():
            try:
                sent += self.wfile.write(b"x" * 65_536)
            except OSError:
                break
        self.came.append(("sent", {}, str(sent).encode()))
        self.close_connection = True

    def be_rude(self) -> None:
        self.close_connection = True

    def be_no_http(self) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        self.close_connection = True

    def be_wordy(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000_000)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Any]]]:
    came: list[Any] = []
    over = threading.Event()
    with serving(type("TestReceiver", (Receiver,), {"came": came, "over": over})) as url:
        try:
            yield url, came
        finally:
            over.set()


PAYLOAD = {
    "transaction_id": a_due().uuid,
    "subscription_id": a_due().subscription_uuid,
    "match": {"bundle_uuid": "ä", "bundle_version": "v"},
    "event_type": "CREATE",
    "event_timestamp": "2026-01-01T000000.000000Z",
    "attachments": {"numbers": [1e-7, 1e22, -0.0, 0.1, 10**25, 1.0], "text": "ä\u2028\u0001\"'\\/"},
}


def forward(url: str, path: str = "/good", timeout_s: float = 10.0) -> Any:
    with WebhookForwarder(
        f"{url}{path}", SECRET, key_id=f"store:{a_due().subscription_uuid}", timeout_s=timeout_s
    ) as forwarder:
        return forwarder.send(PAYLOAD)


@pytest.mark.spec("LSN-04")
def test_forwards_what_the_store_would_send(receiver: tuple[str, list[Any]]) -> None:
    url, came = receiver
    result = forward(url, "/good/ä?x=%2F1&y=b c")
    assert (result.status, result.error, result.is_delivered) == (204, "", True)
    ((path, headers, body),) = came
    low = {name.lower(): value for name, value in headers.items()}
    due = a_due(
        callback_url=f"{url}/good/%C3%A4?x=%2F1&y=b%20c",
        payload=json.dumps(PAYLOAD, ensure_ascii=False, separators=(",", ":")),
    )
    now_us = int(low["webhook-timestamp"]) * 1_000_000
    sent = build_request(due, attempt=1, now_us=now_us, keys=[SECRET.encode()])
    assert body == sent.body
    assert {name.lower(): value for name, value in sent.headers.items()}.items() <= low.items()
    more = low.keys() - {name.lower() for name in sent.headers}
    assert more == {"accept", "connection", "content-length"}
    for scheme in ("standard", "http"):
        event = verify(headers, SECRET, body=body, method="POST", target=path, scheme=scheme)  # type: ignore[arg-type]
        assert event.payload == PAYLOAD


@pytest.mark.spec("LSN-04")
@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/broken", 500, ""),
        ("/elsewhere", 302, ""),
        ("/silent", None, "no answer within 0.3 s"),
        ("/dripping", None, "no answer within 0.3 s"),
        ("/dripping_body", 200, ""),
        ("/endless", 200, ""),
        ("/rude", None, "broke"),
        ("/no_http", None, "broke"),
        ("/wordy", None, "broke"),
    ],
)
def test_hostile_receivers_are_reported_in_time(
    receiver: tuple[str, list[Any]], path: str, status: int | None, error: str
) -> None:
    url, came = receiver
    began = time.monotonic()
    # The others answer at once; a busy machine needs longer.
    result = forward(url, path, timeout_s=0.3 if error.startswith("no answer") else 3)
    assert time.monotonic() - began < 30
    assert result.status == status
    assert error in result.error
    assert bool(result.error) == (status is None)
    assert result.is_delivered == (status == 200)
    assert [one[0] for one in came if one[0] != "sent"] == [path], "one attempt, no redirects"


@pytest.mark.spec("LSN-03")
@pytest.mark.parametrize(
    "results", [1, [1], [{"matches": True, "payload": 1}], [{"matches": True, "payload": {}}]]
)
def test_answers_that_are_no_dry_run_are_reported(scripted: Scripted, results: Any) -> None:
    with (
        scripted([httpx.Response(200, json={"bundles": results})]) as client,
        pytest.raises(Damaged, match="not a dry run"),
    ):
        finder(client).check()


@pytest.mark.spec("LSN-04")
@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"attachments": "\ud800"}, "half of a surrogate pair"),
        ({"transaction_id": "a\r\nX-Forged: b"}, "Illegal header value"),
        ({"transaction_id": "ä"}, "no connection to"),
    ],
)
def test_hostile_notifications_are_not_forwarded(
    receiver: tuple[str, list[Any]], more: Any, error: str
) -> None:
    url, came = receiver
    with WebhookForwarder(url, SECRET, key_id="x") as forwarder:
        result = forwarder.send({**PAYLOAD, **more})
    assert (result.status, error in result.error) == (None, True), result.error
    assert came == []


@pytest.mark.spec("LSN-04")
def test_reads_a_bounded_part_of_an_answer(receiver: tuple[str, list[Any]]) -> None:
    url, came = receiver
    assert forward(url, "/endless").is_delivered
    for _ in range(500):
        if len(came) == 2:
            break
        time.sleep(0.01)
    # What the socket buffers of both ends hold comes on top.
    assert int(came[1][2]) < MAX_RECEIVED + 16_000_000


@pytest.mark.spec("LSN-04")
@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1:9", "nothing listens there"),
        ("http://nowhere.invalid", "cannot find the host"),
        (f"http://{'a' * 64}.example", "no connection|cannot find"),
    ],
)
def test_receivers_that_are_not_there_are_reported(url: str, error: str) -> None:
    result = forward(url)
    assert (result.status, result.is_delivered) == (None, False)
    assert any(part in result.error for part in error.split("|")), result.error


@pytest.mark.spec("LSN-04")
def test_no_proxy_of_the_environment_is_used(
    receiver: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert forward(receiver[0]).is_delivered


@pytest.mark.spec("LSN-04")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "ftp://x/",
        "file:///etc/passwd",
        "http://",
        "//x/",
        "http://u:p@x/",
        "http://x:99999/",
    ],
)
def test_rejects_urls_that_are_none_of_a_receiver(url: str) -> None:
    with pytest.raises(Misused, match="--forward-to: "):
        WebhookForwarder(url, SECRET, key_id="x")


@pytest.mark.spec("LSN-03")
def test_a_store_of_an_earlier_release_is_named(scripted: Scripted) -> None:
    with scripted([], without="event_ids") as old, pytest.raises(StoreError, match="too old"):
        finder(old).check()
