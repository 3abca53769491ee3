"""The operator's schemas: read at the start, with everything they refer to, from files only."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from config import SettingsError
from ops.procfile import ROOT
from storage.metadata_schemas import JsonSchema, open_metadata_schemas

SAMPLE = {
    "type": "object",
    "required": ["organism"],
    "properties": {"organism": {"type": "string"}, "taken": {"format": "date"}},
}


def write(folder: Path, **files: Any) -> str:
    """Schema files by their names without the ending; the path of the setting's file."""
    for name, value in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(folder / "patterns.json")


def open_one(folder: Path, **files: Any) -> JsonSchema:
    (schema,) = open_metadata_schemas(write(folder, patterns={"*.json": "a.json"}, **files))
    return schema


def test_names_the_place_of_each_fault(tmp_path: Path) -> None:
    schema = open_one(tmp_path, a=SAMPLE)
    assert schema.find_faults({"organism": "Danio rerio"}, most=9) == []
    assert schema.find_faults({"organism": 1, "taken": "yesterday"}, most=9) == [
        ("/organism", '1 is not of type "string"'),
        ("/taken", '"yesterday" is not a "date"'),
    ]
    assert schema.find_faults([], most=9) == [("", '[] is not of type "object"')]


def test_lists_no_more_faults_than_wanted(tmp_path: Path) -> None:
    schema = open_one(tmp_path, a={"items": {"type": "string"}})
    assert len(schema.find_faults([1] * 9, most=5)) == 5
    assert schema.find_faults([1, 2], most=1) == [("/0", '1 is not of type "string"')]


def test_escapes_pointers_and_shortens_long_values(tmp_path: Path) -> None:
    schema = open_one(tmp_path, a={"additionalProperties": {"type": "integer"}})
    (fault,) = schema.find_faults({"a/b~c": "x" * 5000}, most=9)
    assert fault.pointer == "/a~1b~0c"
    assert len(fault.message) == 300


def test_matches_the_name_with_or_without_its_folders(tmp_path: Path) -> None:
    (schema,) = open_metadata_schemas(
        write(tmp_path, patterns={"assay_[0-9].json": "a.json"}, a=SAMPLE)
    )
    assert schema.matches("assay_1.json")
    assert schema.matches("deep/er/assay_1.json")
    assert not schema.matches("Assay_1.json")
    assert not schema.matches("assay_x.json")


@pytest.mark.parametrize(
    ("draft", "faults"),
    [("http://json-schema.org/draft-07/schema#", 0), (None, 1)],
    ids=["of-draft-07", "of-2020-12-by-default"],
)
def test_the_draft_is_that_of_the_schema(tmp_path: Path, draft: str | None, faults: int) -> None:
    # Only since 2019-09 do other keywords count beside a reference.
    schema: dict[str, Any] = {"$ref": "#/definitions/any", "maximum": 1, "definitions": {"any": {}}}
    found = open_one(tmp_path, a=schema | ({"$schema": draft} if draft else {}))
    assert len(found.find_faults(2, most=9)) == faults


def test_resolves_references_by_path_and_by_id(tmp_path: Path) -> None:
    schema = open_one(
        tmp_path,
        a={
            "properties": {"x": {"$ref": "sub/b.json#/$defs/n"}, "y": {"$ref": "https://c.example"}}
        },
        sub__b={"$defs": {"n": {"$ref": "../d.json"}}},
        c={"$id": "https://c.example", "type": "string"},
        d={"type": "integer"},
        unused="not JSON",
    )
    assert schema.find_faults({"x": 1, "y": "z"}, most=9) == []
    assert {fault.pointer for fault in schema.find_faults({"x": "1", "y": 1}, most=9)} == {
        "/x",
        "/y",
    }
    assert sorted(schema.documents) == ["a.json", "c.json", "d.json", "sub/b.json"]


