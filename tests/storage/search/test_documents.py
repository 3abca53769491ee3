"""Documents flattened to typed leaves."""

import pytest

from storage.search.documents import MAX_KEYWORD_BYTES, find_path_kinds, flatten_document

pytestmark = pytest.mark.spec("SEA-21")


def test_arrays_are_flattened_in_order() -> None:
    flat = flatten_document(
        {"a": [{"b": "x"}, {"b": ["y", None, ["z"]]}], "n": [1, 2.5], "t": [True]}
    )
    assert flat.strings == {"a.b": ["x", "y", "z"]}
    assert flat.numbers == {"n": [1.0, 2.5]}
    assert flat.booleans == {"t": [True]}


def test_null_and_empty_values_are_no_leaves() -> None:
    flat = flatten_document({"a": None, "b": [], "c": {}, "": 1, "d": {" ": 1, "e..f": 2, ".g": 3}})
    assert list(flat.paths()) == []


def test_mixed_leaves_are_strings_in_any_order() -> None:
    assert flatten_document({"a": [1, "x", True, 1.5]}).strings == {"a": ["1", "x", "true", "1.5"]}
    assert flatten_document({"a": [True, 1]}).strings == {"a": ["true", "1"]}


def test_objects_displace_leaves_of_the_same_name() -> None:
    flat = flatten_document({"a": ["x", {"b": 1}], "c": "y", "c.d": "z"})
    assert flat.numbers == {"a.b": [1.0]}
    assert flat.strings == {"c.d": ["z"]}


def test_numbers_beyond_doubles_are_left_out() -> None:
    flat = flatten_document({"a": [10**400, 3], "b": 10**400, "c": 2**70})
    assert flat.numbers == {"a": [3.0], "c": [float(2**70)]}


def test_long_strings_have_words_but_no_keyword() -> None:
    fits, long = "é" * (MAX_KEYWORD_BYTES // 2), "é" * (MAX_KEYWORD_BYTES // 2 + 1)
    flat = flatten_document({"a": [fits, long]})
    assert flat.keyword_values("a") == [fits]
    assert len(flat.word_positions("a")) >= 1


def test_values_of_one_path_are_far_apart() -> None:
    flat = flatten_document({"a": ["one two", "", "two"]})
    assert flat.word_positions("a") == {"one": [0], "two": [1, 202]}


def test_dates_are_strings() -> None:
    assert find_path_kinds({"at": "2026-01-01"}) == {"at": "string"}


def test_kinds_name_objects_too() -> None:
    document = {"a": {"b": 1, "c": {}}, "d.e": "x", "f": [True], "g": None}
    assert find_path_kinds(document) == {
        "a": "object",
        "a.b": "number",
        "a.c": "object",
        "d": "object",
        "d.e": "string",
        "f": "boolean",
    }


def test_reported_paths_are_withheld_with_all_below() -> None:
    errors = [{"path": "a.b", "reason": "kind"}, {"file": "x"}, "noise"]
    flat = flatten_document({"a": {"b": {"c": 1}, "bb": 2}, "a.b.d": 3, "errors": errors})
    assert flat.numbers == {"a.bb": [2.0]}


def test_the_id_is_that_of_the_bundle() -> None:
    assert flatten_document({"bundle_info": {"uuid": "u", "version": "v.w"}}).id == "u.v.w"
    assert flatten_document({}).id == ""
