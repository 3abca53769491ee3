"""Checksums against known answers, and parsing of declared checksums."""

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.checksums import (
    ChecksumHasher,
    compute_checksums,
    find_mismatches,
    parse_declared,
    part_size,
    split_parts,
)
from storage.errors import DomainError, SourceChanged, Unprocessable
from storage.model import CHECKSUM_NAMES, Checksums

MB = 1024 * 1024
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "etags.json").read_text())
FILES: list[dict[str, Any]] = VECTORS["files"]


def pattern(size: int) -> bytes:
    """Byte i is i modulo 251, as the vectors say."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def independent(data: bytes) -> dict[str, Any]:
    """The specification's sentence, word by word, over bytes that are all in memory."""
    chunks = [data[at : at + 64 * MB] for at in range(0, len(data), 64 * MB)]
    digests = b"".join(hashlib.md5(chunk).digest() for chunk in chunks)
    plain = hashlib.md5(data).hexdigest()
    multipart = f"{hashlib.md5(digests).hexdigest()}-{len(chunks)}"
    return {
        "size": len(data),
        "sha1": hashlib.sha1(data).hexdigest(),
        "sha256": hashlib.sha256(data).hexdigest(),
        "crc32c": f"{crcmod.predefined.mkPredefinedCrcFun('crc-32c')(data):08x}",
        "s3_etag": plain if len(data) < 64 * MB else multipart,
        "other_etag": plain if len(data) == 64 * MB else None,
    }


def blocks(data: bytes, size: int = MB) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def as_checksums(vector: dict[str, Any]) -> Checksums:
    return Checksums(**{field: vector[field] for field in CHECKSUM_NAMES})


@pytest.mark.spec("FIL-10", "LIM-08")
@pytest.mark.parametrize("vector", FILES, ids=lambda vector: str(vector["size"]))
def test_known_answers(vector: dict[str, Any]) -> None:
    hashed = compute_checksums(blocks(pattern(vector["size"])), vector["size"])
    assert hashed.size == vector["size"]
    assert hashed.checksums == as_checksums(vector)
    assert hashed.alternate_etag == vector["other_etag"]


@pytest.mark.spec("FIL-10")
@pytest.mark.parametrize("vector", FILES[:-3], ids=lambda vector: str(vector["size"]))
def test_vectors_match_other_implementation(vector: dict[str, Any]) -> None:
    assert independent(pattern(vector["size"])) == vector


@pytest.mark.spec("FIL-10", "LIM-08")
@pytest.mark.parametrize("case", VECTORS["part_sizes"], ids=lambda case: str(case["size"]))
def test_part_sizes(case: dict[str, int]) -> None:
    assert part_size(case["size"]) == case["part_size"]


