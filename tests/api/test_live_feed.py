"""The live feed over real connections: no duplicates, no gaps, across restarts."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Flask

from api.app import create_app
from api.http.limits import FairSemaphore
from api.http.waiting import ServerSentEvents, StreamMessage
from pipelines import flow
from storage.catalog import events
from storage.errors import Unavailable
from storage.model import FQID
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.api.conftest import verify
from tests.builders import new_uuid, version
from tests.http_server import serving_app
from tests.waiting import PATIENCE_S

Make = Callable[..., Flask]


@pytest.fixture
def make(settings, stores, job_queue) -> Iterator[Make]:
    """An application like the others, with settings of its own."""

    def made(**more: Any) -> Flask:
        own = replace(settings, **{"feed_heartbeat_s": 0.1} | more)
        return create_app(own, stores, job_queue=job_queue, verify=verify)

    before = set(threading.enumerate())
    yield made
    # Their readers left; they notice with the next heartbeat. Not the threads of other servers
    # in this process, which wait for clients that keep their connections.
    for thread in set(threading.enumerate()) - before:
        if "process_request_thread" in thread.name:
            thread.join(10)


def happen(stores: Stores, count: int = 1, *, numbered: bool = True) -> list[str]:
    """Events, and the sequencer's notice."""
    with stores.catalog.write() as tx:
        made = [
            events.append(tx, "CREATE", "aws", FQID(new_uuid(), version(place)), 0)
            for place in range(count)
        ]
    if numbered:
        number(stores)
    return made


