"""The OpenAPI definition of the authorization service is valid and its examples fit."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from openapi_schema_validator import OAS30Validator
from openapi_spec_validator import validate

from api.authz.app import OPERATIONS
from auth.account_operations import (
    AUTHENTICATED_OPERATIONS,
    OPEN_OPERATIONS,
    REQUIRED_ACTIONS,
    describe_requirement,
)
from tests.api.test_bad_input import unbounded

pytestmark = pytest.mark.spec("ACC-01")

SPECIFIED = {
    "get_login": ("get", "/login"),
    "get_logout": ("get", "/logout"),
    "get_openid_configuration": ("get", "/.well-known/openid-configuration"),
    "get_jwks.json": ("get", "/.well-known/jwks.json"),
    "get_oauth_authorize": ("get", "/oauth/authorize"),
    "post_oauth_token": ("post", "/oauth/token"),
    "post_oauth_revoke": ("post", "/oauth/revoke"),
    "get_oauth_userinfo": ("get", "/oauth/userinfo"),
    "post_oauth_userinfo": ("post", "/oauth/userinfo"),
    "get_echo": ("get", "/echo"),
    "post_v1_policies_evaluate": ("post", "/v1/policies/evaluate"),
    "get_v1_users": ("get", "/v1/users"),
    "post_v1_user": ("post", "/v1/user"),
    "get_v1_user": ("get", "/v1/user/{user_id}"),
    "put_v1_user": ("put", "/v1/user/{user_id}"),
    "get_v1_user_owns": ("get", "/v1/user/{user_id}/owns"),
    "get_v1_user_groups": ("get", "/v1/user/{user_id}/groups"),
    "put_v1_user_group": ("put", "/v1/user/{user_id}/groups"),
    "get_v1_user_roles": ("get", "/v1/user/{user_id}/roles"),
    "put_v1_user_role": ("put", "/v1/user/{user_id}/roles"),
    "put_v1_user_policy": ("put", "/v1/user/{user_id}/policy"),
    "get_v1_groups": ("get", "/v1/groups"),
    "post_v1_group": ("post", "/v1/group"),
    "get_v1_group": ("get", "/v1/group/{group_id}"),
    "delete_v1_group": ("delete", "/v1/group/{group_id}"),
    "get_v1_group_roles": ("get", "/v1/group/{group_id}/roles"),
    "put_v1_group_role": ("put", "/v1/group/{group_id}/roles"),
    "get_v1_group_users": ("get", "/v1/group/{group_id}/users"),
    "put_v1_group_user": ("put", "/v1/group/{group_id}/users"),
    "put_v1_group_policy": ("put", "/v1/group/{group_id}/policy"),
    "get_v1_roles": ("get", "/v1/roles"),
    "post_v1_role": ("post", "/v1/role"),
    "get_v1_role": ("get", "/v1/role/{role_id}"),
    "delete_v1_role": ("delete", "/v1/role/{role_id}"),
    "put_v1_role_policy": ("put", "/v1/role/{role_id}/policy"),
}
"""All that the specification has."""

PAGED = {one.name for one in OPERATIONS if one.paged}


@pytest.fixture
def document(client: FlaskClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/swagger.json").json or {}
    return found


def described(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, one in verbs.items():
            yield verb, path, one


def test_every_operation_of_the_specification_is_there(document: dict[str, Any]) -> None:
    validate(document)
    found = {one["operationId"]: (verb, path) for verb, path, one in described(document)}
    assert {name: found.get(name) for name in SPECIFIED} == SPECIFIED


def test_operations_with_action_require_token(document: dict[str, Any]) -> None:
    secured = {one["operationId"] for _, _, one in described(document) if one.get("security")}
    assert secured & REQUIRED_ACTIONS.keys() == REQUIRED_ACTIONS.keys()
    assert secured - REQUIRED_ACTIONS.keys() == AUTHENTICATED_OPERATIONS
    assert all(describe_requirement(name) is None for name in OPEN_OPERATIONS)


def test_only_paged_operations_have_206(document: dict[str, Any]) -> None:
    partial = {one["operationId"] for _, _, one in described(document) if "206" in one["responses"]}
    assert partial == PAGED
    assert {"get_v1_users", "get_v1_group_users", "get_v1_user_owns", "get_v1_audit"} <= PAGED


def test_names_of_parameters_are_identifiers(document: dict[str, Any]) -> None:
    names = {one["name"] for _, _, item in described(document) for one in item["parameters"]}
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name in names)


def test_no_parameter_may_be_null(document: dict[str, Any]) -> None:
    schemas = [one["schema"] for _, _, item in described(document) for one in item["parameters"]]
    assert any("enum" in schema for schema in schemas)
    assert [one for one in schemas if one.get("nullable") or None in one.get("enum", ())] == []


def test_body_is_required_if_a_member_is(document: dict[str, Any]) -> None:
    """Spec: `groups`, `roles`, `users` and `policy` of changes may be left out."""
    schemas = document["components"]["schemas"]
    for _, _, one in described(document):
        body = one.get("requestBody", {"content": {}})
        if "application/x-www-form-urlencoded" not in body["content"] and body["content"]:
            name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            assert body["required"] == bool(schemas[name].get("required")), one["operationId"]


def test_bodies_have_one_content_type(document: dict[str, Any]) -> None:
    """openapi-python-client makes modules that cannot be imported of several."""
    bodies = [one["requestBody"] for _, _, one in described(document) if "requestBody" in one]
    assert {len(body["content"]) for body in bodies} == {1}
    token = document["paths"]["/oauth/token"]["post"]["requestBody"]
    assert [*token["content"]] == ["application/x-www-form-urlencoded"]


def test_documents_html_answers(document: dict[str, Any]) -> None:
    answers = document["paths"]["/oauth/authorize"]["get"]["responses"]
    pages = {status for status, one in answers.items() if "text/html" in one.get("content", {})}
    assert pages == {"200", "400", "429"}
    assert "302" in answers
    assert "303" in document["paths"]["/oauth/authorize"]["post"]["responses"]


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    parts = document["components"]
    for name, schema in parts["schemas"].items():
        for member, part in schema.get("properties", {}).items():
            if "example" in part:
                wrong = OAS30Validator({**part, "components": parts}).iter_errors(part["example"])
                assert [one.message for one in wrong] == [], f"{name}.{member}"


def test_every_required_member_of_a_record_has_an_example(document: dict[str, Any]) -> None:
    lacking = [
        f"{name}.{member}"
        for name, schema in document["components"]["schemas"].items()
        for member in schema.get("required", ())
        if not {"example", "$ref", "items"} & schema["properties"][member].keys()
    ]
    assert lacking == []


@pytest.mark.spec("CON-26")
def test_every_text_of_a_body_has_a_maximum(document: dict[str, Any]) -> None:
    assert unbounded(document) == []
