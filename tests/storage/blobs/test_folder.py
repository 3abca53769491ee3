"""Folder buckets: crashes, leftovers, damage, sweeps and key layout."""

import errno
import multiprocessing
import os
import signal
import stat
import threading
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.blobs.folder import FolderBlobs
from storage.blobs.folder_files import (
    MAX_FILE_NAME,
    escape_segment,
    object_path,
    unescape_segment,
)
from storage.blobs.signed_urls import UrlSigner
from storage.errors import AlreadyExists, DamagedObjectError, Forbidden, NotFoundError, Unavailable
from storage.protocols import BLOCK

SIGNER = UrlSigner(b"s" * 32, "aws")


@pytest.fixture
def store(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "bucket", SIGNER)


def files(store: FolderBlobs, folder: str) -> list[str]:
    return os.listdir(store.root / folder)


def put_for_ever(root: Path) -> None:
    """Put objects that tell their own content, until killed."""
    store = FolderBlobs(root, SIGNER)
    for number in range(1_000_000):
        store.put(f"many/{os.getpid()}/{number}", b"%d" % (number % 10) * (300_000 + number))
        if number % 3 == 0:
            upload = store.upload(f"parts/{os.getpid()}/{number}", part_size=4, content_type="x/y")
            upload.part(2, [b"67"])
            upload.part(1, [b"01", b"23"])
            upload.complete()


def test_a_writer_killed_at_any_instant_leaves_whole_objects_only(store: FolderBlobs) -> None:
    spawn = multiprocessing.get_context("spawn")
    for turn in range(3):
        writer = spawn.Process(target=put_for_ever, args=(store.root,))
        writer.start()
        while not list(store.list(f"many/{writer.pid}/")):
            time.sleep(0.005)
        time.sleep(0.02 * turn)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
    seen = 0
    for info in store.list("many/"):
        number = int(info.key.rpartition("/")[2])
        assert b"".join(store.read(info.key)) == b"%d" % (number % 10) * (300_000 + number)
        seen += 1
    assert seen >= 3
    assert all(b"".join(store.read(info.key)) == b"012367" for info in store.list("parts/"))


def test_sweeps_old_leftovers_of_crashed_writers(store: FolderBlobs) -> None:
    (store.root / ".temporary" / "crashed").write_bytes(b"x")
    upload = store.upload("k", part_size=10, content_type="x/y")
    now = time.time()
    assert store.sweep_temporaries(60, now=now) == 0
    assert store.sweep_temporaries(60, now=now + 120) == 3
    assert files(store, ".temporary") == files(store, ".uploads") == []
    with pytest.raises(NotFoundError):
        upload.part(1, [b"x"])


def test_an_upload_that_is_still_written_is_not_swept_by_halves(store: FolderBlobs) -> None:
    upload = store.upload("k", part_size=10, content_type="x/y")
    upload.part(1, [b"x" * 10])
    journal = store.root / ".uploads" / f"{upload.token}.journal"
    os.utime(journal, (0, 0))
    assert store.sweep_temporaries(60, now=time.time()) == 0
    assert upload.parts() == {1: 10}


def test_leaves_only_objects(store: FolderBlobs) -> None:
    store.put("a/b", b"x")
    with pytest.raises(AlreadyExists):
        store.put("a/b", b"y")
    upload = store.upload("a/c", part_size=1, content_type="x/y")
    upload.part(1, [b"x"])
    upload.complete()
    store.delete("a/b")
    store.delete("a/c")
    assert sorted(os.listdir(store.root)) == [".temporary", ".uploads"]
    assert files(store, ".temporary") == files(store, ".uploads") == []


def test_a_straggler_cannot_reach_into_an_object_that_became_visible(store: FolderBlobs) -> None:
    upload = store.upload("k", part_size=4, content_type="x/y")
    upload.part(1, [b"good"])
    straggler = store.upload("k", part_size=4, content_type="x/y", token=upload.token)
    upload.complete()
    with pytest.raises(NotFoundError):
        straggler.part(1, [b"evil"])
    assert b"".join(store.read("k")) == b"good"


def test_crash_before_cleanup_ends_upload(store: FolderBlobs) -> None:
    upload = store.upload("k", part_size=4, content_type="x/y")
    upload.part(1, [b"good"])
    private = store.root / ".uploads" / upload.token
    (store.root / "crash").hardlink_to(private)  # as if the name had just been given
    for attempt in (
        lambda: upload.part(1, [b"evil"]),
        lambda: store.upload("k", part_size=4, content_type="x/y", token=upload.token),
    ):
        with pytest.raises(NotFoundError):
            attempt()


