"""Every text of a request body has a maximum, which the definition says and the store holds to."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.builders import READER

UNBOUNDED = re._parser.MAXREPEAT  # type: ignore[attr-defined]
HUGE = "x" * 5000
PATH = "/v1/subscriptions?replica=aws"
QUERY = {"callback_url": "https://pipeline.example/notify"}


def texts(document: dict[str, Any], schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every string below a schema, names of free members too, with its JSON pointer."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = document["components"]["schemas"][name]
    if schema.get("type") == "string":
        yield path, schema
    if "items" in schema:
        yield from texts(document, schema["items"], f"{path}/0")
    for name, inner in schema.get("properties", {}).items():
        yield from texts(document, inner, f"{path}/{name}")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from texts(document, schema["additionalProperties"], f"{path}/*")


def is_bounded(schema: dict[str, Any]) -> bool:
    """Whether a string's schema says how long it may be."""
    if "maxLength" in schema or "enum" in schema or schema.get("format") == "uuid":
        return True
    pattern = schema.get("pattern")
    if pattern is None or not (pattern.startswith("^") and pattern.endswith("$")):
        return False
    return bool(re._parser.parse(pattern).getwidth()[1] < UNBOUNDED)  # type: ignore[attr-defined]


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                yield f"{verb} {path} {kind}", content["schema"]


def unbounded(document: dict[str, Any]) -> list[str]:
    return [
        f"{where} {pointer}"
        for where, schema in bodies(document)
        for pointer, text in texts(document, schema)
        if not is_bounded(text) and text.get("format") != "binary"
    ]


def test_every_text_of_a_body_has_a_maximum(client) -> None:
    document = client.get("/v1/swagger.json").json
    assert len(list(bodies(document))) > 15
    assert unbounded(document) == []


def test_a_text_without_a_maximum_is_noticed() -> None:
    def body(schema: dict[str, Any]) -> dict[str, Any]:
        content = {"application/json": {"schema": {"properties": {"a": schema}}}}
        return {"paths": {"/x": {"put": {"requestBody": {"content": content}}}}}

    assert unbounded(body({"type": "string"})) == ["put /x application/json /a"]
    assert unbounded(body({"type": "string", "pattern": "^a+$"})) != []
    assert unbounded(body({"type": "array", "items": {"type": "string"}})) != []
    assert unbounded(body({"additionalProperties": {"type": "string"}})) != []
    assert unbounded(body({"type": "string", "maxLength": 9})) == []
    assert unbounded(body({"type": "string", "pattern": "^[a-z]{3}$"})) == []


def put(client, **body: Any):
    return client.put(PATH, json={**QUERY, **body}, headers=READER)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"callback_url": f"https://pipeline.example/{HUGE}"}, "invalid_callback_url"),
        ({"jmespath_query": f"'{HUGE}'"}, "invalid_jmespath"),
        ({"hmac_key_id": HUGE}, "illegal_arguments"),
        ({"hmac_key_id": "x" * 257}, "illegal_arguments"),
        ({"hmac_secret_key": HUGE}, "illegal_arguments"),
        ({"payload_form_field": HUGE}, "illegal_arguments"),
        ({"form_fields": {"a": HUGE}}, "illegal_arguments"),
        ({"form_fields": {HUGE: "a"}}, "illegal_arguments"),
        ({"form_fields": {f"a{n}": "a" for n in range(101)}}, "illegal_arguments"),
        (
            {"attachments": {HUGE: {"type": "jmespath", "expression": "a"}}},
            "illegal_arguments",
        ),
        (
            {"attachments": {"a": {"type": "jmespath", "expression": f"'{HUGE}'"}}},
            "invalid_attachment_expression",
        ),
        (
            {"attachments": {f"a{n}": {"type": "jmespath", "expression": "a"} for n in range(101)}},
            "illegal_arguments",
        ),
        ({"es_query": {"query": {"match": {"a": HUGE * 4}}}}, "elasticsearch_bad_request"),
    ],
)
def test_texts_of_subscriptions_are_bounded(client, body, code) -> None:
    refused = put(client, **body)
    assert (refused.status_code, refused.json["code"]) == (400, code), refused.text
    assert client.get(PATH, headers=READER).json == {"subscriptions": []}


def test_the_longest_texts_are_taken(client) -> None:
    made = put(
        client,
        hmac_key_id="k" * 256,
        hmac_secret_key="s" * 1024,
        payload_form_field="p" * 256,
        form_fields={"f" * 256: "v" * 4096},
    )
    assert made.status_code == 201, made.text
    rotated = client.put(
        f"/v1/subscriptions/{made.json['uuid']}/secret?replica=aws",
        json={"hmac_secret_key": "new", "hmac_key_id": "k" * 257},
        headers=READER,
    )
    assert rotated.status_code == 400
