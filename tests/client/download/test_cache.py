"""The cache: what is trusted, what is read again, what is left of who was killed."""

import os
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from store_client.errors import Damaged, StoreError
from store_client.transfer import cache
from store_client.transfer.cache import ABANDONED_S, ContentCache

pytestmark = pytest.mark.spec("DWN-03")

DATA = b"content"
KEY = sha256(DATA).hexdigest()


@pytest.fixture
def kept(tmp_path: Path) -> ContentCache:
    made = cache.open_cache(tmp_path / ".store", make=True)
    made.add(memoryview(DATA), KEY)
    return made


def again(kept: ContentCache) -> ContentCache:
    return cache.open_cache(kept.root, make=False)


@pytest.mark.spec("DWN-02")
def test_path_follows_from_digest(kept: ContentCache) -> None:
    assert kept.path(KEY) == kept.root / "v2" / "files_2_4" / KEY[:2] / KEY[2:6] / KEY
    assert kept.path(KEY).read_bytes() == DATA


@pytest.mark.parametrize("key", ["", "../../x", KEY.upper(), KEY + "\n", "0" * 63])
def test_rejects_invalid_digest(kept: ContentCache, key: str) -> None:
    with pytest.raises(Damaged):
        kept.path(key)


def test_verified_file_is_not_read_again(kept: ContentCache) -> None:
    path = kept.path(KEY)
    before = path.stat()
    path.write_bytes(b"CONTENT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    # Nobody can forge this by accident; it shows that nothing is read.
    assert again(kept).has(KEY, len(DATA))


def test_edited_file_is_read_again_and_dropped(kept: ContentCache) -> None:
    path = kept.path(KEY)
    path.write_bytes(b"CONTENT")
    os.utime(path, ns=(1, 1))
    assert not again(kept).has(KEY, len(DATA))
    assert not path.exists()


def test_touched_file_is_read_again_and_kept(kept: ContentCache) -> None:
    os.utime(kept.path(KEY), ns=(1, 1))
    assert again(kept).has(KEY, len(DATA))
    assert again(kept).has(KEY, len(DATA))


def test_file_of_other_size_is_a_miss(kept: ContentCache) -> None:
    assert not kept.has(KEY, len(DATA) + 1)
    assert not kept.has_size(KEY, len(DATA) + 1)


def test_damaged_notes_of_what_was_proved_cost_a_reading_only(kept: ContentCache) -> None:
    (kept.root / "v2" / "verified").write_bytes(b"\xff\x00 rubbish\n" + KEY.encode() + b"\t1\t2")
    assert again(kept).has(KEY, len(DATA))


def test_removes_old_leftovers_of_killed_runs(kept: ContentCache) -> None:
    old, new = (kept.partial_path("1" * 64, f"{number}.tmp") for number in range(2))
    old.write_bytes(b"")
    new.write_bytes(b"")
    long_ago = time.time() - ABANDONED_S - 60
    os.utime(old, (long_ago, long_ago))
    again(kept)
    assert (old.exists(), new.exists()) == (False, True)


def test_reports_unusable_cache_folder(tmp_path: Path) -> None:
    (tmp_path / ".store").write_text("a file")
    with pytest.raises(StoreError, match="cannot create the cache"):
        cache.open_cache(tmp_path / ".store", make=True)


@pytest.mark.spec("DWN-11")
def test_lock_is_exclusive_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "one.lock"
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with cache.hold_lock_file(path, lambda _: time.sleep(0.001)):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not path.exists()


@pytest.mark.spec("DWN-64")
def test_folder_is_not_a_cached_file(kept: ContentCache, tmp_path: Path) -> None:
    path = kept.path(KEY)
    path.unlink()
    (tmp_path / "outside").write_bytes(DATA)
    path.symlink_to(os.path.relpath(tmp_path / "outside", path.parent))
    assert not again(kept).has(KEY, path.lstat().st_size)
    os.mkfifo(path)
    # Read, it would never end.
    assert not again(kept).has(KEY, 0)
    path.mkdir()
    with pytest.raises(StoreError, match="is a directory"):
        again(kept).has(KEY, path.stat().st_size)


@pytest.mark.spec("DWN-65")
def test_resumed_large_file_needs_less_space(kept: ContentCache) -> None:
    size = 8_000_000
    assert kept.missing_bytes(KEY, size) == size
    with kept.part_path(KEY).open("wb") as file:
        file.truncate(size)
        assert kept.missing_bytes(KEY, size) > size - 100_000
        file.write(bytes([1]) * (size // 2))
        file.flush()
        os.fsync(file.fileno())
        assert size // 2 - 100_000 < kept.missing_bytes(KEY, size) <= size // 2
