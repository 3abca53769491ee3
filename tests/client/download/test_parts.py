"""A large file in parts: in several streams, taken up where each was."""

import threading
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from random import Random

import pytest

from store_client.checksums import MB
from store_client.errors import Damaged, StoreError, Unreachable
from store_client.transfer.fetcher import PartMap
from store_client.transfer.streams import StreamSlots
from tests.client.download.bucket import Bucket, Harm
from tests.client.download.conftest import Make

pytestmark = pytest.mark.spec("DWN-08")

DATA = Random(2).randbytes(9 * MB + 17)
PARTS = 10


def content(folder: Path) -> bytes:
    (path,) = (p for p in (folder / ".store" / "v2" / "files_2_4").rglob("*") if p.is_file())
    assert path.name == sha256(path.read_bytes()).hexdigest()
    return path.read_bytes()


def test_fetches_parts_in_parallel_streams(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    bucket.always = Harm(wait_s=0.05)
    fetching(large_from=1).fetch(bucket.wanted("a", DATA))
    assert content(tmp_path) == DATA
    assert sorted(first for _, first, _ in bucket.asked) == [n * MB for n in range(PARTS)]
    assert 1 < bucket.connections <= 4


def test_next_run_fetches_missing_parts_only(
    bucket: Bucket, fetching: Make, tmp_path: Path
) -> None:
    wanted = bucket.wanted("a", DATA)
    bucket.harm_at = lambda first: Harm() if first < 4 * MB else Harm(status=503)
    with pytest.raises(Unreachable):
        fetching(large_from=1, num_retries=0).fetch(wanted)
    bucket.harm_at, bucket.asked[:] = None, []
    fetching(large_from=1).fetch(wanted)
    assert content(tmp_path) == DATA
    assert sorted(first for _, first, _ in bucket.asked) == [n * MB for n in range(4, PARTS)]
    assert list((tmp_path / ".store" / "partial").iterdir()) == []


class Turns:
    """Answers the first requests of some parts in a given order, once all of them have come."""

    def __init__(self, order: tuple[int, ...], harms: dict[int, list[Harm]]) -> None:
        self._left = [part * MB for part in order]
        self._missing = set(self._left)
        self._harms = {part * MB: list(of) for part, of in harms.items()}
        self._changed = threading.Condition()

    def __call__(self, first: int) -> Harm:
        with self._changed:
            if first in self._missing:
                self._missing.discard(first)
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: not self._missing and self._left[0] == first, timeout=30
                )
                # The client has some time for this answer before it gets the next one.
                threading.Timer(0.01, self._next).start()
        harms = self._harms[first]
        return harms.pop(0) if len(harms) > 1 else harms[0]

    def _next(self) -> None:
        with self._changed:
            self._left.pop(0)
            self._changed.notify_all()


FOUR = DATA[: 4 * MB]
CUT, BUSY, GOOD = Harm(cut_at=0), Harm(status=503), Harm()
ORDERS = list(permutations(range(1, 4)))


@pytest.mark.spec("CLI-141")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("harms", "error"),
    [({1: [CUT], 2: [BUSY], 3: [GOOD]}, Damaged), ({1: [GOOD], 2: [BUSY], 3: [CUT]}, Unreachable)],
)
def test_first_failed_part_decides(
    bucket: Bucket,
    fetching: Make,
    order: tuple[int, ...],
    harms: dict[int, list[Harm]],
    error: type[StoreError],
) -> None:
    bucket.harm_at = Turns((*order, 0), {0: [GOOD], **harms})
    with pytest.raises(error):
        fetching(large_from=1, num_retries=0).fetch(bucket.wanted("a", FOUR))
    assert sorted(first for _, first, _ in bucket.asked) == [n * MB for n in range(4)]


@pytest.mark.spec("CLI-141")
@pytest.mark.parametrize("order", ORDERS)
def test_each_part_has_its_own_quota(
    bucket: Bucket, fetching: Make, tmp_path: Path, order: tuple[int, ...]
) -> None:
    bucket.harm_at = Turns((*order, 0), {part: [CUT, GOOD] for part in range(4)})
    fetching(large_from=1, num_retries=1).fetch(bucket.wanted("a", FOUR))
    assert content(tmp_path) == FOUR


def test_server_without_ranges_uses_one_stream(
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
    temporary = one.cache.part_path(wanted.sha256)
    path = one.cache.partial_path(wanted.sha256, "parts")
    for kept in (b"", b"rubbish", _all_done(path)):
        path.write_bytes(kept)
        temporary.write_bytes(b"shorter")
        assert one.fetch(wanted)
        assert content(tmp_path) == DATA
        one.cache.path(wanted.sha256).unlink()


def test_detects_false_map_of_parts(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    wanted = bucket.wanted("a", DATA)
    one = fetching(large_from=1)
    one.cache.part_path(wanted.sha256).write_bytes(bytes(len(DATA)))
    path = one.cache.partial_path(wanted.sha256, "parts")
    path.write_bytes(_all_done(path))
    one.fetch(wanted)
    assert content(tmp_path) == DATA


def test_partial_parts_are_no_prefix(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
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
    assert parts.contiguous_bytes() == len(DATA)
    parts.close()
    return path.read_bytes()


def test_spare_slots_are_those_without_waiters() -> None:
    slots = StreamSlots(2)
    slots.acquire()
    assert slots.try_acquire()
    assert not slots.try_acquire()
    slots.release()
    assert slots.try_acquire()
