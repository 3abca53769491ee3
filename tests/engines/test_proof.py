"""A named engine must take part in a test that is not skipped."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest

@pytest.mark.parametrize("server", ["{parameter}"])
def test_one(server):
    {body}
"""


def run(folder: Path, parameter: str, body: str, options: Sequence[str]) -> tuple[int, str]:
    """The exit code and the words of a run in which Redis was named."""
    suite = folder / "test_suite.py"
    suite.write_text(SUITE.format(parameter=parameter, body=body), encoding="utf-8")
    outer = {name: value for name, value in os.environ.items() if not name.startswith("STORE_")}
    alone = ("-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", *options)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.engines.proof", *alone, str(folder)],
        cwd=ROOT,
        env={
            **outer,
            "STORE_TEST_REDIS": "redis://127.0.0.1:1/0",
            # Loading all installed plugins takes longer than the run.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stdout


distributed = pytest.mark.parametrize(
    "options", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "distributed"]
)


@distributed
def test_one_test_is_enough(tmp_path: Path, options: Sequence[str]) -> None:
    code, words = run(tmp_path, "named", "assert True", options)
    assert "redis: 1 tests ran" in words
    assert code == 0, words


@distributed
@pytest.mark.parametrize(
    ("parameter", "body"), [("in memory", "assert True"), ("named", "pytest.skip()")]
)
def test_other_engines_and_skipped_tests_do_not_count(
    tmp_path: Path, options: Sequence[str], parameter: str, body: str
) -> None:
    code, words = run(tmp_path, parameter, body, options)
    assert "redis is named and took part in no test" in words
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED, words


def test_deselects_what_the_embedded_engines_ran_already(tmp_path: Path) -> None:
    suite = SUITE.format(parameter="named", body="assert True")
    suite += '''
def test_embedded():
    raise AssertionError("not run")

@pytest.mark.skipif(False, reason="there is an engine")
def test_that_may_be_skipped():
    """Selected."""
'''
    (tmp_path / "test_more.py").write_text(suite, encoding="utf-8")
    code, words = run(tmp_path, "in memory", "raise AssertionError('not run')", ())
    assert "2 passed, 2 deselected" in words
    assert code == 0, words


@pytest.mark.parametrize(
    ("module", "runs"),
    [
        ("storage/catalog/test_connections", True),
        ("storage/catalog/test_query_plans", False),
        ("pipelines/test_backups", True),
        ("pipelines/test_write_races", False),
        ("workers/test_claims", True),
    ],
)
def test_pgbouncer_runs_what_concerns_connections(tmp_path: Path, module: str, runs: bool) -> None:
    path = tmp_path / "tests" / f"{module}.py"
    path.parent.mkdir(parents=True)
    path.write_text(SUITE.format(parameter="pgbouncer", body="assert True"), encoding="utf-8")
    _, words = run(tmp_path, "named", "assert True", ())
    assert f"pgbouncer: {int(runs)} tests ran" in words
    assert ("1 deselected" in words) is not runs


def test_whole_stores_come_first(tmp_path: Path) -> None:
    whole = tmp_path / "tests" / "real"
    whole.mkdir(parents=True)
    (whole / "test_whole.py").write_text(
        SUITE.format(parameter="named", body="assert True"), encoding="utf-8"
    )
    _, words = run(tmp_path, "named", "assert True", ("-v",))
    assert 0 < words.index("test_whole.py::test_one") < words.index("test_suite.py::test_one")
