"""Metrics of processes that share a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from storage.metrics import render_metrics


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
