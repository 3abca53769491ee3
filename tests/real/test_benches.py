"""Every benchmark runs on real engines, in its smallest size."""

import subprocess
import sys

import pytest

from ops.procfile import ROOT
from tests.real import engines

pytestmark = pytest.mark.skipif(
    not (engines.ENOUGH and engines.GCS), reason="STORE_TEST_* name too few engines"
)
LIMIT_S = 240
NAME = "real-reach"
"""The other compares with programs that only `make bench-real` installs."""


def test_a_bench_on_real_engines_runs() -> None:
    done = subprocess.run(
        (sys.executable, "-m", "bench", "--tiny", NAME),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
