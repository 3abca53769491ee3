"""A file that is read once, in parts and in bounded memory, and the checksums of it."""

import json
import os
import threading
import time
from pathlib import Path
from random import Random

import pytest

from store_client.checksums import (
    MB,
    METADATA_PREFIX,
    FileChecksums,
    FileHasher,
    hash_bytes,
    md5_digest,
    part_size,
)
from store_client.errors import Damaged
from store_client.local_files import FileStamp, LocalFile, OutgoingFile, list_files
from store_client.progress import NoProgress
from store_client.transfer.engine import (
    MAX_MEMORY,
    MemoryBody,
    RollbackProgress,
    Stopped,
    StopSignal,
    TransferContext,
    open_transfer,
    run_each,
)
from store_client.transfer.parts import (
    FileChanged,
    hash_file,
    open_unchanged,
    read_whole,
    send_parts,
)
from tests.client.upload.directories import large

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "etags.json").read_text())["files"]
TURN = bytes(number for number in range(251))


def known(vector: dict[str, str]) -> FileChecksums:
    return FileChecksums(*(vector[name] for name in ("sha1", "sha256", "crc32c", "s3_etag")))


def local(path: Path) -> LocalFile:
    (found,) = list_files(path.parent)
    return found


def made(path: Path, size: int) -> LocalFile:
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for start in range(0, size, 251 * 4096):
            file.write((TURN * 4096)[: size - start])
    return local(path)


SMALL = [one for one in VECTORS if one["size"] <= 65 * MB]


@pytest.mark.spec("UPL-07")
@pytest.mark.parametrize("vector", SMALL, ids=lambda one: str(one["size"]))
def test_checksums_are_right_in_every_reading_mode(tmp_path: Path, vector: dict[str, str]) -> None:
    size = int(vector["size"])
    file = made(tmp_path / "s" / "file", size)
    # At exactly 64 MB two forms of the entity tag are right: ours is that of parts.
    wanted = {known(vector), known({**vector, "s3_etag": vector["other_etag"]})}
    with open_transfer(2) as shared:
        found = {hash_file(file, shared), hash_bytes(read_whole(file))}
        if size:
            found.add(send_parts(file, shared, lambda number, data, digest: None))
    assert len(found) == 1
    assert found <= wanted


@pytest.mark.spec("UPL-07")
def test_parts_follow_the_rule_of_the_entity_tag() -> None:
    assert part_size(1) == part_size(640_000 * MB) == 64 * MB
    assert part_size(640_000 * MB + 1) == 65 * MB
    assert part_size(5_000_000 * MB) == 500 * MB


@pytest.mark.spec("UPL-07")
def test_metadata_names_follow_store() -> None:
    sums = hash_bytes(b"x")
    assert sorted(sums.metadata()) == [
        f"{METADATA_PREFIX}{name}" for name in ("crc32c", "s3_etag", "sha1", "sha256")
    ]


@pytest.mark.spec("UPL-07")
def test_a_pass_that_is_hashed_by_threads_is_the_same(tmp_path: Path) -> None:
    data = Random(1).randbytes(9 * MB)
    hashing = FileHasher(len(data))
    blocks = [data[at : at + MB] for at in range(0, len(data), MB)]
    assert list(hashing.hash_blocks(blocks)) == blocks
    assert hashing.checksums() == hash_bytes(data)


@pytest.mark.spec("UPL-10")
def test_sends_missing_parts_only(tmp_path: Path) -> None:
    path = large(tmp_path / "s" / "big", 130 * MB)
    data = path.read_bytes()
    stored = {1: md5_digest(data[: 64 * MB]), 2: b"something else"}
    sent: dict[int, int] = {}

    def send(number: int, part: bytes, digest: bytes) -> None:
        assert digest == md5_digest(part)
        sent[number] = len(part)

    with open_transfer(2) as shared:
        sums = send_parts(
            local(path), shared, send, is_stored=lambda n, digest: stored.get(n) == digest
        )
    assert sent == {2: 64 * MB, 3: 2 * MB}
    assert sums == hash_bytes(data)


@pytest.mark.spec("UPL-07")
def test_memory_is_bounded(tmp_path: Path) -> None:
    path = large(tmp_path / "s" / "big", 320 * MB)
    held, most, lock = 0, 0, threading.Lock()

    def send(number: int, part: bytes, digest: bytes) -> None:
        nonlocal held, most
        with lock:
            held += len(part)
            most = max(most, held)
        time.sleep(0.02)
        with lock:
            held -= len(part)

    with open_transfer(8, memory=130 * MB) as shared:
        send_parts(local(path), shared, send)
        # All room was given back.
        shared.memory.reserve(130 * MB)
    assert most <= 130 * MB


@pytest.mark.spec("UPL-07")
def test_oversized_part_goes_alone() -> None:
    with open_transfer(1, memory=10) as shared, shared.memory.hold(100):
        waiter = threading.Thread(target=lambda: shared.memory.reserve(1), daemon=True)
        waiter.start()
        waiter.join(0.05)
        assert waiter.is_alive()
    waiter.join(5)
    assert not waiter.is_alive()


@pytest.mark.spec("UPL-07")
def test_stop_wakes_waiters_for_memory() -> None:
    shared = TransferContext(1, memory=10)
    shared.memory.reserve(10)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            shared.memory.reserve(5)
        except Stopped as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    shared.stop.set()
    waiter.join(5)
    shared.part_pool.shutdown()
    assert raised


@pytest.mark.spec("UPL-07")
def test_failed_part_ends_file_and_releases_memory(tmp_path: Path) -> None:
    path = large(tmp_path / "s" / "big", 200 * MB)

    def send(number: int, part: bytes, digest: bytes) -> None:
        raise Damaged(f"part {number}")

    with open_transfer(2, memory=64 * MB) as shared:
        with pytest.raises(Damaged, match="part"):
            send_parts(local(path), shared, send)
        shared.memory.reserve(64 * MB)


