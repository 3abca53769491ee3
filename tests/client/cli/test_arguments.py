"""Schemas as options: each case is a schema, what is typed, and what the store would be sent."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from store_client.cli.arguments import HEADERS, build_header_option, build_option, collect_arguments
from store_client.definition import OperationParameter
from store_client.definition.openapi import clean_schema

JSON_LIST = {"type": "array", "items": {"type": "object"}}
NAMES = {"type": "array", "items": {"type": "string"}}


def sent(schema: dict[str, Any], *words: str, name: str = "it", given: str | None = None) -> Any:
    """The value of the one option `--it`, absent when it is not sent."""
    done, found = typed(schema, *words, name=name, given=given)
    assert done.exit_code == 0, done.output
    return found.get(name, "absent")


def refused(schema: dict[str, Any], *words: str, name: str = "it", required: bool = False) -> str:
    """What is said of words that are not understood."""
    done, _ = typed(schema, *words, name=name, required=required)
    assert done.exit_code == 2
    return done.output


def typed(
    schema: dict[str, Any],
    *words: str,
    name: str = "it",
    given: str | None = None,
    required: bool = False,
) -> tuple[Result, dict[str, Any]]:
    parameter = OperationParameter(name, "body", required, clean_schema(schema))
    found: dict[str, Any] = {}
    command = click.Command(
        "command",
        params=[build_option(parameter, paged=False)],
        callback=lambda **values: found.update(collect_arguments((parameter,), values)),
    )
    return CliRunner().invoke(command, words, input=given), found


@pytest.mark.spec("CLI-42")
@pytest.mark.parametrize(
    ("schema", "words", "value"),
    [
        ({"type": "string"}, ["--it", "@not-a-file"], "@not-a-file"),
        ({"type": "string"}, ["--it", ""], ""),
        ({"type": "string", "enum": ["aws", "gcp"]}, ["--it", "gcp"], "gcp"),
        ({"type": "integer", "minimum": 1, "maximum": 500}, ["--it", "500"], 500),
        (
            {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
            ["--it", str(2**63 - 1)],
            2**63 - 1,
        ),
        ({"type": "number"}, ["--it", "0.5"], 0.5),
        ({"type": "boolean", "default": False}, ["--it"], True),
        ({"type": "boolean", "default": True}, ["--no-it"], False),
        (NAMES, ["--it", "a", "--it", "b"], ["a", "b"]),
        (NAMES, ["--it", '["a", "b"]', "--it", "c"], ["a", "b", "c"]),
        (NAMES, ["--it", "[]"], []),
        (JSON_LIST, ["--it", '{"a": 1}', "--it", '[{"b": 2}]'], [{"a": 1}, {"b": 2}]),
        ({"type": "array", "items": {"type": "integer"}}, ["--it", "1", "--it", "2"], [1, 2]),
        ({"type": "object"}, ["--it", '{"a": [1, null]}'], {"a": [1, None]}),
        ({"type": ["object", "null"]}, ["--it", "{}"], {}),
        ({}, ["--it", "plain words"], "plain words"),
        ({}, ["--it", "12"], 12),
        ({}, ["--it", '{"a": 1}'], {"a": 1}),
    ],
)
def test_converts_text_to_type_of_schema(
    schema: dict[str, Any], words: list[str], value: Any
) -> None:
    assert sent(schema, *words) == value


@pytest.mark.spec("CLI-42")
@pytest.mark.parametrize(
    "schema",
    [{"type": "string", "default": "x"}, {"type": "boolean", "default": True}, NAMES, {}],
)
def test_omitted_options_are_not_sent(schema: dict[str, Any]) -> None:
    assert sent(schema) == "absent"


@pytest.mark.spec("CLI-42")
@pytest.mark.parametrize(
    ("schema", "words", "said"),
    [
        ({"type": "string", "enum": ["aws", "gcp"]}, ["--it", "azure"], "'aws', 'gcp'"),
        ({"type": "integer"}, ["--it", "many"], "not a valid integer"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, ["--it", "6"], "1<=x<=5"),
        ({"type": "object"}, ["--it", "{"], "is no JSON"),
        ({"type": "object"}, ["--it", '{"a": NaN}'], "NaN is not valid JSON"),
        ({"type": "object"}, ["--it", "[" * 100_000], "is no JSON"),
        ({"type": "object"}, ["--it", "@/no/such/file"], "cannot read /no/such/file"),
        (NAMES, ["--it", "[a"], "is no JSON"),
        ({}, ["--it", "{a"], "is no JSON"),
    ],
)
def test_reports_invalid_values(schema: dict[str, Any], words: list[str], said: str) -> None:
    assert said in " ".join(refused(schema, *words).split())


@pytest.mark.spec("CLI-42")
def test_a_required_option_is_missed_by_its_name() -> None:
    assert "--callback-url" in refused({"type": "string"}, name="callback_url", required=True)


@pytest.mark.spec("CLI-42")
def test_required_boolean_takes_a_word() -> None:
    done, found = typed({"type": "boolean"}, "--it", "false", required=True)
    assert (done.exit_code, found) == (0, {"it": False})


@pytest.mark.spec("CLI-43")
def test_reads_json_from_file_or_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "query.json"
    path.write_text('\ufeff{"query": {"match_all": {}}}\n', encoding="utf-8")
    schema = {"type": "object"}
    assert sent(schema, "--it", f"@{path}") == {"query": {"match_all": {}}}
    assert sent(schema, "--it", "-", given='{"a": "é"}') == {"a": "é"}


@pytest.mark.spec("CLI-43")
def test_reads_list_from_file_as_json_or_lines(tmp_path: Path) -> None:
    lines, whole = tmp_path / "names.txt", tmp_path / "files.json"
    lines.write_text("a\nb c\n\n")
    whole.write_text(json.dumps([{"a": 1}, {"a": 2}]))
    assert sent(NAMES, "--it", f"@{lines}", "--it", "d") == ["a", "b c", "d"]
    assert sent(JSON_LIST, "--it", f"@{whole}") == [{"a": 1}, {"a": 2}]
    assert sent(NAMES, "--it", "-", given="a\nb\n") == ["a", "b"]


@pytest.mark.spec("CLI-43")
def test_reads_lines_of_text_file_whatever_ends_them(tmp_path: Path) -> None:
    path = tmp_path / "about.md"
    path.write_bytes("# Kidney\r\n\r\nTwo donors, é\r\n".encode())
    assert sent({}, "--it", f"@{path}") == "# Kidney\n\nTwo donors, é"


@pytest.mark.spec("CLI-43")
def test_standard_input_is_read_once() -> None:
    assert "was read already" in refused(NAMES, "--it", "-", "--it", "-")


@pytest.mark.spec("CLI-43")
def test_rejects_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8 text" in refused({"type": "object"}, "--it", f"@{path}")


@pytest.mark.spec("CLI-43")
def test_reads_secret_from_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("hush hush\n")
    name, schema = "hmac_secret_key", {"type": "string"}
    assert sent(schema, "--hmac-secret-key", f"@{path}", name=name) == "hush hush"
    assert sent(schema, "--hmac-secret-key", "-", name=name, given="hush\n") == "hush"


@pytest.mark.spec("CLI-42")
def test_pointers_between_pages_are_not_shown_in_help() -> None:
    pointer = OperationParameter(name="search_after", place="query", required=False, schema={})
    assert build_option(pointer, paged=True).hidden
    assert not build_option(pointer, paged=False).hidden


@pytest.mark.spec("CLI-42")
def test_help_shows_defaults_without_control_characters() -> None:
    about = "Items\x1b[2J on one page."
    schema = {"type": "integer", "default": 100}
    parameter = OperationParameter("per_page", "query", False, schema, about)
    assert build_option(parameter, paged=True).help == r"Items\x1b[2J on one page.  [default: 100]"


UUID = {"type": "string", "format": "uuid"}
MAP = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["a", "b"]}, "of": {"type": "string"}},
        "required": ["type"],
    },
}
ITEMS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"uuid": UUID, "sizes": {"type": "array", "items": {"type": "integer"}}},
    },
}


@pytest.mark.spec("CLI-133")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (MAP, "[{NAME: {type: a|b, of?: TEXT}, ...}]"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "{NAME: true|false, ..."),
        (ITEMS, "[each: {uuid?: UUID, sizes?: [NUMBER, ...]}]"),
    ],
)
def test_help_shows_what_belongs_into_a_map_or_a_list_of_objects(
    schema: dict[str, Any], said: str
) -> None:
    assert said in str(
        build_option(OperationParameter("it", "body", False, schema), paged=False).help
    )


@pytest.mark.spec("CLI-133")
@pytest.mark.parametrize(
    "schema", [{"type": "object"}, {"type": "object", "additionalProperties": {}}, NAMES, {}]
)
def test_help_shows_no_shape_of_what_may_be_anything(schema: dict[str, Any]) -> None:
    shown = str(build_option(OperationParameter("it", "body", False, schema), paged=False).help)
    assert "NAME" not in shown
    assert "each:" not in shown


def headed(*words: str) -> tuple[Result, dict[str, Any]]:
    """What comes of words that set headers."""
    found: dict[str, Any] = {}
    command = click.Command(
        "command",
        params=[build_header_option()],
        callback=lambda **values: found.update(values[HEADERS]),
    )
    return CliRunner().invoke(command, words), found


@pytest.mark.spec("CLI-132")
def test_accepts_headers_by_name_and_value() -> None:
    _, found = headed("--header", "Prefer: wait=5", "--header", "Idempotency-Key:a:b")
    assert found == {"Prefer": "wait=5", "Idempotency-Key": "a:b"}


@pytest.mark.spec("CLI-132")
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("Authorization: Bearer x", "Authorization is set by this client"),
        ("content-length:1", "content-length is set by this client"),
        ("Prefer", "is not a header"),
        ("Pre fer:x", "is not a header"),
        ("Prefer:a\x1b[2J", "is not a header"),
    ],
)
def test_rejects_invalid_and_reserved_headers(word: str, said: str) -> None:
    done, found = headed("--header", word)
    assert (done.exit_code, found) == (2, {})
    assert said in done.output
