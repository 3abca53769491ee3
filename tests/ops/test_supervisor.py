"""The supervisor with toy processes: real forks and signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ops import home, ports
from ops.procfile import ROOT
from ops.supervisor import FIRST_DELAY_S, STEADY_AFTER_S, compute_restart_delay_s
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spec("OPS-04")

TOYS = "api: python -m tests.ops.toy_service 0\nauth: python -m tests.ops.toy_service 1\n"
PATH = os.environ["PATH"]
Start = Callable[..., "ToyStore"]


class ToyStore:
    def __init__(
        self, folder: Path, port: int, procfile: str, path: str = PATH, **more: str
    ) -> None:
        self.home, self.port = folder, port
        environ = {k: v for k, v in os.environ.items() if not k.startswith("STORE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ops.toy_store", str(folder), str(port), procfile],
            cwd=ROOT,
            env={**environ, "PATH": path, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read(self, name: str) -> Any:
        return json.loads((self.home / name).read_text())

    def pids(self) -> dict[str, int]:
        facts = self.read("processes.json")["processes"]
        return {name: fact["pid"] for name, fact in facts.items()}

    def leads(self) -> bool:
        """Whether what stands in the home is of this run."""
        found = home.read_json(self.home, home.READY)
        return found is not None and found["pid"] == self.process.pid

    def ready(self) -> "ToyStore":
        until(lambda: (self.home / "ready.json").exists())
        return self

    def end(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return out


def alive(pid: int) -> bool:
    """Running, and not merely waiting to be collected by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ToyStore] = []

    def begin(
        procfile: str = TOYS, port: int | None = None, path: str = PATH, **more: str
    ) -> ToyStore:
        store = ToyStore(
            tmp_path / "home", port or ports.find_free_port_pair(), procfile, path, **more
        )
        started.append(store)
        return store

    yield begin
    for store in started:
        if store.process.poll() is None:
            store.process.kill()
        store.process.communicate(timeout=PATIENCE_S)


def test_a_store_is_ready_stops_on_a_signal_and_leaves_nothing_running(start: Start) -> None:
    store = start().ready()
    pids = store.pids()
    assert set(pids) == {"api", "auth"}
    assert store.read("ready.json") == {
        "api": f"http://127.0.0.1:{store.port}",
        "auth": f"http://127.0.0.1:{store.port + 1}",
        "pid": store.process.pid,
    }
    out = store.end(signal.SIGINT)
    assert store.process.returncode == 0
    assert "api | serving ['0']" in out
    assert not any(alive(pid) for pid in pids.values())
    assert not (store.home / "ready.json").exists()


def test_restarts_dead_process_within_seconds(start: Start) -> None:
    store = start().ready()
    before = store.pids()
    os.kill(before["api"], signal.SIGKILL)
    until(lambda: store.pids().get("api", before["api"]) != before["api"])
    assert store.pids()["auth"] == before["auth"]
    said = re.findall(r"api ended \((\w+)\), again in ([0-9.]+) s", store.end())
    # It was steady already when it took the machine long to have them all ready.
    assert said in ([("SIGKILL", "0.1")], [("SIGKILL", "0.2")])


def test_restarts_dead_process_when_home_is_not_writable(start: Start) -> None:
    store = start().ready()
    api = store.pids()["api"]
    # As a full disk: the file cannot be replaced.
    (store.home / "processes.json").unlink()
    (store.home / "processes.json").mkdir()
    os.kill(api, signal.SIGKILL)
    until(lambda: not alive(api))
    until(lambda: ports.is_answering("127.0.0.1", store.port, "/health"))
    assert "api ended (SIGKILL)" in store.end()
    assert store.process.returncode == 0


def test_restart_delay_grows_until_process_is_stable() -> None:
    delays_s = [FIRST_DELAY_S]
    for _ in range(8):
        delays_s.append(compute_restart_delay_s(delays_s[-1], lived_s=STEADY_AFTER_S - 0.1))
    assert delays_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10])
    assert compute_restart_delay_s(10.0, lived_s=STEADY_AFTER_S) == FIRST_DELAY_S


