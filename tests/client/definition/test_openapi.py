"""An OpenAPI document, as operations."""

from typing import Any

import pytest

from store_client.definition.openapi import ApiOperation, find_auth_url, parse_operations
from tests.client.definition.documents import body, document, operation, query


def read(found: dict[str, Any]) -> dict[str, ApiOperation]:
    return {one.name: one for one in parse_operations(found, "http://x/v1", "store")}


def one_of(more: dict[str, Any], **schemas: Any) -> ApiOperation:
    [found] = read(document({"/p": {"post": operation("post_p", **more)}}, **schemas)).values()
    return found


@pytest.mark.spec("CLI-17")
def test_names_serve_as_commands_and_in_python() -> None:
    found = read(
        document(
            {
                "/a/{id}": {"get": operation("get_jwks.json"), "delete": operation("Delete_V1")},
                "/b": {"get": operation("import"), "head": operation("9lives")},
            }
        )
    )
    assert {one.command for one in found.values()} == {
        *("get-jwks.json", "delete-v1", "import", "9lives")
    }
    assert {one.method_name for one in found.values()} == {
        *("get_jwks_json", "Delete_V1", "import_", "9lives_")
    }
    assert found["get_jwks.json"].url == "http://x/v1/a/{id}"


@pytest.mark.spec("CLI-17")
def test_parameters_have_their_places_and_members_of_a_body_are_arguments() -> None:
    schema = {
        "type": "object",
        "required": ["files"],
        "properties": {"files": {"type": "array", "items": {"$ref": "#/components/schemas/E"}}},
    }
    found = one_of(
        {
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                query("replica", required=True, type="string", enum=["aws", "gcp"]),
                {"name": "X-A", "in": "header", "schema": {}},
            ],
            **body(schema),
        },
        E={"type": "object", "properties": {"n": {"type": "integer"}}},
    )
    assert [(one.name, one.place, one.required) for one in found.parameters] == [
        ("id", "path", True),
        ("replica", "query", True),
        ("files", "body", True),
    ]
    inner = found.parameters[2].schema["items"]
    assert inner == {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.mark.spec("CLI-17")
def test_non_object_body_is_one_argument() -> None:
    found = one_of(body({"type": "array", "items": {"type": "string"}}))
    assert [(one.name, one.place, one.required) for one in found.parameters] == [
        ("body", "body", True)
    ]


@pytest.mark.spec("CLI-146")
def test_answers_of_bytes_are_known() -> None:
    binary = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
    assert one_of({"responses": {"200": {"content": binary}}}).download
    text = {"text/plain": {"schema": {"type": "string"}}}
    assert not one_of({"responses": {"200": {"content": text}}}).download


@pytest.mark.spec("CLI-17")
def test_bytes_and_forms_are_known() -> None:
    upload = one_of(body({"type": "string", "format": "binary"}, "application/octet-stream"))
    assert upload.upload
    assert [(one.name, one.place) for one in upload.parameters] == [("content", "body")]
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert one_of(body(form, "application/x-www-form-urlencoded")).form
    both = {
        "requestBody": {
            "content": {
                "application/x-www-form-urlencoded": {"schema": form},
                "application/json": {"schema": form},
            }
        }
    }
    assert not one_of(both).form
    assert not one_of(both).upload


@pytest.mark.spec("CLI-17")
@pytest.mark.parametrize(
    ("members", "key"),
    [
        ({"results": {"type": "array"}, "hits": {"type": "integer"}}, "results"),
        ({"b": {"type": "object", "properties": {"files": {"type": "array"}}}}, "b.files"),
        ({"n": {"type": "integer"}}, ""),
    ],
)
def test_finds_items_of_pages(members: dict[str, Any], key: str) -> None:
    page = {"$ref": "#/components/schemas/Page"}
    responses = {"206": {"content": {"application/json": {"schema": page}}}}
    found = one_of({"responses": responses}, Page={"type": "object", "properties": members})
    assert found.paged == key


@pytest.mark.spec("CLI-17")
def test_knows_whether_a_token_is_required() -> None:
    assert one_of({}).token == "no"
    assert one_of({"security": [{"bearer": []}, {}]}).token == "may"
    assert one_of({"security": [{"bearer": []}]}).token == "must"


@pytest.mark.spec("CLI-17")
def test_recursive_schema_is_anything_below_its_depth() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    found = one_of(body({"$ref": "#/components/schemas/Node"}), Node=node)
    assert [one.name for one in found.parameters] == ["next"]
    circle = {"$ref": "#/components/schemas/Circle"}
    assert one_of(body(circle), Circle=circle).parameters[0].schema == {}
    assert one_of(body({"$ref": "#/nowhere/at/all"})).parameters[0].schema == {}


@pytest.mark.spec("CLI-17")
def test_the_authorization_service_is_named_by_the_definition() -> None:
    assert find_auth_url(document({}, auth="https://auth.example")) == "https://auth.example"
    assert find_auth_url(document({})) is None
