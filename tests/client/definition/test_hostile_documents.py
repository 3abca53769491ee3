"""Definitions that are wrong or mean harm: read for what they can mean, in little time and room."""

import time
from typing import Any

import pytest

from store_client.definition.checking import checked
from store_client.definition.keywords import meaningful
from store_client.definition.operation import Operation
from store_client.definition.reading import LARGEST, auth_url, operations
from store_client.errors import Misused
from tests.client.definition.documents import body, document, operation, query


def one_of(more: dict[str, Any], **schemas: Any) -> Operation:
    found = document({"/p": {"post": operation("post_p", **more)}}, **schemas)
    [made] = operations(found, "http://x/v1", "store")
    return made


def size_of(schema: Any) -> int:
    if not isinstance(schema, dict):
        return 0
    return 1 + sum(size_of(one) for one in schema.get("properties", {}).values())


def link(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_schemas_that_are_of_themselves_many_times_end_where_they_begin_again() -> None:
    node = {"type": "object", "properties": {name: link("N") for name in "abc"}}
    began = time.monotonic()
    made = one_of(body(link("N")), N=node)
    assert time.monotonic() - began < 2
    assert [(one.name, one.schema) for one in made.parameters] == [("a", {}), ("b", {}), ("c", {})]


def test_a_page_of_text_does_not_become_more_than_there_is_memory() -> None:
    levels = {
        f"L{at}": {"type": "object", "properties": {name: link(f"L{at + 1}") for name in "abcd"}}
        for at in range(20)
    }
    made = one_of(body(link("L0")), **levels, L20={"type": "string"})
    assert sum(size_of(one.schema) for one in made.parameters) <= LARGEST


def test_a_list_of_one_type_and_null_is_that_type() -> None:
    made = one_of(
        {"parameters": [query("a", type=["integer", "null"]), query("b", type=["x", "y"])]}
    )
    assert checked(made, {"a": "3", "b": object}) == {"a": 3, "b": object}
    with pytest.raises(Misused, match="a: must be an integer"):
        checked(made, {"a": "three"})


def test_words_that_say_something_of_a_wrong_kind_say_nothing() -> None:
    wrong = {"minimum": "x", "maximum": [], "enum": 5, "maxLength": "x", "pattern": 7, "items": 1}
    assert meaningful({"type": "string", "properties": [], **wrong}) == {"type": "string"}
    assert meaningful({"required": ["a", [], 5]}) == {"required": ["a"]}
    assert meaningful({"type": 5, "nullable": "no", "default": 5}) == {"default": 5}


def test_what_a_wrong_schema_describes_may_still_be_given() -> None:
    made = one_of({"parameters": [query("n", type="integer", minimum="x", maximum=[])]})
    assert checked(made, {"n": 3}) == {"n": 3}


@pytest.mark.parametrize("name", [5, ["a"], {"a": 1}])
def test_a_name_that_is_no_text_is_no_definition(name: object) -> None:
    with pytest.raises(ValueError, match="is no name"):
        one_of({"parameters": [{"name": name, "in": "query", "schema": {}}]})


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://", "nonsense", "http://x:port/", 5])
def test_an_authorization_service_that_cannot_be_asked_is_none(url: object) -> None:
    scheme = {"type": "openIdConnect", "openIdConnectUrl": url}
    assert auth_url({"components": {"securitySchemes": {"o": scheme}}}) is None
