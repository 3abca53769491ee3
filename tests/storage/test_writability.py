"""Write probes detect an unwritable store cheaply."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from config import Settings
from storage.connect import connect
from storage.errors import Unavailable
from storage.pubsub import MemoryPubSub
from storage.writability import FRESH_S, PROBE_TIMEOUT_S, WriteProbes, mount_point, write_file

pytestmark = pytest.mark.spec("OPS-28")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failing(error: Exception) -> Callable[[], None]:
    def probe() -> None:
        raise error

    return probe


def test_probe_leaves_writable_place_unchanged(tmp_path: Path) -> None:
    write_file(tmp_path)
    assert WriteProbes({"home": lambda: write_file(tmp_path)}).failures() == {}
    assert os.listdir(tmp_path) == []


def test_names_the_place_and_the_disk(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    probes = WriteProbes({"home": lambda: write_file(gone), "search": lambda: write_file(tmp_path)})
    disk = f"disk {mount_point(tmp_path)}: No such file or directory"
    assert probes.failures() == {"home": disk}


def test_check_sees_a_failure_that_is_younger_than_the_last_result(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    probes = WriteProbes({"home": lambda: write_file(folder)}, Clock())
    assert probes.failures() == {}
    probes.check()
    folder.rmdir()
    with pytest.raises(Unavailable, match="home: disk"):
        probes.check()


def test_opens_without_space_for_temporary_files(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/proc/nowhere"])
    stores = connect(settings, notices=MemoryPubSub())
    assert "No usable temporary directory" in stores.write_probes.failures()["scratch"]
    stores.catalog.close()


_LIMITED = """
import resource, sys
from pathlib import Path
from storage import writability
from storage.writability import WriteProbes, write_file
writability.FRESH_S = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
probes = WriteProbes({"home": lambda: write_file(Path(sys.argv[1]))})
print(probes.failures())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(probes.failures())
"""


def test_detects_full_disk_and_recovery(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    first, second = ended.stdout.splitlines()
    assert "File too large" in first, ended.stderr
    assert second == "{}"


def test_result_is_cached_for_a_while() -> None:
    clock, errors = Clock(), [Unavailable("full"), None]

    def probe() -> None:
        if (error := errors.pop(0)) is not None:
            raise error

    probes = WriteProbes({"catalog": probe}, clock)
    assert probes.failures() == probes.failures() == {"catalog": "full"}
    assert len(errors) == 1
    clock.now += FRESH_S
    assert probes.failures() == {}


def test_concurrent_checks_write_once() -> None:
    asked, go = [], threading.Event()

    def probe() -> None:
        asked.append(1)
        go.wait(5)

    probes = WriteProbes({"home": probe})
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(probes.failures) for _ in range(20)]
        go.set()
        assert [one.result() for one in waiting] == [{}] * 20
    assert len(asked) == 1


def test_hanging_write_is_a_failure_that_blocks_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.writability.FIRST_WAIT_S", 0.05)
    clock, go = Clock(), threading.Event()
    probes = WriteProbes({"home": lambda: None, "areas": lambda: go.wait(30) and None}, clock)
    probes.failures()
    clock.now += PROBE_TIMEOUT_S
    assert probes.failures() == {"areas": "a write hangs"}
    go.set()


def test_a_probe_that_breaks_is_a_failure_too() -> None:
    found = WriteProbes({"home": failing(ZeroDivisionError())}).failures()
    assert found == {"home": "ZeroDivisionError; see the log"}
