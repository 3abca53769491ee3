"""Object metadata as S3 tags."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.blobs.s3_objects import (
    decode_tags,
    encode_tags,
    make_completion_tags,
    make_header_params,
)
from storage.errors import Invalid

PRINTABLE = "".join(chr(code) for code in range(32, 127))
NAMES = st.text(string.ascii_lowercase + string.digits + "-_.", min_size=1, max_size=40)
METADATA = st.dictionaries(NAMES, st.text(PRINTABLE, max_size=400), max_size=20)
TAG = re.compile(r"[A-Za-z0-9 +\-=._:/@]*")


def small(metadata: dict[str, str]) -> bool:
    return sum(len(name) + len(value) for name, value in metadata.items()) <= 2048


@given(METADATA.filter(small))
def test_any_metadata_fits_into_ten_tags(metadata: dict[str, str]) -> None:
    tags = encode_tags(metadata)
    assert decode_tags(tags) == metadata
    assert len(tags) <= 10
    for key, value in tags.items():
        assert len(key) <= 128
        assert len(value) <= 256
        assert TAG.fullmatch(key)
        assert TAG.fullmatch(value)


@given(st.text(PRINTABLE, min_size=2047, max_size=2047))
def test_one_long_value_fits(value: str) -> None:
    assert decode_tags(encode_tags({"m": value})) == {"m": value}


def test_checksums_are_tags_that_anybody_may_read() -> None:
    declared = {"store-sha1": "a" * 40, "store-s3_etag": "b" * 32 + "-2"}
    assert encode_tags(declared) == declared


def test_a_strangers_tags_are_metadata_too() -> None:
    assert decode_tags({"Store-SHA1": "a"}) == {"store-sha1": "a"}


def test_rejects_metadata_that_headers_cannot_carry() -> None:
    for metadata in ({"a b": "x"}, {"a:": "x"}, {"a": " x"}, {"a": "x "}):
        with pytest.raises(Invalid):
            make_header_params("k", "x/y", metadata)
    with pytest.raises(Invalid):
        make_header_params("k", "ü/y", None)


def test_a_full_start_leaves_no_room_for_a_last_word() -> None:
    early = {"m": "x" * 2040}
    assert make_completion_tags(early, {}) == {}
    with pytest.raises(Invalid):
        make_completion_tags(early, {"n": "y"})
