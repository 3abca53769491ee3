"""The C allocator returns freed memory to the operating system."""

import subprocess
import sys
from pathlib import Path

import pytest

from ops.procfile import ROOT

PROGRAM = """
import sys, threading
from pathlib import Path
from config import process

if sys.argv[1] == "bounded":
    process.bound_heap()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def fill(size):
    bodies = [bytearray(size) for _ in range(2)]
    kept.append(bytes(100_000))
    together.wait()

kept, before = [], resident()
for size in (8_000_000, 16_000_000, 16_000_000):
    together = threading.Barrier(8)
    threads = [threading.Thread(target=fill, args=(size,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print((resident() - before) // 1_000_000)
"""


def kept_mb(how: str) -> int:
    """Megabytes that a process keeps after eight threads used and freed 256 MB."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return int(found.stdout)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to measure by")
def test_a_process_keeps_little_of_what_its_threads_freed() -> None:
    assert kept_mb("bounded") < 30
