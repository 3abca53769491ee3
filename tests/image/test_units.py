"""systemd accepts the unit of the processes, and finds it confined."""

import os
import subprocess
from pathlib import Path

import pytest

from ops.procfile import ROOT
from tests.engines.podman import VARIABLE

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="make test-image installs it")
UNIT = ROOT / "deploy" / "store@.service"
MOST_EXPOSURE = 15
"""In tenths: 0 is confined, 100 is exposed. What is left is the network and the host's files."""


def analyze(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run `systemd-analyze`, which needs no running systemd for this."""
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60)


def test_unit_is_valid() -> None:
    checked = analyze("verify", "--man=no", UNIT)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_verification_finds_unknown_setting(tmp_path: Path) -> None:
    wrong = tmp_path / UNIT.name
    wrong.write_text(UNIT.read_text().replace("UMask=", "UMaks="))
    assert "UMaks" in analyze("verify", "--man=no", wrong).stderr


def test_unit_with_watchdog_is_valid(tmp_path: Path) -> None:
    unit, added = tmp_path / UNIT.name, tmp_path / f"{UNIT.name}.d"
    unit.write_text(UNIT.read_text())
    added.mkdir()
    watchdog = (UNIT.parent / "store-worker.conf").read_text()
    # The watchdog of another type counts the time that a process needs to start.
    assert "Type=notify" in watchdog.splitlines()
    (added / "watchdog.conf").write_text(watchdog)
    checked = analyze("verify", "--man=no", unit)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.fixture
def mirror_unit(tmp_path: Path) -> Path:
    """The unit that follows another store."""
    unit = tmp_path / "store@mirror.service"
    unit.write_text(UNIT.read_text())
    added = tmp_path / f"{unit.name}.d"
    added.mkdir()
    (added / "mirror.conf").write_text((UNIT.parent / "store-mirror.conf").read_text())
    return unit


def test_unit_of_a_mirror_is_valid_and_confined(mirror_unit: Path) -> None:
    checked = analyze("verify", "--man=no", mirror_unit)
    assert (checked.returncode, checked.stderr) == (0, "")
    confined = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", mirror_unit)
    assert confined.returncode == 0, confined.stdout


def test_verification_reads_what_a_mirror_adds(mirror_unit: Path) -> None:
    added = mirror_unit.parent / f"{mirror_unit.name}.d" / "mirror.conf"
    added.write_text(added.read_text().replace("LoadCredential=", "LoadCredentail="))
    assert "LoadCredentail" in analyze("verify", "--man=no", mirror_unit).stderr


def test_unit_is_confined() -> None:
    checked = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", UNIT)
    assert checked.returncode == 0, checked.stdout


def test_threshold_finds_missing_confinement(tmp_path: Path) -> None:
    open_unit = tmp_path / UNIT.name
    lines = UNIT.read_text().splitlines(keepends=True)
    open_unit.write_text("".join(line for line in lines if not line.startswith("SystemCallFilter")))
    assert analyze(
        "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", open_unit
    ).returncode
