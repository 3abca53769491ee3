"""Fields that a query names, and the known fields nearest to a wrong one."""

from collections.abc import Sequence
from typing import Any

import pytest

from pipelines.facets import (
    find_nearest_fields,
    find_unknown_fields,
    format_unknown_field,
    list_query_fields,
)
from storage.search.grammar.parser import parse_query

KNOWN = ["files.donor_json.age", "files.donor_json.organism", "files.cell_json.organ", "uuid"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("files.donor_json.organsim", ["files.donor_json.organism", "files.cell_json.organ"]),
        ("organism", ["files.donor_json.organism", "files.cell_json.organ"]),
        ("files.donor_json.Organism.keyword", KNOWN[1:3]),
        ("files.cell_json.organs", ["files.cell_json.organ", "files.donor_json.organism"]),
        ("zzz", []),
    ],
)
def test_nearest_fields_are_alike_in_their_last_part(name: str, nearest: Sequence[str]) -> None:
    assert find_nearest_fields(name, KNOWN) == list(nearest)


def test_at_most_three_nearest_fields_are_named() -> None:
    assert len(find_nearest_fields("age", [f"files.f{number}.age" for number in range(500)])) == 3


def test_objects_and_keywords_of_known_fields_are_known() -> None:
    wanted = ["files", "files.donor_json", "uuid.keyword", "uuid.x", "uid", "uid"]
    assert find_unknown_fields(wanted, KNOWN) == ["uuid.x", "uid"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, []),
        ({"bool": {"must": [{"term": {"a": 1}}], "must_not": {"exists": {"field": "b"}}}}, "ab"),
        ({"query_string": {"query": "c:x AND d:[1 TO 2]"}}, "cd"),
        ({"multi_match": {"query": "x", "fields": ["e", "f.*"]}}, "e"),
        ({"ids": {"values": ["u.v"]}}, []),
    ],
)
def test_lists_the_fields_of_a_query(query: dict[str, Any], names: Sequence[str]) -> None:
    assert list(list_query_fields(parse_query(query))) == list(names)


def test_message_names_the_nearest_fields() -> None:
    assert format_unknown_field("organsim", ["organism"]) == "no field organsim; nearest: organism"
    assert format_unknown_field("zzz", []) == "no field zzz"