def number(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        events.assign_sequence(tx, limit=7)
    stores.pubsub.publish(flow.EVENTS_TOPIC)


@contextmanager
def writing(stores: Stores, count: int) -> Iterator[list[str]]:
    """Several writers and the sequencer, at work beside the block."""
    made: list[str] = []
    stop = threading.Event()

    def write() -> None:
        for _ in range(count):
            made.extend(happen(stores, numbered=False))

    def sequence() -> None:
        while not stop.wait(0.005):
            number(stores)

    writers = [threading.Thread(target=write) for _ in range(3)]
    sequencer = threading.Thread(target=sequence)
    for thread in (*writers, sequencer):
        thread.start()
    try:
        yield made
    finally:
        for thread in writers:
            thread.join()
        stop.set()
        sequencer.join()


def messages(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """(id, data) of each message of a stream; data None where there is only an id."""
    told: dict[str, str] = {}
    for line in answer.iter_lines():
        name, colon, value = line.partition(": ")
        if colon and name in ("id", "data"):
            told[name] = value
        elif not line and "id" in told:
            yield told["id"], json.loads(told["data"]) if "data" in told else None
            told = {}


EVENT_STREAM = {"Accept": "text/event-stream"}
FEED = "/v1/events/feed"


@pytest.mark.spec("EVT-13")
def test_stream_sends_past_and_new_events(make: Make, stores: Stores) -> None:
    first = happen(stores, 3)
    # What comes comes on this stream, or not before the patience ends.
    long = make(feed_life_s=600.0)
    patient = httpx.Client(trust_env=False, timeout=PATIENCE_S)
    with serving_app(long) as base, patient as http:
        asked = {"replica": "aws", "after": ""}
        with http.stream("GET", base + FEED, params=asked, headers=EVENT_STREAM) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            assert answer.headers["Cache-Control"] == "no-store"
            told = messages(answer)
            assert next(told)[1] is None
            assert {(next(told)[1] or {})["event_id"] for _ in first} == set(first)
            (later,) = happen(stores)
            ident, event = next(told)
            assert event is not None
            assert event["event_id"] == later
    with serving_app(make()) as base, httpx.Client(trust_env=False) as http:
        asked = {"replica": "aws", "after": ident}
        assert http.get(base + FEED, params=asked).json()["events"] == []


@pytest.mark.spec("EVT-13")
def test_stream_sends_heartbeats_and_ends(make: Make) -> None:
    short = make(feed_life_s=1.5, feed_heartbeat_s=0.1)
    with serving_app(short) as base, httpx.Client(trust_env=False) as http:
        answer = http.get(base + FEED, params={"replica": "aws"}, headers=EVENT_STREAM)
    assert answer.text.startswith("retry: 1000\nid: ")
    assert answer.text.count(":\n\n") >= 3


@pytest.mark.spec("EVT-14")
def test_client_without_events_gets_a_cursor(make: Make, stores: Stores) -> None:
    short = make(feed_life_s=1.0)
    with serving_app(short) as base, httpx.Client(trust_env=False) as http:
        asked = {"replica": "aws"}
        answer = http.get(base + FEED, params=asked, headers=EVENT_STREAM)
        ident = answer.text.partition("id: ")[2].partition("\n")[0]
        (missed,) = happen(stores)
        again = EVENT_STREAM | {"Last-Event-ID": ident}
        with http.stream("GET", base + FEED, params=asked, headers=again) as stream:
            told = [data for _, data in messages(stream) if data]
    assert [one["event_id"] for one in told] == [missed]


@pytest.mark.spec("EVT-15", "ERR-41")
def test_streams_are_limited_and_released(make: Make) -> None:
    few = make(feed_streams=1, feed_life_s=30.0, feed_heartbeat_s=0.05)
    with serving_app(few) as base, httpx.Client(trust_env=False) as http:
        asked = {"params": {"replica": "aws"}, "headers": EVENT_STREAM}
        with http.stream("GET", base + FEED, **asked) as first:
            # Kept, for httpx closes the connection with what reads it.
            reading = messages(first)
            next(reading)
            refused = http.get(base + FEED, **asked)
            assert (refused.status_code, refused.json()["code"]) == (503, "service_unavailable")
            assert int(refused.headers["Retry-After"]) > 0
            assert http.get(base + FEED, params={"replica": "aws"}).status_code == 200
            reading.close()
        # Its end is noticed by what cannot be sent to it any more.
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with http.stream("GET", base + FEED, **asked) as second:
                if second.status_code == 200:
                    return
            time.sleep(0.05)
    raise AssertionError("the room was never given back")


@pytest.mark.spec("EVT-15")
def test_streams_of_one_client_are_fewer_still_and_it_leaves_room_for_others(make: Make) -> None:
    own = make(client_streams=1, feed_streams=3, feed_life_s=30.0, feed_heartbeat_s=0.05)

    def ask(place: str) -> Any:
        asked = own.test_client()
        where = {"REMOTE_ADDR": place}
        return asked.get(f"{FEED}?replica=aws", headers=EVENT_STREAM, environ_base=where)

    one = ask("192.0.2.1")
    refused = ask("192.0.2.1")
    assert (refused.status_code, refused.json["code"]) == (429, "too_many_requests")
    assert int(refused.headers["Retry-After"]) > 0
    other = ask("192.0.2.2")
    assert (one.status_code, other.status_code) == (200, 200)
    one.close()
    again = ask("192.0.2.1")
    assert again.status_code == 200
    for each in (again, other):
        each.close()


@pytest.mark.spec("EVT-15")
def test_excess_long_polls_of_a_client_get_503(make: Make, stores: Stores) -> None:
    own = make(client_waits=1, wait_s=50.0)

    def ask(**more: Any) -> Any:
        return own.test_client().get(f"{FEED}?replica=aws", **more)

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask) for _ in range(2)]
        (refused,), (waiting,) = wait(asked, timeout=25, return_when=FIRST_COMPLETED)
        assert refused.result().status_code == 429
        assert int(refused.result().headers["Retry-After"]) > 0
        # What is there already is told, and who does not wait is answered.
        assert ask(headers={"Prefer": "wait=0"}).json["events"] == []
        happen(stores)
        assert len(waiting.result().json["events"]) == 1


@pytest.mark.spec("EVT-15")
def test_unread_stream_is_released() -> None:
    streams = ServerSentEvents(MemoryPubSub(), FairSemaphore("streams", 1), 1, 1)
    how: dict[str, Any] = {"client": "c", "topics": ["t"], "environ": {}}
    streams.respond(lambda _: [], start=StreamMessage(0, "x", None), **how).close()
    unread = streams.respond(lambda _: [], start=StreamMessage(0, "x", None), **how)
    with pytest.raises(Unavailable):
        streams.respond(lambda _: [], start=StreamMessage(0, "x", None), **how)
    unread.close()


