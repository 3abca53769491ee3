"""Arguments are judged before anything is asked."""

from typing import Any
from uuid import UUID

import pytest

from store_client.definition.arguments import check_arguments
from store_client.definition.openapi import ApiOperation, OperationParameter
from store_client.errors import Misused

UUID_TEXT = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
ENTRY = {
    "type": "object",
    "properties": {
        "uuid": {"type": "string", "format": "uuid"},
        "indexed": {"type": "boolean"},
        "kind": {"type": "string", "enum": ["metadata", "data"]},
    },
    "required": ["uuid"],
    "additionalProperties": False,
}
OPERATION = ApiOperation(
    "put_thing",
    "store",
    "PUT",
    "http://x/{uuid}",
    parameters=(
        OperationParameter("uuid", "path", True, {"type": "string", "format": "uuid"}),
        OperationParameter("replica", "query", False, {"type": "string", "enum": ["aws", "gcp"]}),
        OperationParameter("version", "query", False, {"type": "string", "pattern": "^v[0-9]$"}),
        OperationParameter(
            "per_page", "query", False, {"type": "integer", "minimum": 1, "maximum": 500}
        ),
        OperationParameter("direct", "query", False, {"type": "boolean"}),
        OperationParameter(
            "files", "body", False, {"type": "array", "maxItems": 2, "items": ENTRY}
        ),
        OperationParameter("count", "body", False, {"type": "integer", "minimum": 0}),
        OperationParameter("ratio", "body", False, {"type": "number"}),
        OperationParameter(
            "details", "body", False, {"type": "object", "additionalProperties": {}}
        ),
        OperationParameter("labels", "body", False, {"additionalProperties": {"type": "string"}}),
        OperationParameter(
            "email", "body", False, {"type": "string", "nullable": True, "maxLength": 5}
        ),
        OperationParameter("odd", "body", False, {"type": "string", "pattern": "(?<bad"}),
    ),
)


def check(**arguments: Any) -> dict[str, Any]:
    return check_arguments(OPERATION, {"uuid": UUID_TEXT, **arguments})


@pytest.mark.spec("CLI-22")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"uuid": UUID(UUID_TEXT)}, {}),
        ({"replica": "gcp"}, {"replica": "gcp"}),
        ({"per_page": "100"}, {"per_page": 100}),
        ({"direct": "True"}, {"direct": True}),
        ({"files": ({"uuid": UUID(UUID_TEXT)},)}, {"files": [{"uuid": UUID_TEXT}]}),
        ({"files": iter([])}, {"files": []}),
        ({"details": {"a": [1, None]}}, {"details": {"a": [1, None]}}),
        ({"ratio": 1}, {"ratio": 1}),
        ({"email": None, "replica": None}, {}),
        ({"odd": "anything"}, {"odd": "anything"}),
        ({"labels": {"a": "b"}}, {"labels": {"a": "b"}}),
    ],
)
def test_sends_values_as_json(given: dict[str, Any], sent: dict[str, Any]) -> None:
    assert check(**given) == {"uuid": UUID_TEXT, **sent}


@pytest.mark.spec("CLI-22")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"uuid": "x"}, "uuid: must be a uuid (got 'x')"),
        ({"uuid": f"{UUID_TEXT}\n"}, "uuid: must be a uuid"),
        ({"replica": "azure"}, "replica: must be one of aws, gcp (got 'azure')"),
        ({"replica": 1}, "replica: must be a string (got 1)"),
        ({"version": "v10"}, "version: must match"),
        ({"version": "v1\n"}, "must match"),
        ({"per_page": 501}, "per_page: must be 1 to 500 (got 501)"),
        ({"per_page": "many"}, "per_page: must be an integer"),
        ({"per_page": True}, "per_page: must be an integer"),
        ({"direct": "maybe"}, "direct: must be true or false"),
        ({"direct": 1}, "direct: must be true or false"),
        ({"files": {}}, "files: must be a list"),
        ({"files": [{"uuid": "x"}]}, "files[0].uuid: must be a uuid"),
        ({"files": [{}]}, "files[0]: 'uuid' is missing"),
        (
            {"files": [{"uuid": UUID_TEXT, "idexed": True}]},
            "files[0]: takes no 'idexed'; did you mean indexed?",
        ),
        ({"files": [{"uuid": UUID_TEXT, "kind": "x"}]}, "files[0].kind: must be one of"),
        ({"files": [None]}, "files[0]: must be an object (got null)"),
        ({"files": [{"uuid": UUID_TEXT}] * 3}, "files: must have at most 2 entries (got 3)"),
        ({"count": 1.5}, "count: must be an integer"),
        ({"count": "1"}, "count: must be an integer"),
        ({"count": -1}, "count: must be at least 0 (got -1)"),
        ({"ratio": "1"}, "ratio: must be a number"),
        ({"details": []}, "details: must be an object"),
        ({"labels": {"a": 1}}, "labels.a: must be a string"),
        ({"email": "a@long"}, "email: must have at most 5 characters (got 6)"),
        ({"replika": "aws"}, "put_thing takes no 'replika'; did you mean replica?"),
        ({"zzz": 1}, "put_thing takes no 'zzz'"),
    ],
)
def test_reports_invalid_values_with_position(given: dict[str, Any], told: str) -> None:
    with pytest.raises(Misused) as error:
        check(**given)
    assert str(error.value).startswith(told) or told in str(error.value)


@pytest.mark.spec("CLI-22")
def test_names_missing_arguments() -> None:
    with pytest.raises(Misused, match="put_thing needs uuid"):
        check_arguments(OPERATION, {"uuid": None})


@pytest.mark.spec("CLI-22")
def test_accepts_any_bytes() -> None:
    content = OperationParameter("content", "body", False, {"type": "string", "format": "binary"})
    upload = ApiOperation("put", "store", "PUT", "http://x", parameters=(content,))
    assert check_arguments(upload, {"content": b"\xff"}) == {"content": b"\xff"}
