"""Missing engines are named, and fail the run unless they are optional."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LACKING = "not run: opensearch: a Java"


def run(
    nowhere: Path, *options: str, code: int = 0, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with `code` beside OpenSearch, on a machine without programs."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("STORE_")}
    ends = [sys.executable, "-c", f"raise SystemExit({code})"]
    return subprocess.run(
        [sys.executable, "-m", "tests.engines", "run", "--only", "opensearch", *options, *ends],
        cwd=ROOT,
        env={**outer, "PATH": str(nowhere), **(environ or {})},
        capture_output=True,
        text=True,
    )


def test_missing_engine_fails_run(tmp_path: Path) -> None:
    ended = run(tmp_path, "--")
    assert LACKING in ended.stdout
    assert "excuse it by --excuse opensearch" in ended.stdout
    assert ended.returncode == 1


@pytest.mark.parametrize(
    ("options", "environ"),
    [
        (["--excuse", "opensearch"], {}),
        (["--excuse", "redis,opensearch"], {}),
        ([], {"STORE_TEST_EXCUSED": "redis,opensearch"}),
        ([], {"STORE_TEST_EXCUSED": "redis opensearch"}),
    ],
)
def test_excused_engine_is_named_only(
    tmp_path: Path, options: Sequence[str], environ: dict[str, str]
) -> None:
    ended = run(tmp_path, *options, "--", environ=environ)
    assert LACKING in ended.stdout
    assert ended.returncode == 0


def test_an_excuse_hides_no_failure_of_the_command(tmp_path: Path) -> None:
    assert run(tmp_path, "--excuse", "opensearch", "--", code=3).returncode == 3


def test_an_excuse_for_nothing_is_a_mistake(tmp_path: Path) -> None:
    ended = run(tmp_path, "--excuse", "opensaerch", "--")
    assert "nothing is called opensaerch" in ended.stderr
    assert ended.returncode == 2
