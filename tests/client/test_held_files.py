"""Files that one holds at a time."""

import os
from pathlib import Path

import pytest

from store_client.held_files import try_to_hold


def test_a_file_is_held_by_one_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    try:
        assert try_to_hold(first)
        assert not try_to_hold(second)
        os.close(first)
        assert try_to_hold(second)
    finally:
        os.close(second)


def test_what_cannot_be_held_is_told_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    gone = os.open(path, os.O_RDWR)
    os.close(gone)
    with pytest.raises(OSError, match="descriptor"):
        try_to_hold(gone)
