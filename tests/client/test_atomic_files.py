"""File locks: one process at a time, whatever a process that was killed left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from store_client.atomic_files import (
    LockTimeout,
    acquire_lock,
    lock_file,
    read_json,
    replace_atomically,
    write_atomically,
    write_json,
)
from store_client.errors import StoreError

COUNT = """
import sys, time
from pathlib import Path
from store_client.atomic_files import lock_file, read_json, write_json
path = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    with lock_file(path, wait_s=60):
        count = read_json(path).get("count", 0)
        time.sleep(0.001)
        write_json(path, {"count": count + 1})
"""
HOLD = """
import sys
from pathlib import Path
from store_client.atomic_files import lock_file
with lock_file(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def start(code: str, *given: object) -> "subprocess.Popen[str]":
    """A process that has said its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    process.stdout.readline()
    return process


def lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


@pytest.mark.spec("CLI-138")
def test_processes_take_turns_on_stale_lock(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    lock_of(path).touch()
    os.utime(lock_of(path), (1, 1))
    processes = [start(COUNT, path, 20) for _ in range(4)]
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert read_json(path) == {"count": 80}


@pytest.mark.spec("CLI-138")
def test_the_lock_of_a_killed_process_is_free_at_once_and_for_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    process = start(HOLD, path)
    with pytest.raises(StoreError, match="in use by another process"), lock_file(path, wait_s=0.05):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    with lock_file(path, wait_s=0), pytest.raises(LockTimeout):
        acquire_lock(lock_of(path))


@pytest.mark.spec("CLI-138")
def test_held_lock_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    process = start(HOLD, path)
    os.utime(lock_of(path), (1, 1))
    with pytest.raises(StoreError, match="in use by another process"), lock_file(path, wait_s=0.05):
        pass
    process.communicate("\n", timeout=60)
    assert process.returncode == 0


@pytest.mark.spec("CLI-138")
def test_threads_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"

    def count() -> None:
        for _ in range(10):
            with lock_file(path, wait_s=30):
                write_json(path, {"count": read_json(path).get("count", 0) + 1})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.loads(path.read_text()) == {"count": 40}


@pytest.mark.spec("CLI-138")
def test_lock_file_is_private(tmp_path: Path) -> None:
    acquire_lock(tmp_path / "deep" / "one.lock").release()
    assert (tmp_path / "deep" / "one.lock").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700


@pytest.mark.spec("CLI-138")
def test_unusable_lock_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder.lock").mkdir()
    with pytest.raises(OSError, match="folder"):
        acquire_lock(tmp_path / "folder.lock", wait_s=60)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"), lock_file(tmp_path / "file" / "x"):
        pass


@pytest.mark.spec("CLI-137")
def test_replaces_file_with_longest_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    for data in (b"one", b"two"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.spec("CLI-137")
def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        write_atomically(tmp_path / "there", b"x")

    def half(temporary: Path) -> None:
        temporary.write_bytes(b"ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_atomically(tmp_path / "new", half)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
