"""A large file in parts: in several streams, taken up where each was."""

from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from store_client.checksums import MB
from store_client.download.partmap import PartMap
from store_client.download.slots import Slots
from store_client.errors import Unreachable
from tests.client.download.bucket import Bucket, Harm
from tests.client.download.conftest import Make

DATA = Random(2).randbytes(9 * MB + 17)
PARTS = 10


def content(folder: Path) -> bytes:
    (path,) = (p for p in (folder / ".store" / "v2" / "files_2_4").rglob("*") if p.is_file())
    assert path.name == sha256(path.read_bytes()).hexdigest()
    return path.read_bytes()


def test_parts_come_in_several_streams_and_make_the_file(
    bucket: Bucket, fetching: Make, tmp_path: Path
) -> None:
    bucket.always = Harm(wait_s=0.05)
    fetching(large_from=1).fetch(bucket.wanted("a", DATA))
    assert content(tmp_path) == DATA
    assert sorted(first for _, first, _ in bucket.asked) == [n * MB for n in range(PARTS)]
    assert 1 < bucket.connections <= 4


def test_the_next_run_asks_only_for_what_is_missing(
    bucket: Bucket, fetching: Make, tmp_path: Path
) -> None:
    wanted = bucket.wanted("a", DATA)
    bucket.harms = [Harm()] * 4 + [Harm(cut_at=1000)]
    bucket.always = Harm(status=503)
    with pytest.raises(Unreachable):
        fetching(large_from=1, num_retries=0).fetch(wanted)
    done = {first for _, first, _ in bucket.asked[:4]}
    bucket.harms, bucket.always, bucket.asked[:] = [], Harm(), []
    fetching(large_from=1).fetch(wanted)
    assert content(tmp_path) == DATA
    assert not done & {first for _, first, _ in bucket.asked}
    assert list((tmp_path / ".store" / "partial").iterdir()) == []


def test_a_server_without_ranges_gives_it_in_one_stream(
    bucket: Bucket, fetching: Make, tmp_path: Path
) -> None:
    bucket.always = Harm(whole=True)
    fetching(large_from=1).fetch(bucket.wanted("a", DATA))
    assert content(tmp_path) == DATA


def test_a_map_that_does_not_fit_its_file_is_not_believed(
    bucket: Bucket, fetching: Make, tmp_path: Path
) -> None:
    wanted = bucket.wanted("a", DATA)
    one = fetching(large_from=1)
    temporary = one.cache.temporary(wanted.sha256, wanted.size)
    path = one.cache.partial(wanted.sha256, "parts")
    for kept in (b"", b"rubbish", _all_done(path)):
        path.write_bytes(kept)
        temporary.write_bytes(b"shorter")
        assert one.fetch(wanted)
        assert content(tmp_path) == DATA
        one.cache.path(wanted.sha256).unlink()


def test_a_map_that_lies_is_found_out(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    wanted = bucket.wanted("a", DATA)
    one = fetching(large_from=1)
    one.cache.temporary(wanted.sha256, wanted.size).write_bytes(bytes(len(DATA)))
    path = one.cache.partial(wanted.sha256, "parts")
    path.write_bytes(_all_done(path))
    one.fetch(wanted)
    assert content(tmp_path) == DATA


def test_what_came_in_parts_is_not_taken_for_a_beginning(
    bucket: Bucket, fetching: Make, tmp_path: Path
) -> None:
    wanted = bucket.wanted("a", DATA)
    bucket.harms, bucket.always = [Harm()], Harm(status=503)
    with pytest.raises(Unreachable):
        fetching(large_from=1, num_retries=0).fetch(wanted)
    bucket.always, bucket.asked[:] = Harm(), []
    fetching().fetch(wanted)
    assert content(tmp_path) == DATA
    assert [first for _, first, _ in bucket.asked] == [0]


def _all_done(path: Path) -> bytes:
    path.unlink(missing_ok=True)
    parts = PartMap(path, len(DATA), part=MB)
    for number in range(parts.count):
        parts.advance(number, parts.length(number))
    assert parts.prefix() == len(DATA)
    parts.close()
    return path.read_bytes()


def test_a_spare_slot_is_one_that_nobody_waits_for() -> None:
    slots = Slots(2)
    slots.take()
    assert slots.spare()
    assert not slots.spare()
    slots.give()
    assert slots.spare()
