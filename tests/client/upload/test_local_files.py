"""A directory as a list of files."""

import os
import socket
import unicodedata
from pathlib import Path

import httpx
import pytest

from store_client import local_files
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import Misused
from store_client.local_files import list_files
from store_client.uploads.job import upload
from store_client.uploads.options import UploadOptions
from tests.client.upload.directories import NAMES
from tests.peak_memory import memory_below


def names(folder: Path) -> list[str]:
    return [file.name for file in list_files(folder)]


@pytest.mark.spec("UPL-01")
def test_names_are_relative_to_the_directory_and_in_order(source: Path) -> None:
    assert names(source) == NAMES


@pytest.mark.spec("UPL-04")
def test_a_link_to_a_file_is_its_content(source: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("12345")
    (source / "link.txt").symlink_to(tmp_path / "outside.txt")
    (found,) = (file for file in list_files(source) if file.name == "link.txt")
    assert found.size == 5


@pytest.mark.spec("UPL-04")
def test_skips_directory_links_with_warning(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    (source / "circle").symlink_to(source)
    assert names(source) == NAMES
    assert "circle is a link to a directory" in caplog.text


@pytest.mark.spec("UPL-04")
def test_rejects_broken_links(source: Path) -> None:
    (source / "broken").symlink_to(source / "nothing")
    with pytest.raises(Misused, match="broken"):
        list_files(source)


@pytest.mark.spec("UPL-04")
def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s" / "deeper").mkdir(parents=True)
    with pytest.raises(Misused, match="no files"):
        list_files(tmp_path / "s")


@pytest.mark.spec("UPL-04")
def test_rejects_special_files(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A socket's path is short.
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as there:
        there.bind("door")
        with pytest.raises(Misused, match="door is not a file"):
            list_files(source)
    (source / "door").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(Misused, match="pipe is not a file"):
        list_files(source)


@pytest.mark.spec("UPL-04")
def test_rejects_unreadable_files(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        (source / "sample.json").chmod(0)
    else:
        # Root may read everything; the system is asked in just one place.
        monkeypatch.setattr(local_files.os, "access", lambda *_: False)
    with pytest.raises(Misused, match="not readable"):
        list_files(source)


@pytest.mark.spec("UPL-05")
@pytest.mark.parametrize("name", ["a\\b.txt", "line\nbreak", "~"])
def test_names_that_no_bundle_can_have_are_refused(source: Path, name: str) -> None:
    path = source / name
    if name == "~":
        path.mkdir()
        path = path / "x"
    path.write_text("x")
    with pytest.raises(Misused, match="a bundle cannot have the name"):
        list_files(source)


@pytest.mark.spec("UPL-05")
def test_rejects_names_that_are_not_text(source: Path) -> None:
    with open(os.fsencode(source) + b"/\xff.txt", "wb"):
        pass
    with pytest.raises(Misused):
        list_files(source)


@pytest.mark.spec("UPL-05")
def test_names_that_differ_only_in_how_marks_are_written_are_refused(source: Path) -> None:
    for form in ("NFC", "NFD"):
        (source / unicodedata.normalize(form, "é.txt")).write_text("x")
    with pytest.raises(Misused, match="differ only"):
        list_files(source)


@pytest.mark.spec("UPL-05")
def test_rejects_file_and_folder_of_equivalent_names(source: Path) -> None:
    (source / unicodedata.normalize("NFC", "é")).write_text("x")
    folder = source / unicodedata.normalize("NFD", "é")
    folder.mkdir()
    (folder / "x").write_text("x")
    with pytest.raises(Misused, match="name of a folder"):
        list_files(source)


@pytest.mark.spec("UPL-01")
def test_a_deep_tree_costs_no_stack(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(300):
        folder = folder / "d"
    folder.mkdir(parents=True)
    (folder / "x").write_text("x")
    assert names(tmp_path)[0].count("/") == 300


@pytest.mark.spec("UPL-07")
def test_twenty_thousand_files_are_planned_in_little_memory(
    config: Configuration, tmp_path: Path
) -> None:
    many = 20_000
    for folder in range(100):
        (tmp_path / "many" / f"{folder:02}").mkdir(parents=True)
    for number in range(many):
        (tmp_path / "many" / f"{number % 100:02}" / f"{number:05}.txt").touch()
    nobody = httpx.MockTransport(lambda _: httpx.Response(599))
    session = Client(config=config, token="admin").session
    session._transport = nobody
    options = UploadOptions(tmp_path / "many", "aws", dry_run=True)
    with Client(config=config, session=session) as client, memory_below(64 * 1024 * 1024):
        done = upload(client, options)
    assert len(done.files) == done.sent_files == many
