"""Files that others may read are made private; what is no file of credentials is left alone."""

import os
import stat
from pathlib import Path

import pytest

from store_client.auth.credentials import is_readable_by_others, make_private
from store_client.auth.signatures import ServiceAccountTokens
from store_client.errors import Misused


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("CLI-104")
def test_a_file_is_made_private_also_behind_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "real.json", tmp_path / "link.json"
    path.write_text("{}")
    path.chmod(0o644)
    link.symlink_to(path)
    make_private(link)
    assert mode(path) == 0o600


@pytest.mark.spec("CLI-104")
def test_leaves_rights_of_folders_and_pipes(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (folder, pipe):
        path.chmod(0o755)
        make_private(path)
        assert (mode(path), is_readable_by_others(path)) == (0o755, False)


@pytest.mark.spec("CLI-104")
def test_reports_variable_that_names_a_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(Misused, match="Is a directory"):
        ServiceAccountTokens(tmp_path, "http://127.0.0.1:9").bearer()
    assert mode(tmp_path) == 0o755
