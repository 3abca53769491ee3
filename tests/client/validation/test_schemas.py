"""Schemas of files, of the store, and of documents: from local files only."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from store_client.errors import Misused, StoreError
from store_client.http.retries import RetryPolicy
from store_client.http.session import HttpSession
from store_client.validation.documents import (
    DETAILED_BYTES,
    MAX_METADATA,
    validate_document,
)
from store_client.validation.schemas import (
    MAX_SCHEMA,
    SchemaSet,
    compile_file,
    fetch_rules,
    parse_rules,
)

pytestmark = pytest.mark.spec("CLI-161")

SAMPLE = {"required": ["organism"], "properties": {"organism": {"type": "string"}}}
REFUSED = "http://127.0.0.1:1/schema.json"
"""Where nothing listens."""


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def faults(
    value: Any, schemas: SchemaSet, *, path: Path | None = None
) -> list[tuple[str | None, str]]:
    found = validate_document("a.json", json.dumps(value).encode(), schemas, path=path)
    return [(one.pointer, one.message) for one in found]


def of_file(path: Path) -> SchemaSet:
    return SchemaSet(parse_rules([str(path)]))


def test_a_rule_is_for_all_metadata_or_for_a_pattern(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", SAMPLE)
    names = ("a.json", "deep/b.json")
    everywhere, some = of_file(path), SchemaSet(parse_rules([f"b*.json={path}"]))
    assert [name for name in names if validate_document(name, b"{}", everywhere)] == list(names)
    assert [name for name in names if validate_document(name, b"{}", some)] == ["deep/b.json"]
    assert (everywhere.validated, some.validated) == (2, 1)


def test_a_file_whose_name_has_an_equals_sign_is_a_file(tmp_path: Path) -> None:
    (rule,) = parse_rules([str(write(tmp_path / "a=b.json", SAMPLE))])
    assert rule.pattern == "*"


@pytest.mark.parametrize("text", ["=s.json", "*.json="])
def test_rejects_rules_without_pattern_or_file(text: str) -> None:
    with pytest.raises(Misused, match="neither FILE nor PATTERN=FILE"):
        parse_rules([text])


def test_all_faults_have_pointers(tmp_path: Path) -> None:
    schemas = of_file(write(tmp_path / "s.json", {"additionalProperties": SAMPLE}))
    assert faults({"a/b": {"organism": 1}, "c~": {}}, schemas) == [
        ("/a~1b/organism", '1 is not of type "string"'),
        ("/c~0", '"organism" is a required property'),
    ]


def test_formats_are_checked(tmp_path: Path) -> None:
    schemas = of_file(write(tmp_path / "s.json", {"format": "date"}))
    assert faults("2026-02-30", schemas) == [("", '"2026-02-30" is not a "date"')]


def test_lists_one_fault_of_a_large_document(tmp_path: Path) -> None:
    schemas = of_file(write(tmp_path / "s.json", {"items": {"type": "string"}}))
    assert len(faults([1, 2, 3], schemas)) == 3
    assert len(faults([1] * DETAILED_BYTES, schemas)) == 1


def test_what_the_store_cannot_validate_is_an_error(tmp_path: Path) -> None:
    schemas = of_file(write(tmp_path / "s.json", {}))
    for data, message in (
        (b"1" * 5000, "an integer has 5000 digits"),
        (b"1e999", "the number 1e999 is too large"),
        (b'"\\ud800"', "half of a surrogate pair stands alone"),
        (b" " * (MAX_METADATA + 1), "larger than 32 MiB: it cannot be validated"),
    ):
        (found,) = validate_document("a.json", data, schemas)
        assert (found.severity, found.message) == ("error", message)


def test_resolves_references_by_path_and_id(tmp_path: Path) -> None:
    write(tmp_path / "more" / "n.json", {"$ref": "../d%20e.json"})
    write(tmp_path / "d e.json", {"type": "integer"})
    write(tmp_path / "c.json", {"$id": "https://c.example/x", "type": "string"})
    write(tmp_path / "broken.json", "{")
    properties = {"n": {"$ref": "more/n.json"}, "s": {"$ref": "https://c.example/x"}}
    schemas = of_file(write(tmp_path / "s.json", {"properties": properties}))
    assert faults({"n": 1, "s": ""}, schemas) == []
    assert [pointer for pointer, _ in faults({"n": "", "s": 1}, schemas)] == ["/n", "/s"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is not JSON"),
        ([], "it must be an object"),
        ({"type": "text"}, "is not a JSON Schema: .*at /type"),
        ({"pattern": "("}, "is not a JSON Schema"),
        ({"$ref": "none.json"}, "cannot read the schema .*none.json"),
        ({"$ref": "#/none"}, "is not a JSON Schema"),
        ({"$schema": "https://x.example/own"}, "https://x.example/own"),
        ({"$ref": REFUSED}, f"refers to {REFUSED}, which is no local file; nothing is fetched"),
    ],
)
def test_rejects_unusable_schemas(tmp_path: Path, schema: Any, message: str) -> None:
    with pytest.raises(Misused, match=message):
        compile_file(write(tmp_path / "s.json", schema))


def test_an_absent_schema_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misused, match=r"cannot read the schema .*none\.json"):
        parse_rules([str(tmp_path / "none.json")])


# Schemas that documents name ---------------------------------------------------------------


@pytest.mark.parametrize("member", ["describedBy", "$schema"])
def test_a_document_names_a_local_schema(tmp_path: Path, member: str) -> None:
    write(tmp_path / "schemas" / "s.json", SAMPLE)
    path = write(tmp_path / "data" / "a.json", {})
    for said in ("../schemas/s.json", "../schemas/s.json#"):
        assert faults({member: said}, SchemaSet(), path=path) == [
            ("", '"organism" is a required property')
        ]
    assert faults({member: "s.json"}, SchemaSet(folder=tmp_path / "schemas"), path=path)
    assert faults({member: "../schemas/s.json"}, SchemaSet(local=False), path=path) == []


def test_a_document_names_a_schema_by_id(tmp_path: Path) -> None:
    said = "https://schema.example/sample/2.0"
    write(tmp_path / "s.json", {"$id": said, **SAMPLE})
    assert faults({"describedBy": said}, SchemaSet(folder=tmp_path))
    assert faults({"describedBy": said}, SchemaSet()) == []
    assert faults({"describedBy": "https://other.example"}, SchemaSet(folder=tmp_path)) == []


def test_warns_of_a_schema_that_is_not_here_or_none(tmp_path: Path) -> None:
    write(tmp_path / "bad.json", {"type": "text"})
    for said, message in (
        ("none.json", "there is no schema"),
        ("bad.json", "is not a JSON Schema"),
    ):
        data = json.dumps({"describedBy": said}).encode()
        (found,) = validate_document("a.json", data, SchemaSet(), path=tmp_path / "a.json")
        assert (found.severity, found.pointer) == ("warning", "/describedBy")
        assert message in found.message


@pytest.mark.parametrize("said", [7, "", None, ["s.json"], "\0", "a" * 9000, "https://[", "#x"])
def test_odd_names_of_schemas_are_no_error(tmp_path: Path, said: Any) -> None:
    data = json.dumps({"describedBy": said}).encode()
    found = validate_document("a.json", data, SchemaSet(), path=tmp_path / "a.json")
    assert all(one.severity == "warning" for one in found)


# Schemas of the store ----------------------------------------------------------------------


def session_of(answer: httpx.Response) -> HttpSession:
    transport = httpx.MockTransport(lambda _: answer)
    return HttpSession("http://store.example", transport=transport, policy=RetryPolicy(waits_s=()))


def test_fetches_the_schemas_of_the_store() -> None:
    listed = [{"pattern": "s*.json", "name": "s.json", "digest": "0"}]
    documents = {
        "s.json": {"properties": {"a": {"$ref": "sub/a.json"}, "b": {"$ref": "https://b.example"}}},
        "sub/a.json": {"type": "integer"},
        "b.json": {"$id": "https://b.example", "type": "string"},
    }
    answer = httpx.Response(200, json={"schemas": listed, "documents": documents})
    schemas = SchemaSet(fetch_rules(session_of(answer)))
    found = validate_document("s.json", b'{"a": "", "b": 1}', schemas)
    assert [(one.path, one.pointer) for one in found] == [("s.json", "/a"), ("s.json", "/b")]
    assert validate_document("t.json", b'{"a": ""}', schemas) == []


def test_a_store_of_an_earlier_release_has_none() -> None:
    assert fetch_rules(session_of(httpx.Response(404, json={"title": "Not Found"}))) == []


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"schemas": [{}], "documents": {}}),
        httpx.Response(200, json={"schemas": [{"pattern": "*", "name": "a"}], "documents": {}}),
        httpx.Response(
            200, json={"schemas": [{"pattern": "*", "name": "a"}], "documents": {"a": {"type": 1}}}
        ),
        httpx.Response(
            200,
            json={
                "schemas": [{"pattern": "*", "name": "a"}],
                "documents": {"a": {"$ref": REFUSED}},
            },
        ),
    ],
)
def test_an_unusable_answer_is_an_error(answer: httpx.Response) -> None:
    with pytest.raises(StoreError):
        fetch_rules(session_of(answer))


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_refuses_referenced_files_that_take_too_much(tmp_path: Path, kind: str) -> None:
    referred = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(referred)
    elif kind == "device":
        referred.symlink_to("/dev/zero")
    else:
        with referred.open("wb") as file:
            file.truncate(MAX_SCHEMA + 1)
    path = write(tmp_path / "schema.json", {"$ref": referred.as_uri()})
    with pytest.raises(Misused, match="must be a regular file of at most"):
        compile_file(path)
