"""Metadata that does not satisfy the store's schemas is refused, and changes nothing."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.app import create_app
from config import Settings
from pipelines import documents
from storage.metadata_schemas import open_metadata_schemas
from storage.stores import Stores
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import verify
from tests.conftest import Outbox

SCHEMA = {
    "type": "object",
    "required": ["organism"],
    "properties": {"organism": {"type": "string"}, "age": {"$ref": "age.json"}},
}
GOOD, BAD = {"organism": "Danio rerio", "age": 3}, {"organism": 7, "age": -1}
BUNDLE = uuid_of(9)

SetSchemas = Callable[..., None]


@pytest.fixture
def set_schemas(tmp_path: Path, settings: Settings, job_queue: Outbox, depositor: Depositor):
    """Restart the API with these patterns and schemas."""

    def start(stores: Stores, patterns: dict[str, str], **schemas: Any) -> None:
        folder = tmp_path / "schemas"
        folder.mkdir(exist_ok=True)
        for name, schema in {"patterns": patterns, **schemas}.items():
            (folder / f"{name}.json").write_text(json.dumps(schema))
        opened = open_metadata_schemas(str(folder / "patterns.json"))
        changed = replace(stores, metadata_schemas=opened)
        app: Flask = create_app(settings, changed, job_queue=job_queue, verify=verify)
        depositor.client = app.test_client()

    return start


@pytest.fixture
def validating(stores: Stores, set_schemas: SetSchemas) -> None:
    """A store that validates files named *.json."""
    set_schemas(stores, {"*.json": "sample.json"}, sample=SCHEMA, age={"minimum": 0})


def entry(depositor: Depositor, number: int, value: Any, name: str = "", **more: Any) -> Any:
    """A verified file of a value or bytes, as a bundle's metadata."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    (made,) = depositor.files([number], data)
    return made | {"name": name or f"f{number}.json", "indexed": True} | more


def count_bundles(client: FlaskClient) -> int:
    return len(client.get("/v1/bundles/all?replica=aws").json["bundles"])


@pytest.mark.spec("BUN-71", "ERR-47")
@pytest.mark.usefixtures("validating")
def test_refuses_invalid_metadata_with_file_and_pointer(depositor: Depositor) -> None:
    files = [
        entry(depositor, 1, GOOD),
        entry(depositor, 2, BAD, "deep/sample.json"),
        entry(depositor, 3, []),
    ]
    answer = depositor.put_bundle(BUNDLE, files)
    assert (answer.status_code, answer.json["code"]) == (422, "metadata_invalid")
    assert answer.json["errors"] == {
        "deep/sample.json#/organism": ['7 is not of type "string"'],
        "deep/sample.json#/age": ["-1 is less than the minimum of 0"],
        "f3.json#": ['[] is not of type "object"'],
    }
    assert "deep/sample.json, f3.json" in answer.json["detail"]
    assert count_bundles(depositor.client) == 0
    assert depositor.put_bundle(BUNDLE, files[:1]).status_code == 201


@pytest.mark.spec("BUN-71")
@pytest.mark.usefixtures("validating")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        (b"", "not JSON: Expecting value at line 1, column 1"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b'{"organism": NaN}', "NaN is not a JSON number"),
        (b"[" * 101 + b"]" * 101, "nested deeper than 100"),
    ],
)
def test_refuses_metadata_that_is_not_json(depositor: Depositor, data: bytes, message: str) -> None:
    answer = depositor.put_bundle(BUNDLE, [entry(depositor, 1, data)])
    assert (answer.status_code, answer.json["code"]) == (422, "metadata_invalid")
    assert answer.json["errors"] == {"f1.json#": [message]}


@pytest.mark.spec("BUN-71")
@pytest.mark.usefixtures("validating")
def test_other_files_are_not_validated(depositor: Depositor) -> None:
    files = [
        entry(depositor, 1, b"no JSON", "notes.txt"),
        entry(depositor, 2, BAD, "data.json", indexed=False),
        entry(depositor, 3, BAD, "SAMPLE.JSON"),
    ]
    assert depositor.put_bundle(BUNDLE, files).status_code == 201


@pytest.mark.spec("BUN-71")
def test_every_matching_schema_counts(
    stores: Stores, set_schemas: SetSchemas, depositor: Depositor
) -> None:
    patterns = {"*.json": "sample.json", "f1*": "named.json"}
    set_schemas(stores, patterns, sample=SCHEMA, age={}, named={"required": ["name"]})
    first = depositor.put_bundle(BUNDLE, [entry(depositor, 1, BAD)])
    assert sorted(first.json["errors"]) == ["f1.json#", "f1.json#/organism"]
    assert depositor.put_bundle(BUNDLE, [entry(depositor, 2, GOOD)]).status_code == 201


@pytest.mark.spec("BUN-71")
@pytest.mark.usefixtures("validating")
def test_lists_at_most_fifty_faults(depositor: Depositor) -> None:
    files = [entry(depositor, number, BAD) for number in range(1, 41)]
    answer = depositor.put_bundle(BUNDLE, files)
    assert sum(map(len, answer.json["errors"].values())) == 50


@pytest.mark.spec("BUN-71")
def test_lists_one_fault_of_a_large_file(
    stores: Stores, set_schemas: SetSchemas, depositor: Depositor
) -> None:
    set_schemas(stores, {"*.json": "list.json"}, list={"items": {"type": "string"}})
    answer = depositor.put_bundle(BUNDLE, [entry(depositor, 1, [1] * 100_000)])
    assert answer.json["errors"] == {"f1.json#/0": ['1 is not of type "string"']}


