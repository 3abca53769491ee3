"""Tasks in parallel, room on the disk, fragments: what needs no network."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_client import downloads as package
from store_client.downloads import bundles
from store_client.downloads.job import DiskSpace, free_bytes
from store_client.errors import Damaged, NotFound, StoreError, Unreachable
from store_client.transfer import engine
from store_client.transfer.engine import MAX_FAILURES, StopSignal, Task


@pytest.mark.spec("DWN-10")
def test_runs_tasks_of_tasks_once() -> None:
    done: list[int] = []

    def leaf(number: int) -> Task:
        return lambda: done.append(number)

    def branch(number: int) -> Task:
        return lambda: [leaf(10 * number + n) for n in range(10)]

    engine.run_tasks([branch(n) for n in range(30)], 4, stop=StopSignal())
    assert sorted(done) == list(range(300))


@pytest.mark.spec("DWN-10")
def test_expands_source_only_as_fast_as_needed() -> None:
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

    engine.run_tasks(source(), 3, stop=StopSignal())
    assert done == 500
    assert most <= 3 * 10 + 10


@pytest.mark.spec("DWN-10")
@pytest.mark.parametrize("jobs", [1, 4])
def test_failure_of_one_task_keeps_others(jobs: int) -> None:
    done: list[int] = []

    def task(number: int) -> Task:
        def work() -> None:
            if number in (3, 5):
                raise Damaged(f"number {number}")
            done.append(number)

        return work

    with pytest.raises(Damaged, match="1 more failed"):
        engine.run_tasks([task(n) for n in range(20)], jobs, stop=StopSignal())
    assert len(done) == 18


@pytest.mark.spec("CLI-141")
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
        engine.run_tasks([lambda: [task(0), task(1)]], 2, stop=StopSignal())


@pytest.mark.spec("DWN-10")
def test_fatal_failure_ends_others() -> None:
    done: list[int] = []

    def fails() -> None:
        raise Unreachable("nobody there")

    with pytest.raises(Unreachable):
        engine.run_tasks([fails, *[lambda: done.append(1)] * 1000], 1, stop=StopSignal())
    assert done == []


@pytest.mark.spec("DWN-10")
def test_too_many_failures_end_all() -> None:
    tried = 0

    def fails() -> None:
        nonlocal tried
        tried += 1
        raise NotFound("gone")

    with pytest.raises(NotFound, match=f"{MAX_FAILURES - 1} more"):
        engine.run_tasks([fails] * 1000, 1, stop=StopSignal())
    assert tried == MAX_FAILURES


@pytest.mark.spec("DWN-10")
def test_end_wakes_waiting_tasks() -> None:
    def waits(stop: StopSignal) -> Task:
        return lambda: stop.pause(60)

    def fails() -> None:
        time.sleep(0.05)
        raise StoreError("disk full")

    stop = StopSignal()
    began = time.monotonic()
    with pytest.raises(StoreError, match="disk full"):
        engine.run_tasks([waits(stop), waits(stop), fails], 3, stop=stop)
    assert time.monotonic() - began < 30


@pytest.mark.spec("DWN-10")
def test_starts_no_more_threads_than_tasks() -> None:
    seen: set[int] = set()

    def task() -> None:
        seen.add(threading.get_ident())
        time.sleep(0.001)

    engine.run_tasks([task] * 50, 3, stop=StopSignal())
    assert 1 <= len(seen) <= 3


@pytest.mark.spec("DWN-12")
def test_room_is_promised_once(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path, free=lambda _: 1_000_000_000)
    space.reserve({"a": 600_000_000})
    space.reserve({"a": 600_000_000})
    with pytest.raises(StoreError, match=r"1\.2 GB are needed .* 1\.0 GB are free"):
        space.reserve({"b": 600_000_000})
    space.release("a")
    space.reserve({"b": 600_000_000})


@pytest.mark.spec("DWN-12")
def test_finished_download_needs_no_space(tmp_path: Path) -> None:
    DiskSpace(tmp_path, free=lambda _: 0).reserve({})


@pytest.mark.spec("DWN-12")
def test_room_is_that_of_the_nearest_folder_that_is_there(tmp_path: Path) -> None:
    found = free_bytes(tmp_path / "not" / "yet")
    assert found <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert found > 0


VALUE = {"a": [1, {"b/c": 2, "~": 3}], "": 4, "01": 5}


@pytest.mark.spec("DWN-17")
@pytest.mark.parametrize(
    ("pointer", "found"),
    [("", VALUE), ("/a/1/b~1c", 2), ("/a/1/~0", 3), ("/", 4), ("/a/0", 1), ("/01", 5)],
)
def test_resolves_json_pointer(pointer: str, found: object) -> None:
    assert bundles.resolve_pointer(VALUE, pointer) == found


@pytest.mark.spec("DWN-17")
@pytest.mark.parametrize(
    "pointer", ["a", "/a/2", "/a/01", "/a/-", "/b", "/a/0/x", "/a/" + "9" * 40]
)
def test_reports_unresolvable_pointer(pointer: str, tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        bundles.resolve_pointer(VALUE, pointer)
    (tmp_path / "x").write_text("{}")
    with pytest.raises(Damaged, match="nothing at"):
        bundles.extract_fragment(tmp_path / "x", pointer, "x")


@pytest.mark.spec("DWN-17")
@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_reports_fragment_of_invalid_json(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(text)
    with pytest.raises(Damaged, match="not JSON"):
        bundles.extract_fragment(tmp_path / "x", "/a", "x")


@pytest.mark.spec("DWN-17")
def test_fragments_of_one_file_have_names_of_their_own() -> None:
    pointers = ["", "/a", "/A", "/a/b", "/a-b", "/a~1b", "/..", "/" + "x" * 500, "/" + "x" * 501]
    names = [bundles.fragment_name("f", pointer) for pointer in pointers]
    assert len({name.casefold() for name in names}) == len(pointers)
    assert all("/" not in name and len(name) < 200 for name in names)


@pytest.mark.spec("DWN-19")
def test_package_exports_public_names() -> None:
    for name in package.__all__:
        assert callable(getattr(package, name))
    with pytest.raises(AttributeError):
        _ = package.nothing