def test_an_engine_that_is_away_at_the_start_is_waited_for(start: Start, tmp_path: Path) -> None:
    back = tmp_path / "back"
    prepare = f"import pathlib, sys; sys.exit(0 if pathlib.Path({str(back)!r}).exists() else 75)"
    store = start(TOY_PREPARE=prepare)
    until(lambda: (store.home / "processes.json").exists())
    time.sleep(0.5)
    assert set(store.pids()) <= {"prepare"}
    back.touch()
    store.ready()


def test_a_start_that_waiting_does_not_help_fails(start: Start) -> None:
    store = start(TOY_PREPARE="import sys; print('first'); sys.exit('Error: The cause.')")
    out, _ = store.process.communicate(timeout=PATIENCE_S)
    assert store.process.returncode == 1
    assert out.endswith("The cause.\n")


def test_process_that_cannot_start_ends_store_with_reason(start: Start) -> None:
    wrong = "wrong: python -c \"import sys; print('Error: No secret.'); sys.exit(78)\"\n"
    store = start(TOYS + wrong)
    out, _ = store.process.communicate(timeout=PATIENCE_S)
    assert store.process.returncode == 1
    assert out.endswith("No secret.\n")
    assert ports.is_free("127.0.0.1", store.port)


def test_no_process_outlives_a_killed_supervisor(start: Start) -> None:
    store = start().ready()
    pids = store.pids()
    store.process.kill()
    store.process.wait(PATIENCE_S)
    until(lambda: not any(alive(pid) for pid in pids.values()))
    until(start(port=store.port).leads)


def test_ignores_files_of_killed_store(start: Start) -> None:
    first = start().ready()
    pids = first.pids()
    first.process.kill()
    first.process.wait(PATIENCE_S)
    until(lambda: not any(alive(pid) for pid in pids.values()))
    (first.home / "metrics").mkdir()
    (first.home / "metrics" / "counter_1.db").touch()
    second = start("api: python -m tests.ops.toy_service 0\n", port=first.port)
    until(lambda: not ports.is_free("127.0.0.1", second.port))
    assert not (second.home / "ready.json").exists()
    assert not (second.home / "metrics").exists()


def test_ends_children_of_killed_process(start: Start) -> None:
    store = start(TOYS + "busy: python -m tests.ops.toy_service 2 with-child\n").ready()
    leader = store.pids()["busy"]
    until(lambda: len(group_of(leader)) == 2)
    group = group_of(leader)
    os.kill(leader, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in group))


def group_of(leader: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader:
            found.append(int(stat.parent.name))
    return found


def test_a_second_signal_kills_what_does_not_end(start: Start) -> None:
    deaf_one = "deaf: python -m tests.ops.toy_service 2 stubborn\n"
    store = start(TOYS + deaf_one, TOY_GRACE_S="1e6").ready()
    until(lambda: not ports.is_free("127.0.0.1", store.port + 2))
    deaf = store.pids()["deaf"]
    store.process.send_signal(signal.SIGTERM)
    until(lambda: ports.is_free("127.0.0.1", store.port))
    assert alive(deaf)
    store.end()
    assert not alive(deaf)


def test_a_second_store_on_one_home_is_refused(start: Start) -> None:
    first = start().ready()
    second = start()
    out, _ = second.process.communicate(timeout=PATIENCE_S)
    assert second.process.returncode == 1
    assert f"already (process {first.process.pid})" in out
    assert alive(first.process.pid)


def test_names_taken_port_with_advice(start: Start, tmp_path: Path) -> None:
    first = start().ready()
    second = ToyStore(tmp_path / "other", first.port, TOYS)
    out, _ = second.process.communicate(timeout=PATIENCE_S)
    assert second.process.returncode == 1
    assert f"port {first.port} of 127.0.0.1" in out
    assert "STORE_PORT" in out