@pytest.mark.spec("EVT-14")
def test_stream_ends_during_catalog_outage() -> None:
    def away(_place: int) -> list[StreamMessage]:
        raise Unavailable("away")

    how: dict[str, Any] = {"client": "c", "topics": ["t"], "environ": {}}
    streams = ServerSentEvents(MemoryPubSub(), FairSemaphore("streams", 1), 60, 1)
    answer = streams.respond(away, start=StreamMessage(0, "x", None), **how)
    assert answer.get_data() == b"retry: 1000\nid: x\n\n"


@pytest.mark.spec("EVT-14")
def test_long_polls_see_every_event_once_in_order_beside_writers_and_restarts(
    make: Make, stores: Stores
) -> None:
    seen: list[str] = []
    cursor = ""
    with writing(stores, 40) as made:
        while len(seen) < 120:
            # Another server each time: nothing is remembered but the cursor.
            client = make(wait_s=5.0).test_client()
            for _ in range(3):
                if len(seen) == 120:
                    break  # There is nothing to wait for any more.
                url = f"{FEED}?replica=aws&after={cursor}&per_page=9"
                answer = client.get(url).json
                seen += [one["event_id"] for one in answer["events"]]
                cursor = answer["cursor"]
    assert sorted(seen) == sorted(made)
    with stores.catalog.read() as tx:
        assert seen == [each.event.id for each in events.list_range(tx, "aws", 1, limit=1000)]


@pytest.mark.spec("EVT-14")
def test_streams_see_every_event_once_in_order_beside_writers_and_restarts(
    make: Make, stores: Stores
) -> None:
    seen: list[str] = []
    ident = ""
    with writing(stores, 40) as made, httpx.Client(trust_env=False) as http:
        while len(seen) < 120:
            with serving_app(make(feed_life_s=0.3)) as base:
                headers = EVENT_STREAM | ({"Last-Event-ID": ident} if ident else {})
                asked = {"replica": "aws", "after": "", "per_page": "5"}
                with http.stream("GET", base + FEED, params=asked, headers=headers) as answer:
                    for told, data in messages(answer):
                        ident = told
                        seen += [data["event_id"]] if data else []
    assert sorted(seen) == sorted(made)
    with stores.catalog.read() as tx:
        assert seen == [each.event.id for each in events.list_range(tx, "aws", 1, limit=1000)]


@pytest.mark.spec("EVT-13")
def test_a_long_poll_is_woken_by_the_sequencer(make: Make, stores: Stores) -> None:
    client = make(wait_s=20.0).test_client()
    later = threading.Timer(0.2, happen, [stores])
    later.start()
    began = time.monotonic()
    answer = client.get(f"{FEED}?replica=aws")
    later.join()
    assert len(answer.json["events"]) == 1
    assert time.monotonic() - began < 5


@pytest.mark.spec("EVT-13")
def test_prefer_wait_shortens_long_poll(make: Make) -> None:
    client = make(wait_s=20.0).test_client()
    began = time.monotonic()
    for preferred in ("wait=0", "respond-async"):
        assert client.get(f"{FEED}?replica=aws", headers={"Prefer": preferred}).json["events"] == []
    assert time.monotonic() - began < 5


@pytest.mark.spec("EVT-14")
def test_unsequenced_events_are_not_sent(make: Make, stores: Stores) -> None:
    happen(stores, 2, numbered=False)
    assert make().test_client().get(f"{FEED}?replica=aws&after=").json["events"] == []


@pytest.mark.spec("EVT-14")
def test_the_reader_that_the_documentation_shows_sees_everything_once(
    make: Make, stores: Stores
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    (shown,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "def follow" in block
    ]
    names: dict[str, Any] = {}
    exec(shown, names)
    first = happen(stores, 5)
    with serving_app(make(wait_s=5.0)) as base:
        reader = names["follow"](base)
        seen = [next(reader) for _ in first]
        later = happen(stores, 1)
        assert next(reader)[0]["event_id"] == later[0]
        # Whoever kept the last cursor goes on from there.
        assert next(names["follow"](base, seen[-1][1]))[0]["event_id"] == later[0]
    assert sorted(one["event_id"] for one, _ in seen) == sorted(first)