@pytest.mark.spec("FIL-10")
def test_part_size_gives_at_most_10000_parts() -> None:
    for size in (640_000 * MB, 640_000 * MB + 1, 5 * 1024 * 1024 * MB, 12_345_678 * MB + 7):
        assert -(-size // part_size(size)) <= 10_000
        assert part_size(size) % MB == 0


@pytest.mark.parametrize("block", [1_000_003, 64 * MB - 1, 65 * MB])
def test_blocks_may_straddle_parts(block: int) -> None:
    data = pattern(64 * MB + 1)
    vector = next(vector for vector in FILES if vector["size"] == len(data))
    assert compute_checksums(blocks(data, block)).checksums == as_checksums(vector)


def test_the_size_need_not_be_known() -> None:
    assert compute_checksums(blocks(pattern(5 * MB))) == compute_checksums(
        blocks(pattern(5 * MB)), 5 * MB
    )


@given(st.lists(st.binary(max_size=50)))
def test_small_inputs_in_any_blocks(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert compute_checksums(pieces).checksums == as_checksums(independent(data))


@pytest.mark.spec("FIL-12")
@pytest.mark.parametrize("size", [3 * MB, 9 * MB + 1])
def test_returns_hashed_blocks_unchanged(size: int) -> None:
    given_blocks = list(blocks(pattern(size)))
    hashing = ChecksumHasher(size)
    for before, after in zip(given_blocks, hashing.hash_blocks(given_blocks), strict=True):
        assert before is after
    assert hashing.result().size == size


@pytest.mark.spec("FIL-13")
@pytest.mark.parametrize("actual", [9, 11, 6 * MB])
def test_other_size_is_a_changed_source(actual: int) -> None:
    with pytest.raises(SourceChanged):
        compute_checksums(blocks(pattern(actual)), 10)


def test_failing_source_ends_threads() -> None:
    def breaking() -> Iterator[bytes]:
        yield from blocks(pattern(6 * MB))
        raise DomainError("gone")

    with pytest.raises(DomainError, match="gone"):
        compute_checksums(breaking(), 10 * MB)
    assert hashing_threads() == []


def test_stopped_reader_ends_threads() -> None:
    flow = ChecksumHasher().hash_blocks(blocks(pattern(30 * MB)))
    for _ in range(8):
        next(flow)
    assert len(hashing_threads()) == 2
    flow.close()  # type: ignore[attr-defined]
    assert hashing_threads() == []


def hashing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hashing"]


@given(st.lists(st.binary(max_size=20)), st.integers(1, 30))
def test_parts_are_the_same_bytes_cut_evenly(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    cut = [b"".join(part) for part in split_parts(pieces, size)]
    assert cut == [data[at : at + size] for at in range(0, len(data), size)]


# Declarations

GOOD = {
    "store-sha1": "A" * 40,
    "store-sha256": "b" * 64,
    "store-crc32c": "0000ABCD",
    "store-s3_etag": "C" * 32 + "-12",
}


@pytest.mark.spec("FIL-07")
def test_declared_checksums_ignore_case() -> None:
    found = parse_declared({**GOOD, "other": "x"})
    assert found == Checksums("a" * 40, "b" * 64, "0000abcd", "c" * 32 + "-12")
    upper = {name.upper(): value for name, value in GOOD.items()}
    assert parse_declared(upper) == found


@pytest.mark.spec("FIL-08")
def test_uses_checksum_prefixes_in_order() -> None:
    metadata = {name.replace("store-", "lab-"): value for name, value in GOOD.items()}
    mixed = {**metadata, "store-sha1": "d" * 40}
    assert parse_declared(metadata, ("store-", "lab-")).sha1 == "a" * 40
    assert parse_declared(mixed, ("store-", "lab-")).sha1 == "d" * 40
    with pytest.raises(Unprocessable):
        parse_declared(metadata)


@pytest.mark.spec("FIL-09")
def test_names_missing_checksums() -> None:
    with pytest.raises(Unprocessable) as caught:
        parse_declared({"store-sha256": "b" * 64, "store-sha1": "x", "store-crc32c": ""})
    assert caught.value.code == "missing_checksum"
    assert set(caught.value.errors) == {"store-crc32c", "store-s3_etag", "store-sha1"}
    assert "store-crc32c" in caught.value.detail


@pytest.mark.spec("FIL-07")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sha1", "a" * 39),
        ("sha1", "a" * 40 + "\n"),
        ("sha256", "g" * 64),
        ("crc32c", "abcdef0"),
        ("crc32c", "0xabcdef"),
        ("s3_etag", '"' + "c" * 32 + '"'),
        ("s3_etag", "c" * 32 + "-0"),
        ("s3_etag", "c" * 32 + "-"),
        ("s3_etag", "c" * 33),
        ("sha1", "١" * 40),
    ],
)
def test_names_malformed_checksums(name: str, value: str) -> None:
    with pytest.raises(Unprocessable) as caught:
        parse_declared({**GOOD, f"store-{name}": value})
    assert caught.value.code == "invalid_checksum"
    assert list(caught.value.errors) == [f"store-{name}"]


@pytest.mark.spec("FIL-12")
def test_reports_each_difference() -> None:
    computed = compute_checksums([b"content"])
    right = computed.checksums
    assert find_mismatches(right, computed) == []
    wrong = Checksums(right.sha1, "0" * 64, right.crc32c, "1" * 32)
    assert find_mismatches(wrong, computed) == [
        ("sha256", "0" * 64, right.sha256),
        ("s3_etag", "1" * 32, right.s3_etag),
    ]


@pytest.mark.spec("FIL-11")
def test_either_etag_is_right_at_64_mb() -> None:
    vector = next(vector for vector in FILES if vector["size"] == 64 * MB)
    computed = compute_checksums(blocks(pattern(64 * MB)), 64 * MB)
    for etag in (vector["s3_etag"], vector["other_etag"]):
        declared = Checksums(vector["sha1"], vector["sha256"], vector["crc32c"], etag)
        assert find_mismatches(declared, computed) == []