def test_the_digest_changes_with_what_a_schema_refers_to(tmp_path: Path) -> None:
    first = open_one(tmp_path, a={"$ref": "b.json"}, b={"type": "string"})
    same = open_one(tmp_path)
    other = open_one(tmp_path, b={"type": "integer"})
    assert first.digest == same.digest != other.digest


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"patterns": "{"}, "patterns.json: not JSON: "),
        ({"patterns": []}, "patterns.json: must be an object of patterns and schema files"),
        ({"patterns": {}}, "patterns.json: must be an object of patterns and schema files"),
        ({"patterns": {"*": 3}}, "'*': must be the path of a schema file in "),
        ({"patterns": {"*": "../a.json"}}, "(got '../a.json')"),
        ({"patterns": {"*": "/etc/passwd"}}, "(got '/etc/passwd')"),
        ({"patterns": {"*": "none.json"}}, "none.json: No such file"),
        ({"a": "{"}, "a.json: not JSON: "),
        ({"a": [1]}, "a.json: must be a JSON Schema, an object"),
        ({"a": {"properties": {"x": {"type": "text"}}}}, "(at /properties/x/type)"),
        ({"a": {"pattern": "("}}, "a.json: "),
        ({"a": {"$schema": "https://a.example/own"}}, "https://a.example/own"),
        ({"a": {"$ref": "none.json"}}, "a.json: refers to none.json, which is no path or $id"),
        ({"a": {"$ref": "../../etc/passwd"}}, "a.json: refers to etc/passwd, which is no path"),
        ({"a": {"$ref": "#/$defs/none"}}, "a.json: "),
        ({"a": {"$ref": "b.json"}, "b": {"type": "text"}}, "b.json: not a JSON Schema: "),
        ({"a": {"$ref": "b.json"}, "b": "{"}, "b.json: not JSON: "),
    ],
)
def test_errors_name_the_file(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    setting = write(tmp_path, **({"patterns": {"*.json": "a.json"}, "a": {}} | files))
    with pytest.raises(SettingsError) as caught:
        open_metadata_schemas(setting)
    assert str(caught.value).startswith("STORE_METADATA_SCHEMAS: ")
    assert message in str(caught.value)


def test_an_absent_file_of_the_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"patterns\.json: No such file"):
        open_metadata_schemas(str(tmp_path / "patterns.json"))


def test_fetches_nothing_from_the_network(tmp_path: Path) -> None:
    reached = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)

        def accept() -> None:
            try:
                server.accept()[0].close()
                reached.append(True)
            except OSError:
                return

        thread = Thread(target=accept)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/sample.json"
        with pytest.raises(SettingsError) as caught:
            open_one(tmp_path, a={"$ref": url})
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert f"refers to {url}, which" in str(caught.value)
    assert "nothing is fetched from the network" in str(caught.value)
    assert reached == []


def test_an_expensive_pattern_ends_soon(tmp_path: Path) -> None:
    schema = open_one(tmp_path, a={"pattern": "^(?=a)(a|a)*(?<!b)$"})
    (fault,) = schema.find_faults("a" * 60 + "b", most=9)
    assert "backtracking" in fault.message


LOADED = """
import sys
from dataclasses import replace
from config import Settings
from storage.connect import connect
settings = Settings(home=sys.argv[1], secret_key="s" * 32, metadata_schemas=sys.argv[2])
connect(settings)
print("jsonschema_rs" in sys.modules)
"""


@pytest.mark.parametrize("is_set", [False, True])
def test_without_the_setting_nothing_is_loaded(tmp_path: Path, is_set: bool) -> None:
    setting = write(tmp_path, patterns={"*.json": "a.json"}, a=SAMPLE) if is_set else ""
    program = LOADED.replace("sys.argv[1]", f"__import__('pathlib').Path({str(tmp_path)!r})")
    done = subprocess.run(
        (sys.executable, "-c", program.replace("sys.argv[2]", repr(setting))),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(is_set)]
