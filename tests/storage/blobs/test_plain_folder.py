"""Checkout folders: plain files, whole or absent."""

import os
import time
from pathlib import Path

import pytest

from storage import errors
from storage.blobs.folder import FolderBlobs
from storage.blobs.plain_folder import PlainFolder
from storage.blobs.signed_urls import UrlSigner

pytestmark = pytest.mark.spec("CHK-05")


@pytest.fixture
def folder(tmp_path: Path) -> PlainFolder:
    return PlainFolder(tmp_path / "plain")


@pytest.fixture
def replica(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "replica", UrlSigner(b"s", "aws"))


def test_a_copy_is_a_file_that_anybody_can_read(
    folder: PlainFolder, replica: FolderBlobs, tmp_path: Path
) -> None:
    data = os.urandom(3_000_000)
    pin = replica.put("blob", data).pin
    info = folder.copy(replica, "blob", "checkouts/job/a b/ü.txt", pin=pin, part_size=1)
    assert (tmp_path / "plain/checkouts/job/a b/ü.txt").read_bytes() == data
    assert info is not None
    assert info.size == len(data)
    assert b"".join(folder.read(info.key, pin=info.pin)) == data


def test_reads_by_range_and_pin(folder: PlainFolder) -> None:
    pin = folder.put("k", b"0123456789").pin
    assert b"".join(folder.read("k", pin=pin, start=3, length=4)) == b"3456"
    with pytest.raises(errors.RangeNotSatisfiable):
        list(folder.read("k", start=10))
    with pytest.raises(errors.SourceChanged):
        list(folder.read("k", pin="other"))


def test_recreates_vanished_folder(folder: PlainFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("job/reads/wrong", b"x")
    link, deleted = os.link, []

    def late(*paths: Path) -> None:
        if not deleted:
            deleted.append(folder.delete("job/reads/wrong"))
        link(*paths)

    monkeypatch.setattr(os, "link", late)
    folder.put("job/reads/right", b"y")
    assert b"".join(folder.read("job/reads/right")) == b"y"
    assert deleted


def test_existing_name_keeps_its_bytes(folder: PlainFolder, tmp_path: Path) -> None:
    folder.put("k", b"first")
    with pytest.raises(errors.AlreadyExists):
        folder.put("k", b"second")
    assert (tmp_path / "plain/k").read_bytes() == b"first"
    assert os.listdir(tmp_path / "plain") == ["k"]


def test_reports_file_and_folder_of_one_name(folder: PlainFolder) -> None:
    folder.put("a", b"file")
    with pytest.raises(errors.Forbidden):
        folder.put("a/b", b"inside")
    folder.put("c/d", b"inside")
    with pytest.raises(errors.Forbidden):
        folder.put("c", b"file")
    with pytest.raises(errors.NotFoundError):
        folder.head("c")


def test_a_copy_of_other_bytes_or_one_that_is_stopped_leaves_nothing(
    folder: PlainFolder, replica: FolderBlobs, tmp_path: Path
) -> None:
    def stop(_: str, __: int) -> None:
        raise errors.DomainError("the claim was lost")

    pin = replica.put("blob", b"x").pin
    with pytest.raises(errors.SourceChanged):
        folder.copy(replica, "blob", "k", pin="other", part_size=1)
    with pytest.raises(errors.DomainError, match="claim"):
        folder.copy(replica, "blob", "k", pin=pin, part_size=1, progress=stop)
    assert os.listdir(tmp_path / "plain") == []


def test_a_listing_and_deleting_what_it_lists_leaves_nothing(
    folder: PlainFolder, tmp_path: Path
) -> None:
    names = ["checkouts/1/a", "checkouts/1/b/c", "checkouts/12/a", "checkouts/2/a"]
    for name in names:
        folder.put(name, b"")
    assert [info.key for info in folder.list("checkouts/1/")] == names[:2]
    assert [info.key for info in folder.list("", after=names[1])] == names[2:]
    for info in folder.list(""):
        folder.delete(info.key)
    folder.delete("checkouts/1/a")
    assert os.listdir(tmp_path / "plain") == []
    assert list(folder.list("")) == []


@pytest.mark.parametrize("key", ["/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_no_name_leaves_the_folder(folder: PlainFolder, key: str) -> None:
    with pytest.raises(errors.Invalid):
        folder.put(key, b"x")


@pytest.mark.spec("CHK-10")
def test_a_folder_that_cannot_be_written_is_forbidden(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(errors.Forbidden):
        PlainFolder(tmp_path / "file").put("k", b"x")


def test_sweeps_leftovers_of_crashed_copies(folder: PlainFolder, tmp_path: Path) -> None:
    folder.put("k", b"")
    (tmp_path / "plain" / ".incoming-crashed").write_bytes(b"x")
    assert [info.key for info in folder.list("")] == ["k"]
    assert folder.sweep_temporaries(60, now=time.time()) == 0
    assert folder.sweep_temporaries(60, now=time.time() + 120) == 1
    assert os.listdir(tmp_path / "plain") == ["k"]


def test_a_direct_url_names_the_file(folder: PlainFolder, tmp_path: Path) -> None:
    assert folder.direct_url("a b") == (tmp_path / "plain" / "a b").as_uri()
    assert folder.direct_url("checkouts/1/").endswith("/checkouts/1/")
