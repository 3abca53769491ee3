"""Failures by chance are told from others."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SUITE = """
from pathlib import Path
import pytest

RUNS = Path(__file__).with_name("runs")

@pytest.mark.parametrize("number", range({tests}))
def test_one(number):
    with RUNS.open("a") as runs:
        runs.write(".")
    if len(RUNS.read_text()) in {skips}:
        pytest.skip("no engine")
    assert len(RUNS.read_text()) not in {fails}

def test_other():
    pass
"""


def run(
    folder: Path,
    options: Sequence[str] = (),
    *,
    tests: int = 1,
    fails: Sequence[int],
    skips: Sequence[int] = (),
) -> tuple[int, str, int]:
    """The exit code of a suite that fails in these runs of a test, its words, and the runs."""
    suite = folder / "test_suite.py"
    text = SUITE.format(tests=tests, fails=list(fails), skips=list(skips))
    suite.write_text(text, encoding="utf-8")
    alone = ("-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", *options)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.rerun", *alone, str(suite)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    runs = folder / "runs"
    return ended.returncode, ended.stdout, len(runs.read_text()) if runs.exists() else 0


def test_one_failure_by_chance_passes_and_is_named(tmp_path: Path) -> None:
    code, words, runs = run(tmp_path, ("-p", "xdist", "-n", "1"), fails=[1])
    assert (code, runs) == (0, 6), words
    assert "== UNSTABLE, mend it: test_suite.py::test_one[0] failed once" in words


def test_what_passes_runs_once(tmp_path: Path) -> None:
    code, words, runs = run(tmp_path, fails=[])
    assert (code, runs) == (0, 1), words
    assert "UNSTABLE" not in words


@pytest.mark.parametrize("second", [2, 6], ids=["in the first rerun", "in the last rerun"])
def test_one_that_fails_again_fails_the_run(tmp_path: Path, second: int) -> None:
    code, words, runs = run(tmp_path, fails=[1, second])
    assert (code, runs) == (1, second), words


def test_one_that_is_skipped_in_a_rerun_fails_the_run(tmp_path: Path) -> None:
    code, words, runs = run(tmp_path, fails=[1], skips=[2])
    assert (code, runs) == (1, 2), words


def test_many_failures_fail_the_run_at_once(tmp_path: Path) -> None:
    code, words, runs = run(tmp_path, tests=3, fails=[1, 2, 3])
    assert (code, runs) == (1, 3), words


def test_suite_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name", encoding="utf-8")
    code, words, _ = run(tmp_path, [str(tmp_path / "test_broken.py")], fails=[])
    assert code == 2, words
