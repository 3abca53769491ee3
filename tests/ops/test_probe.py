"""`probe`: heartbeats of real workers and of the scheduler."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dramatiq
import pytest
from click.testing import CliRunner

from config import Settings
from ops.__main__ import cli
from ops.probe import PROCESS_NAMES
from ops.procfile import ROOT
from storage.heartbeats import HEARTBEAT_S, HeartbeatFile, read_heartbeats
from storage.stores import Stores
from tests import redis_server
from tests.waiting import PATIENCE_S, until
from workers import heartbeats
from workers.__main__ import CLOCK, QUEUE_NAMES
from workers.broker import MemoryBroker
from workers.heartbeats import JobWatch, beat_until, name_process
from workers.messages import MessageSender
from workers.scheduler import STUCK_S, Scheduler

pytestmark = pytest.mark.spec("OPS-47")

SECRET = "a secret for tests only"
HEAVY = ("sqlalchemy", "dramatiq", "flask", "rich", "prometheus_client", "msgspec", "marshmallow")


def run_probe(home: Path, *words: str) -> tuple[int, str]:
    """Run the command; return its exit status and its line."""
    done = CliRunner().invoke(cli, ["probe", *words], env={"STORE_HOME": str(home)})
    assert done.output.count("\n") == 1, done.output
    return done.exit_code, done.output


@contextmanager
def running(
    home: Path, module: str, *queues: str, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    environ = {"STORE_HOME": str(home), "STORE_SECRET_KEY": SECRET, **settings}
    command = [sys.executable, "-m", module, *queues]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_process_that_is_stopped_or_killed_fails_its_probe(
    tmp_path: Path, put_catalog: Callable[[Path], None]
) -> None:
    several, embedded = tmp_path / "several", tmp_path / "embedded"
    for home in (several, embedded):
        home.mkdir()
        put_catalog(home)
    late = ("--max-age", str(HEARTBEAT_S + 3))
    with ExitStack() as stack:
        port = stack.enter_context(redis_server.fake())
        url = f"redis://127.0.0.1:{port}/0"
        processes = {
            (home, queues): stack.enter_context(running(home, module, *queues, **settings))
            for home, module, queues, settings in (
                (embedded, "workers.embedded", (), {}),
                (several, "workers", ("clock",), {"STORE_REDIS_URL": url}),
                (several, "workers", ("verify", "chores"), {"STORE_REDIS_URL": url}),
            )
        }

        def exit_codes() -> set[int]:
            return {run_probe(home, *queues, *late)[0] for home, queues in processes}

        until(lambda: exit_codes() == {0})
        for process in processes.values():
            process.send_signal(signal.SIGSTOP)
        until(lambda: exit_codes() == {1})
        for (home, queues), process in processes.items():
            code, line = run_probe(home, *queues, *late)
            assert (code, f"process {process.pid}" in line) == (1, True)
            assert line.startswith(f"{name_process(queues)}: stuck, last heartbeat ")
        for process in processes.values():
            process.send_signal(signal.SIGCONT)
        until(lambda: exit_codes() == {0})
        for process in processes.values():
            process.kill()
            process.wait()
        for home, queues in processes:
            expected = f"missing, no such process runs with the home {home}"
            assert run_probe(home, *queues) == (1, f"{name_process(queues)}: {expected}\n")


def test_worker_that_ends_leaves_no_heartbeat(tmp_path: Path) -> None:
    stop = threading.Event()
    folder = Settings(home=tmp_path).heartbeats_folder
    beating = threading.Thread(target=beat_until, args=(stop, folder, "sync", []))
    beating.start()
    until(lambda: run_probe(tmp_path, "sync")[0] == 0)
    stop.set()
    beating.join()
    assert [*folder.iterdir()] == []


def test_worker_tells_the_watchdog_of_systemd(
    tmp_path: Path, put_catalog: Callable[[Path], None]
) -> None:
    put_catalog(tmp_path)
    with (
        redis_server.fake() as port,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as watchdog,
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
    ):
        # The path of a socket has a hundred characters at most.
        address = f"{folder}/notify"
        watchdog.bind(address)
        watchdog.settimeout(PATIENCE_S)
        engines = {"STORE_REDIS_URL": f"redis://127.0.0.1:{port}/0", "NOTIFY_SOCKET": address}
        with running(tmp_path, "workers", "sync", **engines):
            assert watchdog.recv(100) == b"READY=1\nWATCHDOG=1"


def test_disk_that_refuses_heartbeats_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.01)
    monkeypatch.chdir(tmp_path)
    folder = Settings(home=tmp_path).heartbeats_folder
    folder.write_text("no folder can be made here")
    stop = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as watchdog:
        watchdog.bind("notify")
        watchdog.settimeout(PATIENCE_S)
        beating = threading.Thread(target=beat_until, args=(stop, folder, "sync", [], "notify"))
        beating.start()
        try:
            for _ in range(3):
                assert watchdog.recv(100) == b"READY=1\nWATCHDOG=1"
            refusal = f"{folder} takes no heartbeats (see STORE_HOME): {os.strerror(errno.ENOTDIR)}"
            assert run_probe(tmp_path, "sync") == (1, f"sync: unwritable, {refusal}\n")
            folder.unlink()
            until(lambda: watchdog.recv(100) and run_probe(tmp_path, "sync")[0] == 0)
            with monkeypatch.context() as broken:
                broken.setattr(os, "pwrite", refuse_write)
                for _ in range(100):
                    assert watchdog.recv(100) == b"READY=1\nWATCHDOG=1"
            assert beating.is_alive()
        finally:
            stop.set()
            beating.join()
    found = [record.getMessage() for record in caplog.records]
    assert found == [
        f"heartbeat: cannot be written to {folder} (see STORE_HOME): {os.strerror(number)}"
        for number in (errno.EEXIST, errno.ENOSPC)
    ]


def test_probe_tells_a_folder_without_room_from_a_missing_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_file(**_options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as broken:
        broken.setattr(tempfile, "TemporaryFile", refuse_file)
        code, line = run_probe(tmp_path / "home", "sync", "--json")
    assert (code, json.loads(line)["status"]) == (1, "unwritable")
    assert os.strerror(errno.EROFS) in json.loads(line)["reason"]
    code, line = run_probe(tmp_path / "home", "sync", "--json")
    assert (code, json.loads(line)["status"]) == (1, "missing")
    assert [*tmp_path.iterdir()] == []


def refuse_write(_handle: int, _data: bytes, _offset: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_only_files_without_a_lock_are_removed(tmp_path: Path) -> None:
    folder = Settings(home=tmp_path).heartbeats_folder
    other = HeartbeatFile(folder, "sync")
    # A process of another container has an id that no process here has.
    (path,) = folder.iterdir()
    elsewhere = path.rename(folder / f"sync.{2**31 - 1}")
    ended = folder / f"sync.{os.getpid()}"
    ended.write_text(elsewhere.read_text())
    own = HeartbeatFile(folder, "index")
    assert {file.name for file in folder.iterdir()} == {elsewhere.name, f"index.{os.getpid()}"}
    assert len(read_heartbeats(folder, "sync")) == 1
    with pytest.raises(BlockingIOError):
        HeartbeatFile(folder, "index")
    own.close()
    other.close()


def test_probe_knows_the_names_of_workers(tmp_path: Path) -> None:
    assert {*PROCESS_NAMES} == {*QUEUE_NAMES, CLOCK}
    done = CliRunner().invoke(cli, ["probe", "snyc"], env={"STORE_HOME": str(tmp_path)})
    assert done.exit_code == 2
    assert "'snyc' is not one of 'verify'" in done.output
    file = HeartbeatFile(Settings(home=tmp_path).heartbeats_folder, name_process(["sync"] * 2))
    assert run_probe(tmp_path, "sync", "sync")[0] == 0
    file.close()


def test_probe_is_fast_to_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ops", "probe", "sync", "--json"],
        cwd=ROOT,
        env={"STORE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "missing"
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "storage.heartbeats" in imported
    assert {name for name in imported if name.partition(".")[0] in HEAVY} == set()


def test_oldest_heartbeat_of_a_name_counts(tmp_path: Path) -> None:
    folder = Settings(home=tmp_path).heartbeats_folder
    own = HeartbeatFile(folder, "sync")
    (found,) = read_heartbeats(folder, "sync")
    own.beat()
    assert run_probe(tmp_path, "sync")[0] == 0
    until(lambda: run_probe(tmp_path, "sync", "--max-age", "0.001")[0] == 1)
    assert read_heartbeats(folder, "sync+verify") == []
    own.close()
    assert found.age_s >= 0
    assert read_heartbeats(folder, "sync") == []


def test_job_beyond_its_time_limit_is_stuck() -> None:
    begun, end = threading.Event(), threading.Event()
    watch = JobWatch(overrun_s=0.0)
    broker = MemoryBroker([watch])

    @dramatiq.actor(queue_name="verify", broker=broker, actor_name="endless")
    def wait_for_end() -> None:
        begun.set()
        assert end.wait(PATIENCE_S)

    wait_for_end.options["time_limit"] = 60_000
    worker = dramatiq.Worker(broker, queues={"verify"}, worker_timeout=10, worker_threads=1)
    worker.start()
    try:
        wait_for_end.send()
        assert begun.wait(PATIENCE_S)
        assert watch.find_stuck([worker]) is None
        end.set()
        until(lambda: not worker.work_queue.unfinished_tasks)
        begun.clear()
        end.clear()
        wait_for_end.options["time_limit"] = 1
        wait_for_end.send()
        assert begun.wait(PATIENCE_S)
        until(lambda: watch.find_stuck([worker]) == "a job of endless ignores its time limit")
        end.set()
        until(lambda: watch.find_stuck([worker]) is None)
    finally:
        end.set()
        worker.stop(timeout=5_000)
    until(lambda: watch.find_stuck([worker]) == "a thread of jobs has ended")


def test_clock_is_stuck_without_turns(settings: Settings, stores: Stores) -> None:
    now = 100.0
    clock = Scheduler(settings, stores, MessageSender(MemoryBroker()), monotonic=lambda: now)
    assert clock.find_stuck() is None
    now += STUCK_S + 1
    assert "lease" in (clock.find_stuck() or "")
    clock.renew_leadership()
    assert "sequencer" in (clock.find_stuck() or "")
