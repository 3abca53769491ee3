"""The contract is covered: each row has tests, each id on a test has a row, and no word of the
definition, error code or operator command is without a row."""

from collections import Counter

import click
import pytest

from api.app import OPERATIONS
from api.http.openapi import build_definition
from ops.__main__ import cli
from tests import conformance
from tests.conformance import CONTRACT, Contract, ContractRow, expand_braces, read_contract


@pytest.fixture(scope="module")
def contract() -> Contract:
    return read_contract(CONTRACT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tests() -> dict[str, frozenset[str]]:
    return conformance.all_tests()


def test_every_table_line_is_a_row(contract: Contract) -> None:
    assert contract.malformed == ()


def test_ids_are_unique(contract: Contract) -> None:
    counted = Counter(row.id for row in contract.rows)
    assert [ident for ident, count in counted.items() if count > 1] == []


def test_every_row_has_a_test(contract: Contract, tests: dict[str, frozenset[str]]) -> None:
    proven = frozenset().union(*tests.values())
    assert [row.id for row in contract.rows if row.id not in proven] == []


def test_every_marker_names_a_row(contract: Contract, tests: dict[str, frozenset[str]]) -> None:
    known = {row.id for row in contract.rows}
    assert {test: ids - known for test, ids in tests.items() if ids - known} == {}


def test_every_test_of_the_api_has_a_row(tests: dict[str, frozenset[str]]) -> None:
    unmarked = [test for test, ids in tests.items() if test.startswith("tests/api/") and not ids]
    assert unmarked == [], "add @pytest.mark.spec(id) with a row of tests/contract.md"


def test_page_lists_the_tests_of_each_row() -> None:
    page = conformance.render_page()
    line = next(line for line in page.splitlines() if line.startswith("| BUN-01 |"))
    assert "`tests/api/" in line


def _rows_of(contract: Contract, operation: str) -> list[ContractRow]:
    return [row for row in contract.rows if operation in row.spans]


@pytest.mark.parametrize("operation", [one.name for one in OPERATIONS])
def test_every_word_of_the_definition_is_in_a_row_of_its_operation(
    contract: Contract, operation: str
) -> None:
    document = build_definition(
        OPERATIONS, server="http://localhost/v1", openid_url="http://localhost"
    )
    said = {word for name, word in conformance.definition_words(document) if name == operation}
    spoken = {span for row in _rows_of(contract, operation) for span in row.spans}
    assert sorted(said - spoken) == []


def test_every_error_code_has_a_row(contract: Contract) -> None:
    named = {span for row in contract.rows if row.id.startswith("ERR-") for span in row.spans}
    assert sorted(conformance.error_codes() - named) == []


def test_every_command_of_operators_has_a_row(contract: Contract) -> None:
    named = {span for row in contract.rows if row.id.startswith("OPS-") for span in row.spans}
    names = cli.list_commands(click.Context(cli))
    assert sorted(f"ops {name}" for name in names if f"ops {name}" not in named) == []


def test_expands_braces() -> None:
    assert list(expand_braces("a.{b, c}[].{d,e}")) == ["a.b[].d", "a.b[].e", "a.c[].d", "a.c[].e"]
    assert list(expand_braces("/bundles/{uuid}")) == ["/bundles/{uuid}"]


def test_reports_malformed_table_lines() -> None:
    broken = "| BUN-1 | id too short |\n| BUN-02 without a second column\n"
    assert len(read_contract(broken).malformed) == 2


def test_spans_of_a_row_include_its_heading() -> None:
    text = "### `get_x`: `GET /x`\n\n| id | what the contract asks |\n|---|---|\n| XX-01 | Has `query.{a, b}`. |\n"
    (row,) = read_contract(text).rows
    assert row.spans == {"get_x", "GET /x", "query.a", "query.b"}


def test_only_leaf_members_are_words() -> None:
    schemas = {"One": {"type": "object", "properties": {"a": {"type": "string"}}}}
    answer = {
        "properties": {
            "list": {"type": "array", "items": {"$ref": "#/components/schemas/One"}},
            "texts": {"type": "array", "items": {"type": "string"}},
            "free": {"type": "object"},
            "named": {"additionalProperties": {"$ref": "#/components/schemas/One"}},
        }
    }
    described = {
        "operationId": "get_x",
        "parameters": [{"in": "query", "name": "q"}],
        "responses": {
            "200": {"content": {"application/json": {"schema": answer}}, "headers": {"Link": {}}},
            "404": {},
        },
    }
    document = {"components": {"schemas": schemas}, "paths": {"/x": {"get": described}}}
    assert {word for _, word in conformance.definition_words(document)} == {
        *("query.q", "200", "header.Link", "answer.list[].a", "answer.texts"),
        *("answer.free", "answer.named.*.a"),
    }
