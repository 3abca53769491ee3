"""Files that take their place at one instant, and what is left when they cannot."""

from pathlib import Path

import pytest

from store_client.errors import StoreError
from store_client.replacing import replaced, write_whole


def test_a_file_takes_the_place_of_another_also_under_the_longest_of_names(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    for data in (b"one", b"two"):
        write_whole(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        write_whole(tmp_path / "there", b"x")

    def half(temporary: Path) -> None:
        temporary.write_bytes(b"ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replaced(tmp_path / "new", half)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
