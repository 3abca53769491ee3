"""Files under their names: links, copies, and what was there before."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from store_client.downloads import job
from store_client.errors import StoreError

pytestmark = pytest.mark.spec("DWN-02")

DATA = b"content"
KEY = sha256(DATA).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


def no_links(source: Path, target: Path) -> None:
    raise OSError(18, "Invalid cross-device link")


def test_a_link_is_made_with_the_folders_that_it_needs(source: Path, tmp_path: Path) -> None:
    job.link_file(source, tmp_path / "a" / "b" / "c", sha256=KEY)
    assert (tmp_path / "a" / "b" / "c").samefile(source)


@pytest.mark.parametrize("before", [None, b"other"])
def test_copies_if_links_fail(source: Path, tmp_path: Path, before: bytes | None) -> None:
    target = tmp_path / "target"
    if before is not None:
        target.write_bytes(before)
    job.link_file(source, target, sha256=KEY, link=no_links)
    assert target.read_bytes() == DATA
    assert not target.samefile(source)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_same_again_changes_nothing(source: Path, tmp_path: Path) -> None:
    for link in (os.link, no_links):
        target = tmp_path / link.__name__
        job.link_file(source, target, sha256=KEY, link=link)
        before = target.stat()
        job.link_file(source, target, sha256=KEY, link=link)
        assert os.path.samestat(target.stat(), before)


def test_replaces_different_file(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for other in (b"another length", b"CONTENT"):
        target.unlink(missing_ok=True)
        target.write_bytes(other)
        job.link_file(source, target, sha256=KEY)
        assert target.samefile(source)


def test_replaces_link_and_keeps_its_target(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "target").symlink_to(tmp_path / "mine")
    job.link_file(source, tmp_path / "target", sha256=KEY)
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert not (tmp_path / "target").is_symlink()


def test_reports_unwritable_target(source: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="is a directory"):
        job.link_file(source, tmp_path / "folder", sha256=KEY)
    with pytest.raises(StoreError, match="cannot write"):
        job.link_file(source, source / "below", sha256=KEY)
