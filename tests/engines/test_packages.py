"""Programs are built once and atomically."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engines.packages import Tool

TOOL = Tool("hammer", "example.org/hammer/cmd", "example.org/hammer", "v1.0.0")
GO = """#!/bin/sh
echo built >> "$BUILDS"
while [ "$1" != -o ]; do shift; done
echo half > "$2"; sleep 0.3; echo whole > "$2"
exit "$(cat "$ENDS" 2>/dev/null || echo 0)"
"""


@pytest.fixture(autouse=True)
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that takes its time."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "go").write_text(GO, encoding="utf-8")
    (programs / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("BUILDS", str(tmp_path / "builds"))
    monkeypatch.setenv("ENDS", str(tmp_path / "ends"))


def builds(folder: Path) -> int:
    return (folder / "builds").read_text().count("built")


def built(cache: Path) -> str:
    return (cache / "bin" / "hammer-v1.0.0").read_text()


def test_concurrent_builds_build_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def want(_number: int) -> str:
        TOOL.install(cache)
        return built(cache)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(want, range(2))) == ["whole\n"] * 2
    assert builds(tmp_path) == 1


def test_a_build_that_failed_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "ends").write_text("1")
    with pytest.raises(subprocess.CalledProcessError):
        TOOL.install(cache)
    assert not list((cache / "bin").glob("*"))
    (tmp_path / "ends").write_text("0")
    TOOL.install(cache)
    assert built(cache) == "whole\n"
