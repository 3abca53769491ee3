"""Keys as paths: safe on any file system, and no two alike."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.blobs.layout import MAX_NAME, Place, escape, place, unescape

keys = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=200
).filter(lambda key: len(key.encode()) <= 900)


def test_ordinary_keys_stay_readable() -> None:
    assert place("blobs/ab/abcd") == Place(("blobs+", "ab+"), "abcd")
    assert place("files/0a/x.2024-01-31T235959.000001Z").name == "x.2024-01-31%54235959.000001%5a"


@given(keys)
def test_no_path_can_leave_the_root_or_differ_by_case_alone(key: str) -> None:
    found = place(key)
    for name in (*found.folders, found.name):
        assert name.isascii()
        assert name == name.lower()
        assert name not in ("", ".", "..")
        assert not name.startswith(".")
        assert "/" not in name
        assert len(name) <= 255


@given(keys, keys)
def test_two_keys_are_two_places(one: str, two: str) -> None:
    assert (place(one) == place(two)) == (one == two)
    assert place(one) != place(one + "/" + two)
    composed = unicodedata.normalize("NFC", one)
    assert (place(one) == place(composed)) == (one == composed)


@given(st.binary(max_size=60).filter(lambda segment: b"/" not in segment))
def test_a_name_spells_its_segment(segment: bytes) -> None:
    assert unescape(escape(segment)) == segment


@pytest.mark.parametrize(
    "name", ["Upper", "%41b", "%4", "%zz", ".hidden", "a+b", "%2E", "", "lost+found", "%%", "%61"]
)
def test_a_name_that_we_would_not_write_is_none(name: str) -> None:
    expected = {"%41b": b"Ab"}.get(name)
    assert unescape(name) == expected


def test_long_segments_are_hashed_with_all_that_follows() -> None:
    long = "A" * (MAX_NAME // 3 + 1)
    assert place(f"x/{long}").folders == ("x+",)
    assert place(f"x/{long}/y").folders == ("x+",)
    assert place(f"x/{long}/y").name != place(f"x/{long}/z").name
    assert len(place(f"x/{long}/y").name) == 65


def test_what_lies_in_folders_already_is_found_where_it_lies() -> None:
    hashed = "~41d147874a22cc86f8c40b7e4471670eb54af1ed0318ac6ea2ff06e1b2cccb6e"
    assert place(f"x/{'a' * 200}/b") == Place(("x+", "a" * 200 + "+"), "b")
    assert place(f"x/{'a' * 201}/b") == Place(("x+",), hashed)
