"""Tasks in parallel, room on the disk, fragments: what needs no network."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_client import download as package
from store_client.download import fragments, parallel
from store_client.download.parallel import MOST_FAILURES, Task
from store_client.download.space import Space, free_bytes
from store_client.download.stopping import Stop
from store_client.errors import Damaged, NotFound, StoreError, Unreachable


def test_tasks_lead_to_tasks_and_all_are_done_once() -> None:
    done: list[int] = []

    def leaf(number: int) -> Task:
        return lambda: done.append(number)

    def branch(number: int) -> Task:
        return lambda: [leaf(10 * number + n) for n in range(10)]

    parallel.run([branch(n) for n in range(30)], 4, stop=Stop())
    assert sorted(done) == list(range(300))


def test_a_source_is_not_taken_apart_faster_than_it_is_worked_off() -> None:
    taken, done, most = 0, 0, 0

    def source() -> Iterator[Task]:
        nonlocal taken
        for _ in range(50):
            taken += 10
            yield lambda: [leaf] * 10

    def leaf() -> None:
        nonlocal done, most
        done += 1
        most = max(most, taken - done)

    parallel.run(source(), 3, stop=Stop())
    assert done == 500
    assert most <= 3 * 10 + 10


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_failure_of_one_alone_lets_the_others_go_on(jobs: int) -> None:
    done: list[int] = []

    def task(number: int) -> Task:
        def work() -> None:
            if number in (3, 5):
                raise Damaged(f"number {number}")
            done.append(number)

        return work

    with pytest.raises(Damaged, match="1 more failed"):
        parallel.run([task(n) for n in range(20)], jobs, stop=Stop())
    assert len(done) == 18


@pytest.mark.parametrize("first_to_fail", [0, 1])
def test_the_first_task_that_fails_decides_whichever_fails_first(first_to_fail: int) -> None:
    errors = [Damaged("first"), NotFound("second")]
    failed = [threading.Event() for _ in errors]

    def task(number: int) -> Task:
        def work() -> None:
            if number != first_to_fail:
                failed[first_to_fail].wait(10)
                time.sleep(0.01)
            failed[number].set()
            raise errors[number]

        return work

    with pytest.raises(Damaged, match="first"):
        parallel.run([lambda: [task(0), task(1)]], 2, stop=Stop())


def test_a_failure_of_all_ends_the_others() -> None:
    done: list[int] = []

    def fails() -> None:
        raise Unreachable("nobody there")

    with pytest.raises(Unreachable):
        parallel.run([fails, *[lambda: done.append(1)] * 1000], 1, stop=Stop())
    assert done == []


def test_too_many_failures_end_all() -> None:
    tried = 0

    def fails() -> None:
        nonlocal tried
        tried += 1
        raise NotFound("gone")

    with pytest.raises(NotFound, match=f"{MOST_FAILURES - 1} more"):
        parallel.run([fails] * 1000, 1, stop=Stop())
    assert tried == MOST_FAILURES


def test_what_waits_is_woken_by_the_end() -> None:
    def waits(stop: Stop) -> Task:
        return lambda: stop.pause(60)

    def fails() -> None:
        time.sleep(0.05)
        raise StoreError("disk full")

    stop = Stop()
    began = time.monotonic()
    with pytest.raises(StoreError, match="disk full"):
        parallel.run([waits(stop), waits(stop), fails], 3, stop=stop)
    assert time.monotonic() - began < 30


def test_threads_are_no_more_than_jobs() -> None:
    seen: set[int] = set()

    def task() -> None:
        seen.add(threading.get_ident())
        time.sleep(0.001)

    parallel.run([task] * 50, 3, stop=Stop())
    assert 1 <= len(seen) <= 3


def test_room_is_promised_once(tmp_path: Path) -> None:
    space = Space(tmp_path, free=lambda _: 1_000_000_000)
    space.claim({"a": 600_000_000})
    space.claim({"a": 600_000_000})
    with pytest.raises(StoreError, match=r"1\.2 GB are to come .* 1\.0 GB are free"):
        space.claim({"b": 600_000_000})
    space.came("a")
    space.claim({"b": 600_000_000})


def test_nothing_more_to_come_needs_no_room(tmp_path: Path) -> None:
    Space(tmp_path, free=lambda _: 0).claim({})


def test_room_is_that_of_the_nearest_folder_that_is_there(tmp_path: Path) -> None:
    found = free_bytes(tmp_path / "not" / "yet")
    assert found <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert found > 0


VALUE = {"a": [1, {"b/c": 2, "~": 3}], "": 4, "01": 5}


@pytest.mark.parametrize(
    ("pointer", "found"),
    [("", VALUE), ("/a/1/b~1c", 2), ("/a/1/~0", 3), ("/", 4), ("/a/0", 1), ("/01", 5)],
)
def test_a_pointer_leads_to_its_value(pointer: str, found: object) -> None:
    assert fragments.follow(VALUE, pointer) == found


@pytest.mark.parametrize(
    "pointer", ["a", "/a/2", "/a/01", "/a/-", "/b", "/a/0/x", "/a/" + "9" * 40]
)
def test_a_pointer_to_nothing_is_told(pointer: str, tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        fragments.follow(VALUE, pointer)
    (tmp_path / "x").write_text("{}")
    with pytest.raises(Damaged, match="nothing at"):
        fragments.resolve(tmp_path / "x", pointer, "x")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_fragment_of_what_is_no_json_is_told(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(text)
    with pytest.raises(Damaged, match="no JSON"):
        fragments.resolve(tmp_path / "x", "/a", "x")


def test_fragments_of_one_file_have_names_of_their_own() -> None:
    pointers = ["", "/a", "/A", "/a/b", "/a-b", "/a~1b", "/..", "/" + "x" * 500, "/" + "x" * 501]
    names = [fragments.name_of("f", pointer) for pointer in pointers]
    assert len({name.casefold() for name in names}) == len(pointers)
    assert all("/" not in name and len(name) < 200 for name in names)


def test_the_package_gives_what_a_library_wants() -> None:
    for name in package.__all__:
        assert callable(getattr(package, name))
    with pytest.raises(AttributeError):
        _ = package.nothing
