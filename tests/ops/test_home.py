"""What a running store leaves in its home."""

import os
from pathlib import Path

import pytest

from ops import home


def test_a_home_has_one_supervisor_at_a_time(tmp_path: Path) -> None:
    with home.locked(tmp_path), pytest.raises(home.Taken, match=f"process {os.getpid()}"):
        home.locked(tmp_path).__enter__()
    with home.locked(tmp_path):
        pass


def test_the_home_is_made_for_its_owner_only(tmp_path: Path) -> None:
    with home.locked(tmp_path / "a" / "home"):
        assert (tmp_path / "a" / "home").stat().st_mode & 0o077 == 0


def test_a_file_is_replaced_whole_and_read_back(tmp_path: Path) -> None:
    assert home.read(tmp_path, home.READY) is None
    home.write(tmp_path, home.READY, {"pid": 1})
    home.write(tmp_path, home.READY, {"pid": 2})
    assert home.read(tmp_path, home.READY) == {"pid": 2}
    assert [path.name for path in tmp_path.iterdir()] == [home.READY]


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    home.remove(tmp_path, home.READY)


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    home.write_text(tmp_path, home.ADMIN_TOKEN, "secret", mode=0o600)
    assert (tmp_path / home.ADMIN_TOKEN).stat().st_mode & 0o777 == 0o600
