"""Requests that wait for a job to complete."""

import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pytest

from api.app import create_app
from api.http.limits import FairSemaphore
from api.http.waiting import LongPolling, WaitPreference, compute_wait_s, parse_prefer
from storage.errors import NotFoundError, Unavailable
from storage.pubsub import MemoryPubSub
from tests.api.builders import Depositor, uuid_of
from tests.api.conftest import verify

pytestmark = pytest.mark.spec("CON-15")

HOW: dict[str, Any] = {"client": "somebody", "topics": ["x"], "within_s": 20}


def waiting(pubsub: MemoryPubSub | None = None) -> LongPolling:
    return LongPolling(pubsub or MemoryPubSub(), FairSemaphore("waiting requests", 1))


@pytest.mark.spec("CON-14")
@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, WaitPreference()),
        ("", WaitPreference()),
        ("wait=3", WaitPreference(3.0)),
        ("Wait=3", WaitPreference(3.0)),
        ("respond-async, wait=3", WaitPreference(3.0, respond_async=True)),
        ("respond-async; wait=3", WaitPreference(3.0, respond_async=True)),
        ("wait=-3", WaitPreference()),
        ("wait=soon", WaitPreference()),
        ("wait", WaitPreference()),
        ("wait=99999999999", WaitPreference()),
        ("return=minimal", WaitPreference()),
    ],
)
def test_prefer_is_read_and_what_is_malformed_ignored(header, expected) -> None:
    assert parse_prefer(header) == expected


@pytest.mark.spec("CON-14")
def test_request_waits_by_default_up_to_cap_or_not_at_all() -> None:
    assert compute_wait_s(WaitPreference(), default_s=10, cap_s=60) == 10
    assert compute_wait_s(WaitPreference(3.0), default_s=10, cap_s=60) == 3
    assert compute_wait_s(WaitPreference(300.0), default_s=10, cap_s=60) == 60
    assert compute_wait_s(WaitPreference(300.0, respond_async=True), default_s=10, cap_s=60) == 0


def test_notice_ends_wait_at_once() -> None:
    pubsub, state = MemoryPubSub(), {"done": False}

    def finish() -> None:
        state["done"] = True
        pubsub.publish("x")

    threading.Timer(0.1, finish).start()
    began = time.monotonic()
    seen = waiting(pubsub).wait_until(lambda: state["done"], bool, **HOW)
    assert seen is True
    assert time.monotonic() - began < 5


def test_done_work_is_not_waited_for() -> None:
    looks = []
    seen = waiting().wait_until(lambda: looks.append(1) or "done", lambda _: True, **HOW)
    assert (seen, len(looks)) == ("done", 1)


def test_reads_once_at_start_and_once_at_end_without_notice() -> None:
    looks: list[int] = []
    waiting().wait_until(lambda: looks.append(1), lambda _: False, **HOW | {"within_s": 0.2})
    assert len(looks) == 2


def test_many_notices_cause_few_reads() -> None:
    pubsub, looks = MemoryPubSub(), []
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            pubsub.publish("x")

    thread = threading.Thread(target=publish)
    thread.start()
    waiting(pubsub).wait_until(lambda: looks.append(1), lambda _: False, **HOW | {"within_s": 1.0})
    stop.set()
    thread.join()
    assert len(looks) <= 8


def test_excess_waiters_are_answered_at_once() -> None:
    slots = FairSemaphore("waiting requests", 1)
    release = slots.acquire("another")
    began = time.monotonic()
    assert (
        LongPolling(MemoryPubSub(), slots).wait_until(lambda: "now", lambda _: False, **HOW)
        == "now"
    )
    with pytest.raises(Unavailable):
        LongPolling(MemoryPubSub(), slots).wait_until(list, bool, **HOW, polling=True)
    assert time.monotonic() - began < 5
    release()
    slots.acquire("another")


def test_ended_wait_releases_slot() -> None:
    slots = FairSemaphore("waiting requests", 1)

    def fail() -> bool:
        raise NotFoundError("gone")

    with pytest.raises(NotFoundError):
        LongPolling(MemoryPubSub(), slots).wait_until(fail, bool, **HOW)
    LongPolling(MemoryPubSub(), slots).wait_until(lambda: True, bool, **HOW)
    slots.acquire("another")


def test_limits_waiting_requests_per_process(settings, stores, job_queue, drain) -> None:
    app = create_app(replace(settings, api_waits=2), stores, job_queue=job_queue, verify=verify)
    assert Depositor(app.test_client(), drain).put_file(uuid_of(1)).status_code == 202

    def ask() -> int:
        path, prefer = f"/v1/files/{uuid_of(1)}?replica=aws", {"Prefer": "wait=50"}
        return app.test_client().get(path, headers=prefer).status_code

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask) for _ in range(3)]
        answered, others = wait(asked, timeout=25, return_when=FIRST_COMPLETED)
        assert [one.result() for one in answered] == [301]
        drain()
        assert [one.result() for one in others] == [302, 302]


def test_limits_waiting_requests_per_client(settings, stores, job_queue, drain) -> None:
    own = replace(settings, api_waits=4, client_waits=1)
    app = create_app(own, stores, job_queue=job_queue, verify=verify)
    assert Depositor(app.test_client(), drain).put_file(uuid_of(1)).status_code == 202

    def ask(place: str) -> int:
        path, prefer = f"/v1/files/{uuid_of(1)}?replica=aws", {"Prefer": "wait=50"}
        client = app.test_client()
        return client.get(path, headers=prefer, environ_base={"REMOTE_ADDR": place}).status_code

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, place) for place in ("192.0.2.1", "192.0.2.1", "192.0.2.2")]
        answered, others = wait(asked, timeout=25, return_when=FIRST_COMPLETED)
        assert [one.result() for one in answered] == [301]
        assert asked[2] in others
        drain()
        assert [one.result() for one in others] == [302, 302]