def test_completion_waits_for_a_part_that_is_under_way(store: FolderBlobs) -> None:
    upload = store.upload("k", part_size=4, content_type="x/y")
    upload.part(1, [b"once"])
    order: list[str] = []

    def slow() -> Iterator[bytes]:
        yield b"tw"
        completion.start()
        time.sleep(0.1)
        order.append("part")
        yield b"ic"

    def complete() -> None:
        upload.complete()
        order.append("complete")

    completion = threading.Thread(target=complete)
    upload.part(1, slow())
    completion.join()
    assert order == ["part", "complete"]
    assert b"".join(store.read("k")) == b"twic"


def test_a_torn_journal_only_costs_its_last_line(store: FolderBlobs) -> None:
    upload = store.upload("k", part_size=4, content_type="x/y")
    upload.part(1, [b"0123"])
    with open(store.root / ".uploads" / f"{upload.token}.journal", "ab") as journal:
        journal.write(b'{"part": 2, "si')
    again = store.upload("k", part_size=4, content_type="x/y", token=upload.token)
    assert again.parts() == {1: 4}
    again.part(2, [b"45"])
    assert again.parts() == {1: 4, 2: 2}


def test_zeros_over_checksum_and_length_of_the_head_are_damage(store: FolderBlobs) -> None:
    store.put("k", b"content")
    whole = (store.root / "k").read_bytes()
    (store.root / "k").write_bytes(whole[:22] + bytes(8) + whole[30:])
    for read in (store.head, lambda key: list(store.read(key))):
        with pytest.raises(DamagedObjectError):
            read("k")


@pytest.mark.parametrize("damage", [b"", b"storeblb", b"garbage" * 100])
def test_a_damaged_file_is_not_served(store: FolderBlobs, damage: bytes) -> None:
    store.put("k", b"content")
    (store.root / "k").write_bytes(damage)
    with pytest.raises(DamagedObjectError):
        store.head("k")


def test_a_truncated_or_changed_head_is_noticed(store: FolderBlobs) -> None:
    store.put("k", b"content")
    whole = (store.root / "k").read_bytes()
    for damaged in (whole[:-1], whole + b"x", whole.replace(b"octet", b"OCTET")):
        (store.root / "k").write_bytes(damaged)
        with pytest.raises(DamagedObjectError):
            store.head("k")


def test_missing_root_is_unavailable_not_empty(store: FolderBlobs) -> None:
    store.put("k", b"content")
    store.root.rename(store.root.with_name("unmounted"))
    for attempt in (
        lambda: store.head("k"),
        lambda: list(store.list("")),
        lambda: store.put("k", b""),
        lambda: store.delete("k"),
    ):
        with pytest.raises(Unavailable):
            attempt()


def test_foreign_files_are_passed_over(store: FolderBlobs) -> None:
    store.put("k", b"x")
    (store.root / "README").write_text("hello")
    (store.root / "lost+found").mkdir()
    assert [info.key for info in store.list("")] == ["k"]


def test_a_payload_is_opened_where_its_bytes_begin(store: FolderBlobs) -> None:
    for size in (0, 7, 2 * BLOCK):
        store.put(f"k{size}", b"x" * size, content_type="x/y")
        file, length, info = store.open_payload(f"k{size}")
        with file:
            assert (length, info.content_type) == (size, "x/y")
            start = file.tell()
            assert os.pread(file.fileno(), size + 1, start) == b"x" * size
    with pytest.raises(NotFoundError):
        store.open_payload("absent")


def test_large_payloads_begin_on_a_page_so_that_copies_may_share_blocks(store: FolderBlobs) -> None:
    store.put("large", bytes(BLOCK))
    file, _, _ = store.open_payload("large")
    with file:
        assert file.tell() % 4096 == 0


def test_two_stores_of_one_folder_see_the_same(store: FolderBlobs) -> None:
    again = FolderBlobs(store.root, SIGNER)
    pin = store.put("k", b"x").pin
    assert b"".join(again.read("k", pin=pin)) == b"x"


def test_listing_includes_metadata(store: FolderBlobs) -> None:
    store.put("k", b"x", content_type="x/y", metadata={"a": "b"})
    (info,) = store.list("")
    assert info == store.head("k")


def test_lists_damaged_objects_and_marks_them(store: FolderBlobs) -> None:
    for key in ("a", "b", "c", "z"):
        store.put(key, b"content")
    (store.root / "a").write_bytes(b"garbage" * 100)
    (store.root / "b").write_bytes(b"")
    (store.root / "c").write_bytes((store.root / "z").read_bytes())
    listed = list(store.list(""))
    assert [(info.key, info.damaged) for info in listed] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("z", False),
    ]
    assert [info.size for info in listed] == [700, 0, (store.root / "c").stat().st_size, 7]


def test_skips_damaged_objects_with_unreadable_key(
    store: FolderBlobs,
) -> None:
    for key in ("a", "long/" + "x" * 300):
        store.put(key, b"content")
    hashed = next(path for path in store.root.rglob("*") if path.name.startswith("~"))
    hashed.write_bytes(b"")
    assert [info.key for info in store.list("")] == ["a"]


