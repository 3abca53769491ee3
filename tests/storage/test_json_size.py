"""The estimate of parsed memory against what parsing really takes."""

import json
import tracemalloc

import pytest

from storage import json_size
from storage.errors import TooLarge

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
def test_the_estimate_is_near_what_parsing_takes(item: str) -> None:
    text = array_of(item, 300_000)
    tracemalloc.start()
    value = json.loads(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert value
    assert 0.8 < json_size.parsed_size(text) / taken < 4


def test_an_object_of_many_names_counts_them() -> None:
    text = json.dumps({f"name{number}": number for number in range(20_000)}).encode()
    tracemalloc.start()
    value = json.loads(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert value
    assert json_size.parsed_size(text) > 0.8 * taken


def test_signs_within_texts_make_no_values() -> None:
    sentence = json.dumps('a, b: {c}, [d] \\ "e", ' * 200_000).encode()
    assert json_size.parsed_size(b"[%b]" % sentence) < 3 * len(sentence)


def test_small_values_beyond_the_budget_are_too_large() -> None:
    size = json_size.parsed_size(array_of('{"":1}', json_size.MB))
    assert 20 * size > json_size.MAX_PARSED_BYTES
    with pytest.raises(TooLarge, match="of memory"):
        json_size.check_size(20 * size, json_size.MAX_PARSED_BYTES)
    json_size.check_size(size, json_size.MAX_PARSED_BYTES)
