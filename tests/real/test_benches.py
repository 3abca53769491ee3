"""The benchmarks on real engines, and those of an hour, run in their smallest size."""

import subprocess
import sys

import pytest

from ops.procfile import ROOT
from tests.real import engines

pytestmark = pytest.mark.skipif(
    not (engines.ENOUGH and engines.GCS), reason="STORE_TEST_* name too few engines"
)
LIMIT_S = 900
NAMES = ("real-reach", "real-scale", "real-soak", "real-standby", "soak")
"""The other on real engines compares with programs that only `make bench-real` installs."""


@pytest.mark.parametrize("name", NAMES)
def test_bench_runs(name: str) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "bench", "--tiny", name),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
