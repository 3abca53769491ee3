"""Metrics of processes that share a folder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from config.settings import SettingValueError
from ops.ports import find_free_port
from ops.procfile import ROOT
from storage import metrics
from storage.metrics import FOLDER_VARIABLE, render_metrics
from storage.model import REPLICAS
from tests.waiting import until

PROCESS = """
import sys
from pathlib import Path
from storage import metrics
folder, port = sys.argv[1:]
metrics.PORT_POLL_S = 0.1
metrics.share_metrics(Path(folder), "worker")
metrics.serve_metrics("127.0.0.1", int(port))
metrics.CLAIMS_LOST.labels("sync").inc()
print("counted", flush=True)
sys.stdin.read()
"""


def write_counter(path: Path, value: float) -> None:
    key = mmap_key("store_claims_lost", "store_claims_lost_total", ["step"], ["sync"], "Lost")
    counted = MmapedDict(str(path))
    counted.write_value(key, value, 0.0)
    counted.close()


def find_ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "killed"])
def test_file_without_a_header_counts_nothing(tmp_path: Path, is_running: bool) -> None:
    """A process creates a file, and then writes the header; a scrape may come between."""
    write_counter(tmp_path / f"counter_{os.getppid()}.db", 3.0)
    write_counter(tmp_path / "counter_ended.db", 4.0)
    (tmp_path / f"counter_{os.getpid() if is_running else find_ended_process()}.db").touch()
    for _ in range(2):
        assert 'store_claims_lost_total{step="sync"} 7.0' in render_metrics(tmp_path).decode()


def test_bytes_of_damage_begin_at_0(tmp_path: Path) -> None:
    """Prometheus sees an increase only of what it has seen before."""
    share = "import sys; from pathlib import Path; from storage.metrics import share_metrics;"
    share += "share_metrics(Path(sys.argv[1]), 'worker')"
    environ = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    subprocess.run([sys.executable, "-c", share, tmp_path], env=environ, check=True, timeout=60)
    page = render_metrics(tmp_path).decode()
    for replica in REPLICAS:
        assert f'store_damaged_bytes_total{{replica="{replica}"}} 0.0' in page
        assert f'store_repaired_bytes_total{{replica="{replica}"}} 0.0' in page


SAMPLED = """
import sys, time
from pathlib import Path
from storage import metrics

folder = Path(sys.argv[1])
metrics.share_metrics(folder, "api")
from storage.catalog import Catalog

catalog = Catalog(f"sqlite:///{folder / 'catalog.sqlite'}", connections=3, overflow=1)


def wait_until_shown(*lines):
    deadline = time.monotonic() + 60
    while not all(line in metrics.render_metrics(folder).decode() for line in lines):
        assert time.monotonic() < deadline, metrics.render_metrics(folder).decode()
        time.sleep(0.01)


with catalog.read():
    wait_until_shown(
        'store_catalog_pool_used_ratio{process="api"} 0.25',
        'store_catalog_connections{state="in_use"} 1.0',
    )
wait_until_shown(
    'store_catalog_pool_used_ratio{process="api"} 0.0',
    'store_catalog_connections{state="in_use"} 0.0',
    'store_catalog_connections{state="idle"} 1.0',
)
catalog.close()
"""


def test_connections_in_use_are_shown_to_other_processes(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    command = [sys.executable, "-c", SAMPLED, tmp_path]
    subprocess.run(command, env=environ, cwd=ROOT, check=True, timeout=120)


@contextmanager
def counting(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has counted once."""
    command = [sys.executable, "-c", PROCESS, str(folder), str(port)]
    environ = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    with subprocess.Popen(
        command, env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "counted\n"
            yield process
        finally:
            process.kill()


def is_scraped(port: int, line: str) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and line in answer.text.splitlines()


@pytest.mark.spec("OPS-02")
def test_process_takes_the_port_of_an_ended_one_of_its_home(tmp_path: Path) -> None:
    port, both = find_free_port(), 'store_claims_lost_total{step="sync"} 2.0'
    with counting(tmp_path, port) as first, counting(tmp_path, port):
        until(lambda: is_scraped(port, both))
        first.kill()
        first.wait()
        until(lambda: is_scraped(port, both))


def test_rejects_address_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_shared_folder", tmp_path)
    with pytest.raises(SettingValueError, match=r"STORE_METRICS_PORT: cannot listen at 192\.0\.2"):
        metrics.serve_metrics("192.0.2.1", find_free_port())
