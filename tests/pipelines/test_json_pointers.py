"""JSON Pointers: the examples of RFC 6901, and invalid ones."""

from typing import Any

import pytest

from pipelines.collections import has_value_at, is_json_pointer

pytestmark = pytest.mark.spec("COL-04")

# RFC 6901, section 5.
EXAMPLE: dict[str, Any] = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    "pointer",
    ["", "/foo", "/foo/0", "/", "/a~1b", "/c%d", "/e^f", "/g|h", "/i\\j", '/k"l', "/ ", "/m~0n"],
)
def test_the_examples_of_the_standard_resolve(pointer: str) -> None:
    assert is_json_pointer(pointer)
    assert has_value_at(EXAMPLE, pointer)


@pytest.mark.parametrize("text", ["foo", "#", "#/foo", "/~", "/~2", "/a~", "foo/0", " /foo"])
def test_rejects_malformed_pointers(text: str) -> None:
    assert not is_json_pointer(text)


@pytest.mark.parametrize(
    "pointer",
    ["/bar", "/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/-1", "/foo/1e0", "/foo/٠", "/foo/",
     "/foo/0/0", "/a/b", "//", "/foo/99999999999999999999999"],
)  # fmt: skip
def test_missing_target_does_not_resolve(pointer: str) -> None:
    assert not has_value_at(EXAMPLE, pointer)


def test_an_escaped_tilde_is_not_unescaped_twice() -> None:
    assert has_value_at({"~1": None}, "/~01")
    assert not has_value_at({"/": None}, "/~01")


def test_values_without_members_have_only_themselves() -> None:
    for value in (None, True, 1, "abc"):
        assert has_value_at(value, "")
        assert not has_value_at(value, "/0")