def test_a_damaged_length_in_the_head_allocates_no_memory(store: FolderBlobs) -> None:
    store.put("k", b"content")
    whole = bytearray((store.root / "k").read_bytes())
    whole[26] = 0xFF  # the highest byte of the length of the head's text
    (store.root / "k").write_bytes(whole)
    with pytest.raises(DamagedObjectError):
        store.head("k")


def test_misplaced_object_is_damaged(store: FolderBlobs) -> None:
    store.put("a", b"content")
    store.put("b", b"content")
    (store.root / "b").write_bytes((store.root / "a").read_bytes())
    for read in (store.head, store.open_payload, lambda key: list(store.read(key))):
        with pytest.raises(DamagedObjectError):
            read("b")


@pytest.mark.parametrize("thing", ["symbolic link to itself", "folder", "FIFO", "socket"])
def test_foreign_file_in_place_of_object_is_damage(store: FolderBlobs, thing: str) -> None:
    store.put("a", b"a")
    store.put("b", b"b")
    path = store.root / "a"
    path.unlink()
    if thing == "folder":
        path.mkdir()
    elif thing == "FIFO":
        os.mkfifo(path)
    elif thing == "socket":
        os.mknod(path, stat.S_IFSOCK)
    else:
        path.symlink_to(path)
    for read in (store.head, store.open_payload, lambda key: list(store.read(key))):
        with pytest.raises(DamagedObjectError):
            read("a")
    assert [(info.key, info.damaged) for info in store.list("")] == [("a", True), ("b", False)]


def test_an_object_that_may_not_be_opened_is_damaged(
    store: FolderBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"a")

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(DamagedObjectError):
            store.head("a")
        patch.setattr(os.path, "isdir", lambda _: False)
        with pytest.raises(Unavailable):
            store.head("a")
    assert store.head("a").size == 1


keys = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=200
).filter(lambda key: len(key.encode()) <= 900)


def test_ordinary_keys_stay_readable() -> None:
    assert object_path("blobs/ab/abcd") == ("blobs+", "ab+", "abcd")
    path = object_path("files/0a/x.2024-01-31T235959.000001Z")
    assert path[-1] == "x.2024-01-31%54235959.000001%5a"


@given(keys)
def test_paths_stay_in_root_and_ignore_no_case(key: str) -> None:
    for name in object_path(key):
        assert name.isascii()
        assert name == name.lower()
        assert name not in ("", ".", "..")
        assert not name.startswith(".")
        assert "/" not in name
        assert len(name) <= 255


@given(keys, keys)
def test_keys_have_distinct_paths(one: str, two: str) -> None:
    assert (object_path(one) == object_path(two)) == (one == two)
    assert object_path(one) != object_path(one + "/" + two)
    composed = unicodedata.normalize("NFC", one)
    assert (object_path(one) == object_path(composed)) == (one == composed)


@given(st.binary(max_size=60).filter(lambda segment: b"/" not in segment))
def test_a_name_spells_its_segment(segment: bytes) -> None:
    assert unescape_segment(escape_segment(segment)) == segment


@pytest.mark.parametrize(
    "name", ["Upper", "%41b", "%4", "%zz", ".hidden", "a+b", "%2E", "", "lost+found", "%%", "%61"]
)
def test_rejects_names_it_would_not_write(name: str) -> None:
    expected = {"%41b": b"Ab"}.get(name)
    assert unescape_segment(name) == expected


def test_long_segments_are_hashed_with_all_that_follows() -> None:
    long = "A" * (MAX_FILE_NAME // 3 + 1)
    assert object_path(f"x/{long}")[:-1] == ("x+",)
    assert object_path(f"x/{long}/y")[:-1] == ("x+",)
    assert object_path(f"x/{long}/y")[-1] != object_path(f"x/{long}/z")[-1]
    assert len(object_path(f"x/{long}/y")[-1]) == 65


def test_finds_objects_of_earlier_layouts() -> None:
    hashed = "~41d147874a22cc86f8c40b7e4471670eb54af1ed0318ac6ea2ff06e1b2cccb6e"
    assert object_path(f"x/{'a' * 200}/b") == ("x+", "a" * 200 + "+", "b")
    assert object_path(f"x/{'a' * 201}/b") == ("x+", hashed)


@pytest.mark.spec("OPS-43")
def test_a_url_signed_with_the_former_secret_is_valid() -> None:
    def parse(url: str) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(url).query))

    later = UrlSigner(b"t" * 32, "aws", former=(b"s" * 32,))
    assert later.verify("blobs/a", parse(SIGNER.sign("blobs/a", expires_s=60))).key == "blobs/a"
    upload = parse(SIGNER.sign_upload("blobs/a", expires_s=60, max_bytes=9))
    assert later.verify_upload("blobs/a", upload).max_bytes == 9
    with pytest.raises(Forbidden):
        SIGNER.verify("blobs/a", parse(later.sign("blobs/a", expires_s=60)))
