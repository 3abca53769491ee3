"""One file from a bucket that misbehaves: its bytes exactly, or an error and nothing."""

import threading
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from store_client.checksums import MB
from store_client.errors import Damaged, StoreError, Unreachable
from store_client.transfer.engine import Stopped
from tests.client.download.bucket import Bucket, Harm
from tests.client.download.conftest import Make, Unhurried

DATA = Random(1).randbytes(5 * MB // 2)
SMALL = b"a few bytes"


def cached(folder: Path) -> dict[str, bytes]:
    """Whole files of the cache; each is what its name says."""
    found = {
        path.name: path.read_bytes()
        for path in (folder / ".store" / "v2" / "files_2_4").rglob("*")
        if path.is_file()
    }
    for name, data in found.items():
        assert sha256(data).hexdigest() == name
    return found


def left_over(folder: Path) -> list[str]:
    return sorted(path.suffix for path in (folder / ".store" / "partial").glob("*"))


@pytest.mark.spec("DWN-06")
@pytest.mark.parametrize("data", [b"", SMALL, DATA], ids=["empty", "small", "blocks"])
def test_fetches_exact_bytes_once(
    bucket: Bucket, fetching: Make, tmp_path: Path, data: bytes
) -> None:
    wanted = bucket.wanted("a", data)
    assert fetching().fetch(wanted)
    assert list(cached(tmp_path).values()) == [data]
    assert not fetching().fetch(wanted)
    assert len(bucket.asked) == (1 if data else 0)
    assert left_over(tmp_path) == []


@pytest.mark.spec("DWN-09")
def test_no_token_is_sent_to_a_bucket(bucket: Bucket, fetching: Make) -> None:
    fetching().fetch(bucket.wanted("a", SMALL))
    assert bucket.asked == [("a", 0, None)]


@pytest.mark.spec("DWN-10")
def test_a_connection_serves_many_files(bucket: Bucket, fetching: Make) -> None:
    one = fetching()
    for number in range(10):
        one.fetch(bucket.wanted(f"f{number}", b"%d" % number))
    assert bucket.connections == 1


MENDED = {
    "cut": [Harm(cut_at=2 * MB)],
    "cut at once": [Harm(cut_at=0)],
    "cut often": [Harm(cut_at=MB), Harm(cut_at=MB)],
    "flipped": [Harm(flip_at=7)],
    "flipped twice": [Harm(flip_at=7), Harm(flip_at=MB)],
    "busy": [Harm(status=503, retry_after=1), Harm(status=500)],
    "refused": [Harm(status=403)],
    "gone": [Harm(status=404)],
    "no http": [Harm(garbage=b"\x00\x01 what?\r\n\r\n")],
    "nothing": [Harm(garbage=b"HTTP/1.1 200 OK\r\n\r\n")],
    "chunked": [Harm(chunked=True)],
    "claims less": [Harm(claims=10)],
    "claims more": [Harm(claims=10 * MB)],
    "moved": [Harm(moved_to="/a?signature=1")],
}


@pytest.mark.spec("DWN-06")
@pytest.mark.parametrize("harms", MENDED.values(), ids=MENDED)
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
def test_survives_occasional_faults(
    bucket: Bucket, fetching: Make, tmp_path: Path, harms: list[Harm], parts: bool
) -> None:
    bucket.harms = list(harms)
    fetching(large_from=1 if parts else 1 << 40).fetch(bucket.wanted("a", DATA))
    assert list(cached(tmp_path).values()) == [DATA]
    assert left_over(tmp_path) == []


LASTING = {
    "cut": (Harm(cut_at=0), Damaged),
    "flipped": (Harm(flip_at=7), Damaged),
    "busy": (Harm(status=503), Unreachable),
    "refused": (Harm(status=403), Unreachable),
    "no http": (Harm(garbage=b"?\r\n\r\n"), Unreachable),
    "another size": (Harm(claims=10), Damaged),
    "moved for ever": (Harm(moved_to="/a?signature=1"), Unreachable),
}


@pytest.mark.spec("DWN-06")
@pytest.mark.parametrize(("harm", "error"), LASTING.values(), ids=LASTING)
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
def test_lasting_fault_is_an_error_without_file(
    bucket: Bucket,
    fetching: Make,
    tmp_path: Path,
    harm: Harm,
    error: type[StoreError],
    parts: bool,
) -> None:
    bucket.always = harm
    with pytest.raises(error):
        fetching(large_from=1 if parts else 1 << 40).fetch(bucket.wanted("a", DATA))
    assert cached(tmp_path) == {}
    bucket.always = Harm()
    fetching(large_from=1 if parts else 1 << 40).fetch(bucket.wanted("a", DATA))
    assert list(cached(tmp_path).values()) == [DATA]


@pytest.mark.spec("DWN-05")
def test_logs_retries_without_signature(bucket: Bucket, fetching: Make, stop: Unhurried) -> None:
    wanted = bucket.wanted("a", SMALL, url="http://127.0.0.1:9/a?signature=secret")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9") as caught:
        fetching(num_retries=2).fetch(wanted)
    assert "secret" not in str(caught.value)
    assert stop.waits == [0.25, 0.5]


@pytest.mark.spec("DWN-07")
def test_resumes_after_cut_connection(bucket: Bucket, fetching: Make) -> None:
    bucket.harms = [Harm(cut_at=2 * MB)]
    fetching().fetch(bucket.wanted("a", DATA))
    assert [first for _, first, _ in bucket.asked] == [0, 2 * MB]


@pytest.mark.spec("DWN-07")
def test_next_run_resumes(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    wanted = bucket.wanted("a", DATA)
    bucket.harms, bucket.always = [Harm(cut_at=2 * MB)], Harm(status=503)
    with pytest.raises(Unreachable):
        fetching(num_retries=0).fetch(wanted)
    assert left_over(tmp_path) == [".part"]
    bucket.always, bucket.asked[:] = Harm(), []
    fetching().fetch(wanted)
    assert [first for _, first, _ in bucket.asked] == [2 * MB]
    assert list(cached(tmp_path).values()) == [DATA]


@pytest.mark.spec("DWN-06")
def test_server_without_ranges_starts_again(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    bucket.harms = [Harm(cut_at=2 * MB), Harm(whole=True)]
    fetching().fetch(bucket.wanted("a", DATA))
    assert list(cached(tmp_path).values()) == [DATA]


@pytest.mark.spec("DWN-05")
def test_gives_up_on_server_that_always_starts_again(bucket: Bucket, fetching: Make) -> None:
    bucket.always = Harm(cut_at=2 * MB, whole=True)
    with pytest.raises(Damaged, match="bytes arrived"):
        fetching().fetch(bucket.wanted("a", DATA))
    assert len(bucket.asked) == 1 + 3 + 2  # two blocks were new


@pytest.mark.spec("DWN-06")
def test_rejects_damaged_partial_file(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    wanted = bucket.wanted("a", DATA)
    one = fetching()
    for rest in (b"wrong", b"x" * len(DATA), b"x" * (len(DATA) + 1)):
        one.cache.part_path(wanted.sha256).write_bytes(rest)
        assert one.fetch(wanted)
        assert list(cached(tmp_path).values()) == [DATA]
        one.cache.path(wanted.sha256).unlink()


@pytest.mark.spec("DWN-09")
def test_requests_new_url_after_expiry(bucket: Bucket, fetching: Make) -> None:
    wanted = bucket.wanted("a", SMALL)
    bucket.good = "2"
    fetching(num_retries=1).fetch(wanted)
    assert len(bucket.asked) == 2


@pytest.mark.spec("DWN-09")
def test_requests_missing_url(bucket: Bucket, fetching: Make) -> None:
    fetching().fetch(bucket.wanted("a", SMALL, url=""))
    assert len(bucket.asked) == 1


@pytest.mark.spec("DWN-09")
def test_rejects_non_http_url(bucket: Bucket, fetching: Make) -> None:
    with pytest.raises(StoreError, match="http"):
        fetching().fetch(bucket.wanted("a", SMALL, url="file:///etc/passwd"))


@pytest.mark.spec("DWN-11")
def test_concurrent_downloads_fetch_once(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    wanted = bucket.wanted("a", DATA)
    bucket.always = Harm(wait_s=0.2)
    # Two caches of one folder are as two processes.
    both = [fetching(), fetching()]
    came: list[bool] = []
    threads = [
        threading.Thread(target=lambda one=one: came.append(one.fetch(wanted))) for one in both
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == [False, True]
    assert len(bucket.asked) == 1
    assert left_over(tmp_path) == []


@pytest.mark.spec("DWN-07")
def test_stopped_download_keeps_partial_file(
    bucket: Bucket, fetching: Make, stop: Unhurried
) -> None:
    bucket.always = Harm(wait_s=0.5)
    one = fetching()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(Stopped):
        one.fetch(bucket.wanted("a", DATA))


@pytest.mark.spec("DWN-06")
def test_reports_full_disk(bucket: Bucket, fetching: Make, tmp_path: Path) -> None:
    one = fetching()
    (tmp_path / ".store" / "partial").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        one.fetch(bucket.wanted("a", DATA))


@pytest.mark.spec("DWN-06")
def test_small_file_that_arrives_damaged_is_fetched_again(
    bucket: Bucket, fetching: Make, tmp_path: Path
) -> None:
    bucket.harms = [Harm(flip_at=3)]

    fetching().fetch(bucket.wanted("a", SMALL))

    assert list(cached(tmp_path).values()) == [SMALL]
