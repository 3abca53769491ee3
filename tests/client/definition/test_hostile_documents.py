"""Definitions that are wrong or mean harm: read for what they can mean, in little time and room."""

import contextlib
import time
from typing import Any

import pytest

from store_client.definition.arguments import check_arguments
from store_client.definition.openapi import (
    LARGEST,
    LARGEST_IN_ALL,
    ApiOperation,
    clean_schema,
    find_auth_url,
    parse_operations,
)
from store_client.errors import Misused
from tests.client.definition.documents import body, document, operation, query


def one_of(more: dict[str, Any], **schemas: Any) -> ApiOperation:
    found = document({"/p": {"post": operation("post_p", **more)}}, **schemas)
    [made] = parse_operations(found, "http://x/v1", "store")
    return made


def size_of(schema: Any) -> int:
    if not isinstance(schema, dict):
        return 0
    return 1 + sum(size_of(one) for one in schema.get("properties", {}).values())


def link(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


@pytest.mark.spec("CLI-102")
def test_schemas_that_are_of_themselves_many_times_end_where_they_begin_again() -> None:
    node = {"type": "object", "properties": {name: link("N") for name in "abc"}}
    began = time.thread_time()
    made = one_of(body(link("N")), N=node)
    assert time.thread_time() - began < 2
    assert [(one.name, one.schema) for one in made.parameters] == [("a", {}), ("b", {}), ("c", {})]


@pytest.mark.spec("CLI-102")
def test_a_page_of_text_does_not_become_more_than_there_is_memory() -> None:
    levels = {
        f"L{at}": {"type": "object", "properties": {name: link(f"L{at + 1}") for name in "abcd"}}
        for at in range(20)
    }
    made = one_of(body(link("L0")), **levels, L20={"type": "string"})
    assert sum(size_of(one.schema) for one in made.parameters) <= LARGEST


@pytest.mark.spec("CLI-145")
def test_operations_that_refer_to_one_large_schema_do_not_multiply_it() -> None:
    parts = {f"m{number}": {"type": "string"} for number in range(LARGEST - 1)}
    large = {"type": "object", "properties": {"inner": {"type": "object", "properties": parts}}}
    paths = {
        f"/p{number}": {"post": operation(f"post_{number}", **body(link("L")))}
        for number in range(500)
    }
    made = list(parse_operations(document(paths, L=large), "http://x/v1", "store"))
    assert len(made) == 500
    assert sum(size_of(one.parameters[0].schema) for one in made) <= LARGEST_IN_ALL
    assert len(made[0].parameters[0].schema["properties"]) == LARGEST - 1
    assert made[-1].parameters[0].schema == {}


@pytest.mark.spec("CLI-145")
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a?){30}a{30}$", "(.*.*.*)*x", "("])
def test_evaluates_backtracking_pattern_fast(
    pattern: str,
) -> None:
    made = one_of({"parameters": [query("a", type="string", pattern=pattern)]})
    began = time.thread_time()
    with contextlib.suppress(Misused):
        check_arguments(made, {"a": "a" * 5_000 + "!"})
    assert time.thread_time() - began < 2


@pytest.mark.spec("CLI-145")
def test_unanchored_pattern_searches_and_dollar_matches_end_only() -> None:
    made = one_of({"parameters": [query("a", type="string", pattern="[0-9]{2}$")]})
    assert check_arguments(made, {"a": "x12"}) == {"a": "x12"}
    for wrong in ("1", "12\n"):
        with pytest.raises(Misused, match="must match"):
            check_arguments(made, {"a": wrong})


@pytest.mark.spec("CLI-145")
def test_reports_wrong_name_among_many_fast() -> None:
    parameters = [query("n" * 50_000 + str(number)) for number in range(50)]
    made = one_of({"parameters": [*parameters, *(query(f"q{n}") for n in range(20_000))]})
    began = time.thread_time()
    with pytest.raises(Misused, match="takes no"):
        check_arguments(made, {"n" * 50_000: "x"})
    assert time.thread_time() - began < 5


@pytest.mark.spec("CLI-103")
def test_a_list_of_one_type_and_null_is_that_type() -> None:
    made = one_of(
        {"parameters": [query("a", type=["integer", "null"]), query("b", type=["x", "y"])]}
    )
    assert check_arguments(made, {"a": "3", "b": object}) == {"a": 3, "b": object}
    with pytest.raises(Misused, match="a: must be an integer"):
        check_arguments(made, {"a": "three"})


@pytest.mark.spec("CLI-103")
def test_ignores_keywords_of_wrong_type() -> None:
    wrong = {"minimum": "x", "maximum": [], "enum": 5, "maxLength": "x", "pattern": 7, "items": 1}
    assert clean_schema({"type": "string", "properties": [], **wrong}) == {"type": "string"}
    assert clean_schema({"required": ["a", [], 5]}) == {"required": ["a"]}
    assert clean_schema({"type": 5, "nullable": "no", "default": 5}) == {"default": 5}


@pytest.mark.spec("CLI-103")
def test_accepts_values_for_invalid_schema() -> None:
    made = one_of({"parameters": [query("n", type="integer", minimum="x", maximum=[])]})
    assert check_arguments(made, {"n": 3}) == {"n": 3}


@pytest.mark.spec("CLI-103")
@pytest.mark.parametrize("name", [5, ["a"], {"a": 1}])
def test_rejects_non_text_operation_names(name: object) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        one_of({"parameters": [{"name": name, "in": "query", "schema": {}}]})


@pytest.mark.spec("CLI-103")
@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://", "nonsense", "http://x:port/", 5])
def test_unusable_authorization_url_is_ignored(url: object) -> None:
    scheme = {"type": "openIdConnect", "openIdConnectUrl": url}
    assert find_auth_url({"components": {"securitySchemes": {"o": scheme}}}) is None