@pytest.mark.spec("BUN-71")
@pytest.mark.usefixtures("validating")
def test_refuses_metadata_that_is_too_large_to_validate(depositor: Depositor) -> None:
    data = b'{"organism": "' + b"x" * documents.MAX_FILE_BYTES + b'"}'
    answer = depositor.put_bundle(BUNDLE, [entry(depositor, 1, data)])
    assert answer.status_code == 422
    assert "cannot be validated" in answer.json["errors"]["f1.json#"][0]


@pytest.mark.spec("BUN-72")
def test_a_version_that_exists_is_not_validated_again(
    stores: Stores, set_schemas: SetSchemas, depositor: Depositor
) -> None:
    files = [entry(depositor, 1, BAD)]
    assert depositor.put_bundle(BUNDLE, files).status_code == 201
    set_schemas(stores, {"*.json": "sample.json"}, sample=SCHEMA, age={})
    assert depositor.put_bundle(BUNDLE, files).status_code == 200
    other = depositor.put_bundle(BUNDLE, [entry(depositor, 2, BAD)])
    assert (other.status_code, other.json["code"]) == (409, "bundle_already_exists")
    assert depositor.put_bundle(uuid_of(10), files).status_code == 422


@pytest.mark.spec("BUN-72")
@pytest.mark.usefixtures("validating")
def test_a_tombstone_and_missing_files_are_named_first(depositor: Depositor) -> None:
    absent = entry(depositor, 1, BAD) | {"uuid": uuid_of(77)}
    assert depositor.put_bundle(BUNDLE, [absent]).json["code"] == "file_missing"
    assert depositor.put_bundle(BUNDLE, [entry(depositor, 2, GOOD)]).status_code == 201
    path = f"/v1/bundles/{BUNDLE}?replica=aws"
    depositor.client.delete(path, json={"reason": "wrong"}, headers=INGEST)
    answer = depositor.put_bundle(BUNDLE, [entry(depositor, 3, BAD)])
    assert answer.json["code"] == "bundle_tombstone_already_exists"


@pytest.mark.spec("BUN-71")
@pytest.mark.usefixtures("validating")
def test_concurrent_writers_of_invalid_metadata_are_all_refused(depositor: Depositor) -> None:
    bad, good = [entry(depositor, 1, BAD)], [entry(depositor, 2, GOOD)]
    app = depositor.client.application

    def put(files: list[Any]) -> int:
        writer = Depositor(app.test_client(), depositor.drain)
        return int(writer.put_bundle(BUNDLE, files).status_code)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(put, [bad, good] * 8))
    assert all(status in (422, 409) for status in answers[::2])
    assert sorted(answers[1::2]) == [200] * 7 + [201]


def patch(depositor: Depositor, body: dict[str, Any], **headers: str) -> Any:
    return depositor.client.patch(
        f"/v1/bundles/{BUNDLE}?version={VERSION}&replica=aws", json=body, headers=INGEST | headers
    )


@pytest.mark.spec("BUN-73")
def test_a_patch_validates_what_it_adds(
    stores: Stores, set_schemas: SetSchemas, depositor: Depositor
) -> None:
    kept = entry(depositor, 1, BAD)
    assert depositor.put_bundle(BUNDLE, [kept]).status_code == 201
    set_schemas(stores, {"*.json": "sample.json"}, sample=SCHEMA, age={})
    answer = patch(depositor, {"add_files": [entry(depositor, 2, BAD)]})
    assert (answer.status_code, answer.json["code"]) == (422, "metadata_invalid")
    assert list(answer.json["errors"]) == ["f2.json#/organism"]
    assert count_bundles(depositor.client) == 1
    assert patch(depositor, {"add_files": [entry(depositor, 3, GOOD)]}).status_code == 200


@pytest.mark.spec("BUN-73")
def test_a_repeated_patch_is_answered_like_the_first_time(
    stores: Stores, set_schemas: SetSchemas, depositor: Depositor
) -> None:
    depositor.put_bundle(BUNDLE, [entry(depositor, 1, GOOD)])
    body = {"add_files": [entry(depositor, 2, BAD)]}
    first = patch(depositor, body, **{"Idempotency-Key": "one"})
    assert first.status_code == 200
    set_schemas(stores, {"*.json": "sample.json"}, sample=SCHEMA, age={})
    assert patch(depositor, body, **{"Idempotency-Key": "one"}).json == first.json
    assert patch(depositor, body, **{"Idempotency-Key": "two"}).status_code == 422


@pytest.mark.spec("BUN-74")
def test_lists_no_schemas_by_default(client: FlaskClient) -> None:
    answer = client.get("/v1/schemas")
    assert (answer.status_code, answer.json) == (200, {"schemas": [], "documents": {}})


@pytest.mark.spec("BUN-74")
def test_lists_schemas_with_all_that_they_refer_to(
    stores: Stores, set_schemas: SetSchemas, depositor: Depositor
) -> None:
    patterns = {"*.json": "sample.json", "a*.json": "age.json"}
    set_schemas(stores, patterns, sample=SCHEMA, age={"minimum": 0}, unused={"not": "listed"})
    answer = depositor.client.get("/v1/schemas").json
    assert [(one["pattern"], one["name"]) for one in answer["schemas"]] == [*patterns.items()]
    assert all(len(one["digest"]) == 64 for one in answer["schemas"])
    assert answer["documents"] == {"sample.json": SCHEMA, "age.json": {"minimum": 0}}
