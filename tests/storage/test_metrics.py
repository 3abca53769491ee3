"""Metrics of processes that share a folder."""

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from config.settings import SettingValueError
from ops.ports import find_free_port
from ops.procfile import ROOT
from storage import metrics
from storage.catalog import Catalog
from storage.metrics import FOLDER_VARIABLE, render_metrics
from storage.model import REPLICAS
from tests.waiting import until

PROCESS = """
import logging
import sys
from pathlib import Path
from storage import metrics
folder, port = sys.argv[1:]
metrics.PORT_POLL_S = 0.1
metrics._MetricsHandler.timeout = 1
logging.basicConfig(level=logging.INFO)
metrics.share_metrics(Path(folder), "worker")
metrics.serve_metrics("127.0.0.1", int(port))
metrics.CLAIMS_LOST.labels("sync").inc()
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
    command = [sys.executable, "-c", share, tmp_path]
    subprocess.run(command, env=environ, cwd=ROOT, check=True, timeout=120)
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
    """Run a process that counts once; its log is beside the folder."""
    command = [sys.executable, "-c", PROCESS, str(folder), str(port)]
    environ = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    with (
        find_log(folder).open("a") as log,
        subprocess.Popen(
            command, env=environ, cwd=ROOT, stdin=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def find_log(folder: Path) -> Path:
    return folder.with_suffix(".log")


def is_logged(folder: Path, text: str) -> bool:
    return text in find_log(folder).read_text()


def is_scraped(port: int, line: str) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30)
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and line in answer.text.splitlines()


@pytest.mark.spec("OPS-02")
def test_process_takes_the_port_of_an_ended_one_of_its_home(tmp_path: Path) -> None:
    folder, port = tmp_path / "metrics", find_free_port()
    one, both = (f'store_claims_lost_total{{step="sync"}} {count}.0' for count in (1, 2))
    with counting(folder, port) as first:
        until(lambda: is_scraped(port, one))
        with counting(folder, port):
            until(lambda: is_scraped(port, both))
            until(lambda: is_logged(folder, "another process of this home serves"))
            first.kill()
            first.wait()
            until(lambda: is_scraped(port, both))


def test_waits_for_a_port_that_another_program_has(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with counting(folder, port):
            until(
                lambda: is_logged(
                    folder, f"WARNING:storage.metrics:another program has port {port}"
                )
            )
            other.close()
            until(lambda: is_scraped(port, 'store_claims_lost_total{step="sync"} 1.0'))


def test_half_open_connections_take_few_threads_and_end(tmp_path: Path) -> None:
    folder, port = tmp_path / "metrics", find_free_port()
    line = 'store_claims_lost_total{step="sync"} 1.0'
    with counting(folder, port) as process, ExitStack() as connections:
        until(lambda: is_scraped(port, line))
        threads = Path(f"/proc/{process.pid}/task")
        before = len([*threads.iterdir()])
        for _ in range(8):
            connection = socket.create_connection(("127.0.0.1", port), timeout=60)
            connections.enter_context(connection)
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert is_scraped(port, line)
        assert len([*threads.iterdir()]) == before


def test_other_paths_are_not_found(tmp_path: Path) -> None:
    folder, port = tmp_path / "metrics", find_free_port()
    with counting(folder, port):
        until(lambda: is_scraped(port, 'store_claims_lost_total{step="sync"} 1.0'))
        assert httpx.get(f"http://127.0.0.1:{port}/secrets", trust_env=False).status_code == 404


def test_a_sample_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_samplers", {})
    registry = CollectorRegistry()
    first, second = (Gauge(name, name, registry=registry) for name in ("first", "second"))

    class Sampler:
        def fail(self) -> float:
            raise OSError("no space left")

        def count(self) -> float:
            return 3.0

    failing, counting = Sampler(), Sampler()
    metrics.sample_gauge(first, failing.fail)
    metrics.sample_gauge(second, counting.count)
    assert metrics._write_sample_round() == ["OSError('no space left')"]
    del failing
    assert metrics._write_sample_round() == []


def test_a_closed_catalog_is_no_longer_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_samplers", {})
    with closing(Catalog(f"sqlite:///{tmp_path / 'one.sqlite'}")):
        with closing(Catalog(f"sqlite:///{tmp_path / 'two.sqlite'}")):
            assert {len(readers) for readers in metrics._samplers.values()} == {2}
        assert {len(readers) for readers in metrics._samplers.values()} == {1}
    assert {len(readers) for readers in metrics._samplers.values()} == {0}


def test_a_catalog_that_was_never_closed_is_no_longer_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_samplers", {})
    catalog = Catalog(f"sqlite:///{tmp_path / 'one.sqlite'}")
    assert {len(readers) for readers in metrics._samplers.values()} == {1}
    del catalog
    gc.collect()
    assert {len(readers) for readers in metrics._samplers.values()} == {0}


def test_rejects_address_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_shared_folder", tmp_path)
    with pytest.raises(SettingValueError, match=r"STORE_METRICS_PORT: cannot listen at 192\.0\.2"):
        metrics.serve_metrics("192.0.2.1", find_free_port())
