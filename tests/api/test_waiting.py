import threading
import time

import pytest

from api.waiting import Preference, Waiting, preference, seconds
from storage.notices import MemoryNotices


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
        notices.publish("task")

    threading.Timer(0.1, finish).start()
    began = time.monotonic()
    seen = Waiting(notices, 1).until(lambda: state["done"], bool, topics=["task"], within_s=20)
    assert seen is True
    assert time.monotonic() - began < 5


def test_what_is_done_already_is_not_waited_for() -> None:
    looks = []
    seen = Waiting(MemoryNotices(), 1).until(
        lambda: looks.append(1) or "done", lambda _: True, topics=["x"], within_s=20
    )
    assert (seen, len(looks)) == ("done", 1)


def test_without_a_notice_there_is_one_look_at_the_beginning_and_one_at_the_end() -> None:
    looks: list[int] = []
    Waiting(MemoryNotices(), 1).until(
        lambda: looks.append(1), lambda _: False, topics=["x"], within_s=0.2
    )
    assert len(looks) == 2


def test_many_notices_are_few_looks() -> None:
    notices, looks = MemoryNotices(), []
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            notices.publish("x")

    thread = threading.Thread(target=publish)
    thread.start()
    Waiting(notices, 1).until(lambda: looks.append(1), lambda _: False, topics=["x"], within_s=1.0)
    stop.set()
    thread.join()
    assert len(looks) <= 8


def test_beyond_so_many_waiters_the_answer_comes_at_once() -> None:
    waiting = Waiting(MemoryNotices(), 1)
    with waiting.slot() as first:
        assert first
        began = time.monotonic()
        assert waiting.until(lambda: "now", lambda _: False, topics=["x"], within_s=20) == "now"
        assert time.monotonic() - began < 5
    with waiting.slot() as again:
        assert again
