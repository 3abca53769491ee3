"""The JSON codec: exact integers, strict parsing, and memory estimates."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import json_codec
from storage.errors import TooLarge

pytestmark = pytest.mark.spec("SEA-17")

INTEGERS = st.integers() | st.integers(2**53 - 2, 2**65) | st.integers(-(2**65), -(2**53) + 2)
SCALARS = (
    st.none()
    | st.booleans()
    | INTEGERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text("aé𝄞\x00", max_size=3), inner)
)
LARGEST = 10**4300 - 1


def same(one: object, other: object) -> bool:
    """Equal, also in type and sign: 1, 1.0 and True are three values, 0.0 and -0.0 two."""
    return repr(one) == repr(other)


@settings(max_examples=40)
@given(VALUES)
def test_json_round_trips(value: object) -> None:
    text = json_codec.encode(value)
    assert same(json_codec.decode(text), value)
    assert same(json.loads(text), value)


@settings(max_examples=40)
@given(VALUES)
def test_sorted_text_does_not_depend_on_the_order_of_members(value: object) -> None:
    forth = {"a": value, "b": 2**70, "é": 1}
    back = dict(reversed(forth.items()))
    assert json_codec.encode(forth, sort_keys=True) == json_codec.encode(back, sort_keys=True)


@pytest.mark.parametrize(
    "value",
    [2**64, -(2**63) - 1, 10**400, LARGEST, -LARGEST],
    ids=["2^64", "-2^63-1", "10^400", "largest", "-largest"],
)
def test_integers_beyond_64_bits_are_exact(value: int) -> None:
    assert json_codec.decode(json_codec.encode({"n": [value]})) == {"n": [value]}


@pytest.mark.parametrize("text", ["1e400", "-1e400", "NaN", "Infinity", '"\\ud800"', "[", "1 2"])
@pytest.mark.parametrize("beside", ["", "12345678901234567890123, "])
def test_refuses_what_is_not_json_beside_integers_of_any_size(text: str, beside: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each reader words it in its own way
        json_codec.decode(f"[{beside}{text}]".encode())


def test_names_the_limit_of_an_integer_with_too_many_digits() -> None:
    with pytest.raises(ValueError, match="more than 4300 digits"):
        json_codec.decode(b"1" * 4301)


@pytest.mark.parametrize(
    "value", [object(), {1: 2**70, "a": object()}, ["\ud800"], [2**70, "\udc00"]]
)
def test_refuses_to_write_what_json_cannot_express(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each reader words it in its own way
        json_codec.encode(value)


@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_nesting_is_an_error_and_no_crash(depth: int) -> None:
    text = b"[" * depth + b"12345678901234567890123" + b"]" * depth
    try:
        json_codec.decode(text)
    except ValueError:
        assert depth > 900


@pytest.mark.parametrize("half", [b"\\ud800", b"\\uDFFF"])
def test_half_of_a_surrogate_pair_is_an_error_beside_a_long_integer(half: bytes) -> None:
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        json_codec.decode(b'[12345678901234567890, "%b"]' % half)


def test_zero_keeps_its_sign() -> None:
    assert json_codec.encode(json_codec.decode(b"[-0.0,12345678901234567890]")) == (
        b"[-0.0,12345678901234567890]"
    )


SHAPES = {
    "objects": '{"":1}',
    "nested objects": '{"a":{}}',
    "empty objects": "{}",
    "empty lists": "[]",
    "lists": "[1]",
    "numbers": "12345",
    "floats": "1.5",
    "texts": '"ab"',
    "long texts": '"' + "word " * 40 + '"',
    "records": '{"name":"some value","count":12}',
}


def array_of(item: str, size: int) -> bytes:
    return f"[{','.join([item] * (size // (len(item) + 1)))}]".encode()


@pytest.mark.parametrize("item", SHAPES.values(), ids=SHAPES.keys())
def test_estimate_is_close_to_parsed_size(item: str) -> None:
    text = array_of(item, 300_000)
    tracemalloc.start()
    value = json.loads(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert value
    assert 0.8 < json_codec.estimate_parsed_size(text) / taken < 4


def test_an_object_of_many_names_counts_them() -> None:
    text = json.dumps({f"name{number}": number for number in range(20_000)}).encode()
    tracemalloc.start()
    value = json.loads(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert value
    assert json_codec.estimate_parsed_size(text) > 0.8 * taken


def test_signs_in_strings_are_no_values() -> None:
    sentence = json.dumps('a, b: {c}, [d] \\ "e", ' * 200_000).encode()
    assert json_codec.estimate_parsed_size(b"[%b]" % sentence) < 3 * len(sentence)


def test_small_values_beyond_the_budget_are_too_large() -> None:
    size = json_codec.estimate_parsed_size(array_of('{"":1}', json_codec.MB))
    assert 20 * size > json_codec.MAX_PARSED_BYTES
    with pytest.raises(TooLarge, match="of memory"):
        json_codec.check_parsed_size(20 * size, json_codec.MAX_PARSED_BYTES)
    json_codec.check_parsed_size(size, json_codec.MAX_PARSED_BYTES)
