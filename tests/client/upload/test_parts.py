"""A file that is read once, in parts and in bounded memory, and the checksums of it."""

import json
import threading
import time
from pathlib import Path
from random import Random

import pytest

from store_client.checksums import MB, PREFIX, Checksums, Hashing, compute, md5, part_size
from store_client.errors import Damaged
from store_client.upload.parts import Changed, hashed, in_parts, opened, read_only, whole
from store_client.upload.sharing import Body, Shared, Stopped, sharing
from store_client.upload.walking import Local, Stamp, walk
from tests.client.upload.directories import large

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "etags.json").read_text())["files"]
TURN = bytes(number for number in range(251))


def known(vector: dict[str, str]) -> Checksums:
    return Checksums(*(vector[name] for name in ("sha1", "sha256", "crc32c", "s3_etag")))


def local(path: Path) -> Local:
    (found,) = walk(path.parent)
    return found


def made(path: Path, size: int) -> Local:
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for start in range(0, size, 251 * 4096):
            file.write((TURN * 4096)[: size - start])
    return local(path)


SMALL = [one for one in VECTORS if one["size"] <= 65 * MB]


@pytest.mark.parametrize("vector", SMALL, ids=lambda one: str(one["size"]))
def test_checksums_are_the_known_ones_whichever_way_a_file_is_read(
    tmp_path: Path, vector: dict[str, str]
) -> None:
    size = int(vector["size"])
    file = made(tmp_path / "s" / "file", size)
    # At exactly 64 MB two forms of the entity tag are right: ours is that of parts.
    wanted = {known(vector), known({**vector, "s3_etag": vector["other_etag"]})}
    with sharing(2) as shared:
        found = {read_only(file, shared), hashed(whole(file))}
        if size:
            found.add(in_parts(file, shared, lambda number, data, digest: None))
    assert len(found) == 1
    assert found <= wanted


def test_parts_follow_the_rule_of_the_entity_tag() -> None:
    assert part_size(1) == part_size(640_000 * MB) == 64 * MB
    assert part_size(640_000 * MB + 1) == 65 * MB
    assert part_size(5_000_000 * MB) == 500 * MB


def test_metadata_carry_the_names_that_the_store_wants() -> None:
    sums = compute([b"x"], 1)
    assert sorted(sums.metadata()) == [
        f"{PREFIX}{name}" for name in ("crc32c", "s3_etag", "sha1", "sha256")
    ]


def test_a_pass_that_is_hashed_by_threads_is_the_same(tmp_path: Path) -> None:
    data = Random(1).randbytes(9 * MB)
    hashing = Hashing(len(data))
    blocks = [data[at : at + MB] for at in range(0, len(data), MB)]
    assert list(hashing.over(blocks)) == blocks
    assert hashing.result() == compute([data], len(data))


def test_only_what_did_not_arrive_is_sent(tmp_path: Path) -> None:
    path = large(tmp_path / "s" / "big", 130 * MB)
    data = path.read_bytes()
    arrived = {1: md5(data[: 64 * MB]), 2: b"something else"}
    sent: dict[int, int] = {}

    def send(number: int, part: bytes, digest: bytes) -> None:
        assert digest == md5(part)
        sent[number] = len(part)

    with sharing(2) as shared:
        sums = in_parts(local(path), shared, send, arrived=arrived)
    assert sent == {2: 64 * MB, 3: 2 * MB}
    assert sums == compute([data], len(data))


def test_no_more_is_held_than_there_is_room_for(tmp_path: Path) -> None:
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

    with sharing(8, memory=130 * MB) as shared:
        in_parts(local(path), shared, send)
        # All room was given back.
        shared.take(130 * MB)
    assert most <= 130 * MB


def test_what_is_larger_than_all_the_room_goes_alone() -> None:
    with sharing(1, memory=10) as shared, shared.room(100):
        waiter = threading.Thread(target=lambda: shared.take(1), daemon=True)
        waiter.start()
        waiter.join(0.05)
        assert waiter.is_alive()
    waiter.join(5)
    assert not waiter.is_alive()


def test_whoever_waits_for_room_hears_of_the_stop() -> None:
    shared = Shared(1, memory=10)
    shared.take(10)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            shared.take(5)
        except Stopped as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    shared.stop()
    waiter.join(5)
    shared.parts.shutdown()
    assert raised


def test_a_part_that_fails_ends_the_file_and_gives_its_room_back(tmp_path: Path) -> None:
    path = large(tmp_path / "s" / "big", 200 * MB)

    def send(number: int, part: bytes, digest: bytes) -> None:
        raise Damaged(f"part {number}")

    with sharing(2, memory=64 * MB) as shared:
        with pytest.raises(Damaged, match="part"):
            in_parts(local(path), shared, send)
        shared.take(64 * MB)


def test_a_file_that_is_another_one_now_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s" / "file"
    file = made(path, 1000)
    with pytest.raises(Changed), opened(file):
        path.write_bytes(b"other")
    with pytest.raises(Changed):
        whole(file)
    gone = Local("file", str(tmp_path / "gone"), Stamp(1, 1, 1))
    with pytest.raises(Changed):
        whole(gone)


def test_a_body_tells_what_was_read_and_takes_back_what_is_sent_again() -> None:
    counted: list[int] = []

    class Counting:
        def total(self, files: int, bytes: int) -> None:  # noqa: A002
            """Nothing."""

        def bytes(self, n: int) -> None:
            counted.append(n)

        def file(self) -> None:
            """Nothing."""

    with sharing(1, Counting()) as shared:
        body = Body(b"x" * (3 * MB), shared)
        assert len(body) == 3 * MB
        body.read(16384)
        assert sum(counted) == Body.PIECE
        assert b"".join(body.again()) == b"x" * (3 * MB)
        assert body.read() == b""
        assert body.tell() == sum(counted) == 3 * MB
        body.seek(0)
        body.seek(0, 2)
        assert sum(counted) == 3 * MB
        shared.stop()
        with pytest.raises(Stopped):
            body.seek(0)
