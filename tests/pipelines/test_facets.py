"""Fields that a query names, and the known fields nearest to a wrong one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from pipelines.facets import (
    FRESH_FACTOR,
    MAX_FEATURED,
    choose_facet_fields,
    find_nearest_fields,
    find_unknown_fields,
    format_unknown_field,
    list_query_fields,
    open_facet_field_caches,
)
from storage.errors import Unavailable
from storage.protocols import IndexedDocument, SearchIndex
from storage.search.grammar.parser import parse_query
from storage.stores import Stores

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


VERSION = "2026-01-01T000000.000000Z"


def write_documents(stores: Stores, count: int, **given: Callable[[int], Any]) -> None:
    """Index documents with one metadata file; values are made from the document's number."""
    documents = []
    for number in range(count):
        sample = {name: make(number) for name, make in given.items()}
        uuid = f"00000000-0000-4000-8000-{number:012x}"
        content = {"files": {"sample_json": [sample]}, "describedBy": "x"}
        documents.append(IndexedDocument(uuid, VERSION, "shape", 1, content))
    assert stores.search["aws"].write(documents) == []


def test_chosen_fields_tell_many_bundles_apart(stores: Stores) -> None:
    write_documents(
        stores,
        250,
        organ=lambda n: f"organ {n % 3}",
        donor=lambda n: f"donor {n // 2}",
        title=lambda n: f"title {n}",
        project=lambda n: "one",
        age=lambda n: n % 3,
        describedBy=lambda n: "schema",
    )
    chosen = choose_facet_fields(stores, "aws")
    assert chosen == ["files.sample_json.organ", "files.sample_json.project"]


def test_choice_is_kept_for_a_multiple_of_the_time_that_it_took(stores: Stores) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.01
        return now[0]

    fields = {f"f{number}": lambda n: f"value {n % 2}" for number in range(MAX_FEATURED + 3)}
    caches = open_facet_field_caches(stores, clock)
    assert caches["aws"].read() == []
    write_documents(stores, 10, **fields)
    assert caches["aws"].read() == []
    now[0] += 0.01 * FRESH_FACTOR
    chosen = caches["aws"].read()
    assert len(chosen) == MAX_FEATURED
    assert caches["aws"].read() is chosen
    assert caches["gcp"].read() == []


def test_failed_choice_is_made_again(stores: Stores) -> None:
    class Away:
        def list_fields(self, **_given: Any) -> None:
            raise Unavailable("no route")

    search = dict(stores.search)
    caches = open_facet_field_caches(replace(stores, search=search), lambda: 1.0)
    write_documents(stores, 4, organ=lambda n: "liver")
    opened = search["aws"]
    search.update(dict.fromkeys(("aws", "gcp"), cast(SearchIndex, Away())))
    with pytest.raises(Unavailable):
        caches["aws"].read()
    search["aws"] = opened
    assert caches["aws"].read() == ["files.sample_json.organ"]
