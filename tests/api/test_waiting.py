import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pytest

from api.app import create_app
from api.slots import Slots
from api.waiting import Preference, Waiting, preference, seconds
from storage.errors import NotFound, Unavailable
from storage.notices import MemoryNotices
from tests.api.builders import Depositor, uuid_of
from tests.api.conftest import verify

HOW: dict[str, Any] = {"client": "somebody", "topics": ["x"], "within_s": 20}


def waiting(notices: MemoryNotices | None = None) -> Waiting:
    return Waiting(notices or MemoryNotices(), Slots("waiting requests", 1))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Preference()),
        ("", Preference()),
        ("wait=3", Preference(3.0)),
        ("Wait=3", Preference(3.0)),
        ("respond-async, wait=3", Preference(3.0, respond_async=True)),
        ("respond-async; wait=3", Preference(3.0, respond_async=True)),
        ("wait=-3", Preference()),
        ("wait=soon", Preference()),
        ("wait", Preference()),
        ("wait=99999999999", Preference()),
        ("return=minimal", Preference()),
    ],
)
def test_prefer_is_read_and_what_is_malformed_ignored(header, expected) -> None:
    assert preference(header) == expected


def test_a_request_waits_the_default_what_it_asks_for_within_the_cap_or_not_at_all() -> None:
    assert seconds(Preference(), default_s=10, cap_s=60) == 10
    assert seconds(Preference(3.0), default_s=10, cap_s=60) == 3
    assert seconds(Preference(300.0), default_s=10, cap_s=60) == 60
    assert seconds(Preference(300.0, respond_async=True), default_s=10, cap_s=60) == 0


def test_a_notice_ends_the_wait_at_once() -> None:
    notices, state = MemoryNotices(), {"done": False}

    def finish() -> None:
        state["done"] = True
        notices.publish("x")

    threading.Timer(0.1, finish).start()
    began = time.monotonic()
    seen = waiting(notices).until(lambda: state["done"], bool, **HOW)
    assert seen is True
    assert time.monotonic() - began < 5


def test_what_is_done_already_is_not_waited_for() -> None:
    looks = []
    seen = waiting().until(lambda: looks.append(1) or "done", lambda _: True, **HOW)
    assert (seen, len(looks)) == ("done", 1)


def test_without_a_notice_there_is_one_look_at_the_beginning_and_one_at_the_end() -> None:
    looks: list[int] = []
    waiting().until(lambda: looks.append(1), lambda _: False, **HOW | {"within_s": 0.2})
    assert len(looks) == 2


def test_many_notices_are_few_looks() -> None:
    notices, looks = MemoryNotices(), []
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            notices.publish("x")

    thread = threading.Thread(target=publish)
    thread.start()
    waiting(notices).until(lambda: looks.append(1), lambda _: False, **HOW | {"within_s": 1.0})
    stop.set()
    thread.join()
    assert len(looks) <= 8


def test_beyond_so_many_waiters_the_answer_comes_at_once() -> None:
    slots = Slots("waiting requests", 1)
    release = slots.take("another")
    began = time.monotonic()
    assert Waiting(MemoryNotices(), slots).until(lambda: "now", lambda _: False, **HOW) == "now"
    with pytest.raises(Unavailable):
        Waiting(MemoryNotices(), slots).until(list, bool, **HOW, repeated=True)
    assert time.monotonic() - began < 5
    release()
    slots.take("another")


def test_who_waits_no_more_gives_the_room_back() -> None:
    slots = Slots("waiting requests", 1)

    def fail() -> bool:
        raise NotFound("gone")

    with pytest.raises(NotFound):
        Waiting(MemoryNotices(), slots).until(fail, bool, **HOW)
    Waiting(MemoryNotices(), slots).until(lambda: True, bool, **HOW)
    slots.take("another")


def test_so_many_requests_as_the_settings_say_may_wait(settings, stores, chains, drain) -> None:
    app = create_app(replace(settings, api_waits=2), stores, chains=chains, verify=verify)
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


def test_one_client_waits_on_some_of_them_and_leaves_room(settings, stores, chains, drain) -> None:
    own = replace(settings, api_waits=4, client_waits=1)
    app = create_app(own, stores, chains=chains, verify=verify)
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
