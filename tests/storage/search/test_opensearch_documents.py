"""Documents converted for OpenSearch."""

from typing import Any

import orjson
import pytest

from storage.protocols import IndexedDocument
from storage.search.documents import MAX_KEYWORD_BYTES, DocumentRefusedError
from storage.search.opensearch.documents import (
    MAPPING,
    decode_raw_document,
    index_name,
    prepare_document,
    prepare_stub,
)

pytestmark = pytest.mark.spec("SEA-21")

VERSION = "2026-01-01T000000.000000Z"


def source(document: dict[str, Any] | None, *, field_limit: int = 100) -> dict[str, Any]:
    taken = prepare_document(
        IndexedDocument("u", VERSION, "s#1", 7, document), field_limit=field_limit
    )
    found: dict[str, Any] = orjson.loads(taken.source)
    return found


def leaves(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {leaf.pop("name"): leaf for leaf in source(document)["leaf"]}


def test_each_path_is_a_leaf_of_one_kind() -> None:
    found = leaves({"a": {"b": ["Some-thing else", "x"]}, "n": [2, 1, 2], "t": True, "none": None})
    assert found == {
        "a.b": {
            "keyword": "a.b.keyword",
            "words": ["some thing else", "x"],
            "whole": ["Some-thing else", "x"],
        },
        "n": {"number": [1.0, 2.0]},
        "t": {"boolean": [1.0]},
    }


def test_texts_without_words_keep_positions() -> None:
    assert leaves({"a": ["x", "-", "y"]})["a"]["words"] == ["x", "", "y"]


def test_every_name_by_which_something_exists_is_there() -> None:
    long = "word " * MAX_KEYWORD_BYTES
    assert source({"a": {"b": "x"}, "c.d": 1, "long": long})["exists"] == [
        *("a", "a.b", "a.b.keyword", "c", "c.d", "long")
    ]


def test_sends_mapped_fields_only() -> None:
    known = MAPPING["properties"]
    assert source({"a": "x", "n": 1, "b": False}).keys() <= known.keys()
    assert set().union(*source({"a": "x", "n": 1, "b": False})["leaf"]) <= {
        *known["leaf"]["properties"]
    }


def test_document_is_returned_verbatim() -> None:
    document = {"big": 2**80, "text": "é\u0000"}
    assert orjson.loads(decode_raw_document(source({"text": "é\u0000"}))) == {"text": "é\u0000"}
    assert str(document["big"]) in decode_raw_document(source(document)).decode()


def test_zero_has_no_sign() -> None:
    assert str(leaves({"n": -0.0})["n"]["number"]) == "[0.0]"


def test_a_stub_has_nothing_but_its_name() -> None:
    assert source(None) == {"uuid": "u", "version": VERSION, "shape": "s#1", "live": False}
    carried = prepare_stub({"sort": ["u", VERSION], "_version": 9})
    assert (carried.id, carried.change) == (f"u.{VERSION}", 9)


def test_a_name_of_any_length_is_a_term() -> None:
    long = "é" * 40_000
    assert len(index_name(long).encode()) < MAX_KEYWORD_BYTES
    assert index_name(long) != index_name(long + "x")
    assert index_name("a.b") == "a.b"


def test_too_many_fields_and_half_characters_are_refused() -> None:
    with pytest.raises(DocumentRefusedError, match="4 fields"):
        source({f"f{n}": n for n in range(4)}, field_limit=3)
    with pytest.raises(DocumentRefusedError):
        source({"a": "\ud800"})
