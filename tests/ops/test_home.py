"""Files in the home folder of a running store."""

import os
from pathlib import Path

import pytest

from ops import home


def test_a_home_has_one_supervisor_at_a_time(tmp_path: Path) -> None:
    with home.lock_home(tmp_path), pytest.raises(home.HomeTaken, match=f"process {os.getpid()}"):
        home.lock_home(tmp_path).__enter__()
    with home.lock_home(tmp_path):
        pass


def test_the_home_is_made_for_its_owner_only(tmp_path: Path) -> None:
    with home.lock_home(tmp_path / "a" / "home"):
        assert (tmp_path / "a" / "home").stat().st_mode & 0o077 == 0


def test_closes_a_home_that_was_open_to_others(tmp_path: Path) -> None:
    found = tmp_path / "home"
    found.mkdir()
    found.chmod(0o2777)
    with home.lock_home(found):
        assert found.stat().st_mode & 0o7777 == 0o700


def test_refuses_a_home_that_it_cannot_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chmod(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(home.HomeExposed, match=r"mode 0755.*make it yours with mode 0700"):
        home.lock_home(tmp_path).__enter__()


def test_refuses_a_home_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(home.HomeExposed, match="belongs to another user"):
        home.lock_home(tmp_path).__enter__()


def test_a_file_is_replaced_whole_and_read_back(tmp_path: Path) -> None:
    assert home.read_json(tmp_path, home.READY) is None
    home.write_json(tmp_path, home.READY, {"pid": 1})
    home.write_json(tmp_path, home.READY, {"pid": 2})
    assert home.read_json(tmp_path, home.READY) == {"pid": 2}
    assert [path.name for path in tmp_path.iterdir()] == [home.READY]


def test_removing_absent_file_is_no_error(tmp_path: Path) -> None:
    home.remove_file(tmp_path, home.READY)


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    home.write_text(tmp_path, home.ADMIN_TOKEN, "secret")
    assert (tmp_path / home.ADMIN_TOKEN).stat().st_mode & 0o777 == 0o600