@pytest.mark.spec("UPL-08")
def test_a_file_that_is_another_one_now_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s" / "file"
    file = made(path, 1000)
    with pytest.raises(FileChanged), open_unchanged(file):
        path.write_bytes(b"other")
    with pytest.raises(FileChanged):
        read_whole(file)
    gone = LocalFile("file", str(tmp_path / "gone"), FileStamp(1, 1, 1))
    with pytest.raises(FileChanged):
        read_whole(gone)


@pytest.mark.spec("UPL-08")
def test_a_file_that_became_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    path, secret = tmp_path / "s" / "file", tmp_path / "secret"
    file = made(path, 1000)
    secret.write_bytes(path.read_bytes())
    os.utime(secret, ns=(file.stamp.mtime_ns, file.stamp.mtime_ns))
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(FileChanged):
        read_whole(file)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileChanged):
        read_whole(file)


@pytest.mark.spec("UPL-22")
def test_body_reports_progress_and_takes_it_back() -> None:
    counted: list[int] = []

    class Counting:
        def total(self, files: int, bytes: int) -> None:  # noqa: A002
            """Nothing."""

        def bytes(self, n: int) -> None:
            counted.append(n)

        def file(self) -> None:
            """Nothing."""

    with open_transfer(1, Counting()) as shared:
        body = MemoryBody(b"x" * (3 * MB), shared)
        assert len(body) == 3 * MB
        body.read(16384)
        assert sum(counted) == MemoryBody.PIECE
        assert b"".join(body.blocks()) == b"x" * (3 * MB)
        assert body.read() == b""
        assert body.tell() == sum(counted) == 3 * MB
        body.seek(0)
        body.seek(0, 2)
        assert sum(counted) == 3 * MB
        shared.stop.set()
        with pytest.raises(Stopped):
            body.seek(0)


@pytest.mark.parametrize("part", [MB, 3 * MB, 1_500_000, 9_999_999, 10_000_000])
def test_parts_of_any_size_arrive_and_checksums_are_of_the_whole(tmp_path: Path, part: int) -> None:
    data = Random(2).randbytes(10_000_000)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "file").write_bytes(data)
    parts: dict[int, bytes] = {}

    def send(number: int, sent: bytes, digest: bytes) -> None:
        parts[number] = sent

    with open_transfer(4) as shared:
        sums = send_parts(local(tmp_path / "s" / "file"), shared, send, size=part)
    assert b"".join(parts[number] for number in sorted(parts)) == data
    assert sorted(parts) == list(range(1, -(-len(data) // part) + 1))
    assert sums == hash_bytes(data)


def test_checksums_of_a_large_file_in_other_parts_have_the_usual_entity_tag(tmp_path: Path) -> None:
    path = large(tmp_path / "s" / "big", 70 * MB)
    with open_transfer(4) as shared:
        sums = send_parts(local(path), shared, lambda *_: None, size=9 * MB)
    assert sums == hash_bytes(path.read_bytes())


def test_stored_parts_are_read_and_not_sent(tmp_path: Path) -> None:
    file = made(tmp_path / "s" / "file", 10 * MB)
    sent: list[int] = []
    with open_transfer(2) as shared:
        send_parts(
            file,
            shared,
            lambda number, data, digest: sent.append(number),
            size=3 * MB,
            is_stored=lambda number, digest: number in (1, 3),
        )
    assert sorted(sent) == [2, 4]


def test_stops_soon_while_parts_are_slow(tmp_path: Path) -> None:
    file, stop = made(tmp_path / "s" / "file", 20 * MB), threading.Event()
    context = TransferContext(2, stop=stop, memory=5 * MB)

    def send(number: int, data: bytes, digest: bytes) -> None:
        # An event of the caller's, which wakes nobody.
        stop.set()
        for _ in MemoryBody(data, context).blocks():
            time.sleep(0.01)

    began = time.monotonic()
    with pytest.raises(Stopped):
        send_parts(file, context, send, size=5 * MB)
    assert time.monotonic() - began < 5


def test_a_file_that_became_shorter_or_longer_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * MB))
    for size in (3 * MB, 5 * MB, 4 * MB + 1):
        file = OutgoingFile(path, "a", "text/plain", size).local()
        with open_transfer(2) as shared:
            with pytest.raises(FileChanged):
                send_parts(file, shared, lambda *_: None, size=MB)
            # All memory was given back.
            shared.memory.reserve(MAX_MEMORY)


def test_returns_results_as_completed_and_first_error_stops() -> None:
    stop = StopSignal()
    found = run_each(lambda n: n * n, [3, 1, 2], jobs=2, stop=stop)
    assert sorted(found) == [(0, 9), (1, 1), (2, 4)]
    assert not stop.is_set()

    def fail(number: int) -> int:
        stop.check()
        if number == 1:
            raise Damaged("one")
        stop.pause(20)
        return number

    began = time.monotonic()
    with pytest.raises(Damaged, match="one"):
        list(run_each(fail, [0, 1, 2, 3], jobs=2, stop=stop))
    assert stop.is_set()
    assert time.monotonic() - began < 10


def test_takes_back_progress_of_failed_file() -> None:
    counted: list[int] = []

    class Counting(NoProgress):
        def bytes(self, n: int) -> None:
            counted.append(n)

    context = TransferContext(1, Counting())
    progress = RollbackProgress(context.tell)
    MemoryBody(b"x" * MB, context.with_progress(progress)).read()
    assert sum(counted) == MB
    progress.roll_back()
    assert sum(counted) == 0
