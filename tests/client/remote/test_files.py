"""File objects over a bucket that misbehaves: the bytes of the file, or an error."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_client.errors import Damaged, StoreError, Unreachable
from store_client.remote.content import LEAST_AHEAD
from tests.client.download.bucket import Bucket, Harm
from tests.client.download.conftest import Unhurried
from tests.client.remote.conftest import OpenContent, OpenFile
from tests.property_depth import examples

MIB = 1 << 20
DATA = Random(7).randbytes(3 * MIB + 17)
LINES = b"".join(b"%d,%d\r\n" % (number, number * number) for number in range(40_000))

SEEKS = st.tuples(st.just("seek"), st.integers(0, len(DATA) + 10), st.just(0))
MOVES = st.tuples(st.just("seek"), st.integers(-100, MIB), st.just(1))
ENDS = st.tuples(st.just("seek"), st.integers(-len(DATA), 10), st.just(2))
READS = st.tuples(st.just("read"), st.integers(0, MIB), st.just(0))
LINE_READS = st.tuples(st.just("readline"), st.integers(-1, 1000), st.just(0))
INTO = st.tuples(st.just("readinto"), st.integers(0, MIB), st.just(0))


def do(file: io.BufferedIOBase, step: tuple[str, int, int]) -> object:
    """What one step gives; an error is given by its type."""
    name, number, whence = step
    try:
        if name == "seek":
            return file.seek(number, whence)
        if name == "readinto":
            buffer = bytearray(number)
            return file.readinto(buffer), bytes(buffer)
        return getattr(file, name)(number)
    except (ValueError, OSError) as error:
        return ValueError if isinstance(error, OSError) else type(error)


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(SEEKS, MOVES, ENDS, READS, LINE_READS, INTO), max_size=12),
    st.booleans(),
)
def test_reads_as_local_file(
    open_file: OpenFile, tmp_path: Path, steps: list[tuple[str, int, int]], whole_at_end: bool
) -> None:
    (tmp_path / "local").write_bytes(DATA)
    with open_file(DATA) as ours, (tmp_path / "local").open("rb") as theirs:
        for step in steps:
            assert do(ours, step) == do(theirs, step), step
            assert ours.tell() == theirs.tell()
        if whole_at_end:
            assert ours.read() == theirs.read()


def test_reads_whole_file_in_one_request(bucket: Bucket, open_file: OpenFile) -> None:
    with open_file(DATA) as file:
        assert file.read() == DATA
        assert file.read() == b""
    assert [first for _, first, _ in bucket.asked] == [0]


def test_reads_ahead_more_as_reading_goes_on(bucket: Bucket, open_file: OpenFile) -> None:
    with open_file(DATA) as file:
        while file.read(1000):
            pass
    windows = [first for _, first, _ in bucket.asked]
    assert windows == [0, LEAST_AHEAD, 3 * LEAST_AHEAD, 7 * LEAST_AHEAD]


def test_jumps_fetch_little(bucket: Bucket, open_file: OpenFile) -> None:
    with open_file(DATA) as file:
        for place in (2 * MIB, MIB, 0, len(DATA) - 5):
            file.seek(place)
            assert file.read(3) == DATA[place : place + 3]
    assert [first for _, first, _ in bucket.asked] == [2 * MIB, MIB, 0, len(DATA) - 5]
    assert bucket.connections == 1


def test_opening_requests_nothing(bucket: Bucket, open_file: OpenFile) -> None:
    with open_file(DATA) as file:
        assert file.seek(0, os.SEEK_END) == len(DATA)
    assert bucket.asked == []


def test_closed_file_refuses(open_file: OpenFile) -> None:
    file = open_file(DATA)
    file.close()
    file.close()
    for use in (lambda: file.read(1), lambda: file.seek(0), file.tell, file.raw.tell):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_file_is_read_only(open_file: OpenFile) -> None:
    with open_file(DATA) as file:
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")


def test_text_has_lines(open_file: OpenFile) -> None:
    with io.TextIOWrapper(open_file(LINES), "ascii") as text:
        lines = list(text)
    assert len(lines) == 40_000
    assert lines[7] == "7,49\n"


MENDED = {
    "cut": [Harm(cut_at=MIB)],
    "cut at once": [Harm(cut_at=0)],
    "busy": [Harm(status=503, retry_after=1), Harm(status=500)],
    "refused": [Harm(status=403)],
    "no http": [Harm(garbage=b"\x00\x01 what?\r\n\r\n")],
    "chunked": [Harm(chunked=True)],
    "moved": [Harm(moved_to="/a?signature=1")],
}


@pytest.mark.parametrize("harms", MENDED.values(), ids=MENDED)
@pytest.mark.parametrize("piece", [-1, 500_000], ids=["whole", "pieces"])
def test_survives_occasional_faults(
    bucket: Bucket, open_file: OpenFile, harms: list[Harm], piece: int
) -> None:
    bucket.harms = list(harms)
    with open_file(DATA) as file:
        assert b"".join(iter(lambda: file.read(piece), b"")) == DATA


def test_resumes_after_cut_connection(bucket: Bucket, open_file: OpenFile) -> None:
    bucket.harms = [Harm(cut_at=2 * MIB)]
    with open_file(DATA) as file:
        assert file.read() == DATA
    assert [first for _, first, _ in bucket.asked] == [0, 2 * MIB]


@pytest.mark.parametrize("harm", [Harm(flip_at=7), Harm(flip_at=len(DATA) - 1)])
def test_whole_read_is_verified_and_repeated(
    bucket: Bucket, open_file: OpenFile, harm: Harm
) -> None:
    bucket.harms = [harm]
    with open_file(DATA) as file:
        assert file.read() == DATA
    bucket.always = harm
    with open_file(DATA) as file, pytest.raises(Damaged, match="SHA-256"):
        file.read()


@pytest.mark.parametrize("flip_at", [0, MIB, len(DATA) - 1])
def test_file_read_in_pieces_is_verified_at_its_end(
    bucket: Bucket, open_file: OpenFile, flip_at: int
) -> None:
    bucket.harm_at = lambda _: Harm(flip_at=flip_at)
    with open_file(DATA) as file:
        # As readers do that first look what kind of file it is.
        file.seek(-8, os.SEEK_END)
        file.read(8)
        file.seek(0)
        pieces = iter(lambda: file.read(100_000), b"")
        with pytest.raises(Damaged, match="SHA-256"):
            list(pieces)
        # Every later request fails, too.
        file.seek(0)
        with pytest.raises(Damaged):
            file.read(MIB)


def test_part_of_file_is_not_verified(bucket: Bucket, open_file: OpenFile) -> None:
    bucket.always = Harm(flip_at=7)
    with open_file(DATA) as file:
        assert file.read(8) == DATA[:7] + bytes([DATA[7] ^ 1])


LASTING = {
    "cut": (Harm(cut_at=0), Damaged),
    "busy": (Harm(status=503), Unreachable),
    "refused": (Harm(status=403), Unreachable),
    "another size": (Harm(claims=10), Damaged),
    "moved for ever": (Harm(moved_to="/a?signature=1"), Unreachable),
}


@pytest.mark.parametrize(("harm", "error"), LASTING.values(), ids=LASTING)
def test_lasting_fault_is_an_error(
    bucket: Bucket, open_file: OpenFile, stop: Unhurried, harm: Harm, error: type[StoreError]
) -> None:
    bucket.always = harm
    with open_file(DATA, num_retries=2) as file:
        with pytest.raises(error):
            file.read()
        assert stop.waits == [0.25, 0.5]
        bucket.always = Harm()
        assert file.read() == DATA


def test_bucket_without_ranges_is_named(bucket: Bucket, open_file: OpenFile) -> None:
    bucket.always = Harm(whole=True)
    with open_file(DATA) as file:
        file.seek(MIB)
        with pytest.raises(StoreError, match="whole files only"):
            file.read(10)


def test_expired_url_is_renewed(bucket: Bucket, open_file: OpenFile) -> None:
    with open_file(DATA) as file:
        assert file.read(10) == DATA[:10]
        bucket.good = "2"
        file.seek(2 * MIB)
        assert file.read(10) == DATA[2 * MIB : 2 * MIB + 10]
        bucket.good = "3"
        file.seek(0)
        assert file.read() == DATA


def test_threads_read_ranges_of_one_content(bucket: Bucket, open_content: OpenContent) -> None:
    content = open_content(bucket.wanted("a", DATA))
    spans = [(start, start + 100_000) for start in range(0, len(DATA), 65_536)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda span: content.read(*span), spans))
    assert found == [DATA[start:end] for start, end in spans]


def test_interleaved_files_do_not_mix(bucket: Bucket, open_content: OpenContent) -> None:
    twin = Random(8).randbytes(len(DATA))
    ours, others = (
        open_content(bucket.wanted(name, data)) for name, data in (("a", DATA), ("b", twin))
    )
    for start in range(0, len(DATA), MIB // 2):
        assert ours.read(start, start + 1000) == DATA[start : start + 1000]
        assert others.read(start, start + 1000) == twin[start : start + 1000]
