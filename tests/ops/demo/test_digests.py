"""The depositor's own checksums."""

import hashlib

import pytest

from ops.demo.digests import PART, Digests


def digest_of(size: int, block: int = 1_048_576) -> Digests:
    found = Digests()
    for start in range(0, size, block):
        found.update(bytes(min(block, size - start)))
    return found


@pytest.mark.parametrize(
    ("size", "parts"), [(0, 1), (1, 1), (PART, 1), (PART + 1, 2), (2 * PART, 2)]
)
def test_parts_are_counted(size: int, parts: int) -> None:
    assert digest_of(size, PART).parts == parts


def test_the_entity_tag_of_one_part_is_its_md5() -> None:
    assert digest_of(10).s3_etag == hashlib.md5(bytes(10)).hexdigest()


def test_the_entity_tag_of_several_parts_is_the_md5_of_their_md5s() -> None:
    parts = (hashlib.md5(bytes(PART)), hashlib.md5(bytes(5)))
    joined = b"".join(part.digest() for part in parts)
    assert digest_of(PART + 5, 7_000_000).s3_etag == hashlib.md5(joined).hexdigest() + "-2"
