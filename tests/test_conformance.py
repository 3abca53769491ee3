"""The conformance table is whole: every row has its tests, every test its row, and no word of the
definition and no error code is without one."""

from collections import Counter

import click
import pytest

from api.definition import definition
from api.operations import OPERATIONS
from ops.cli import cli
from tests import conformance
from tests.conformance import PAGE, Page, Row, expanded, read

LATER = "## Not yet here"


@pytest.fixture(scope="module")
def page() -> Page:
    return read(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tests() -> set[str]:
    return conformance.all_tests()


def test_every_line_of_a_table_is_a_row(page: Page) -> None:
    assert page.malformed == ()


def test_ids_are_unique(page: Page) -> None:
    counted = Counter(row.id for row in page.rows)
    assert [ident for ident, count in counted.items() if count > 1] == []


def test_every_row_names_tests_that_exist(page: Page, tests: set[str]) -> None:
    known = tests | conformance.modules()
    absent = [
        (row.id, proof)
        for row in page.rows
        for proof in row.proofs or ("nothing",)
        if proof not in known
    ]
    assert absent == []


def test_every_test_has_a_row_or_guards_what_stands_behind_one(page: Page, tests: set[str]) -> None:
    proofs = {proof for row in page.rows for proof in row.proofs} | page.internal.keys()
    without = sorted(
        test
        for test in tests
        if not {test, test.partition("::")[0], test.rpartition("::")[0]} & proofs
    )
    assert without == [], "name them in docs/conformance.md: in a row, or as `- internal: …`"


def test_what_is_internal_exists_and_is_no_test_of_the_api(page: Page) -> None:
    assert page.internal.keys() - conformance.modules() == set()
    assert [name for name in page.internal if name.startswith("tests/api/")] == []


def _rows_of(page: Page, operation: str) -> list[Row]:
    return [row for row in page.rows if operation in row.spans]


@pytest.mark.parametrize("operation", [one.name for one in OPERATIONS])
def test_every_word_of_the_definition_is_in_a_row_of_its_operation(
    page: Page, operation: str
) -> None:
    document = definition(OPERATIONS, server="http://localhost/v1", openid_url="http://localhost")
    said = {word for name, word in conformance.words(document) if name == operation}
    spoken = {span for row in _rows_of(page, operation) for span in row.spans}
    assert sorted(said - spoken) == []


def test_every_error_code_has_a_row(page: Page) -> None:
    named = {span for row in page.rows if row.id.startswith("ERR-") for span in row.spans}
    assert sorted(conformance.codes() - named) == []


def test_every_command_of_operators_has_a_row(page: Page) -> None:
    named = {span for row in page.rows if row.id.startswith("OPS-") for span in row.spans}
    names = cli.list_commands(click.Context(cli))
    assert sorted(f"ops {name}" for name in names if f"ops {name}" not in named) == []


def test_what_is_not_here_yet_is_claimed_by_no_row(page: Page) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert LATER in text
    assert read(text.partition(LATER)[2]).rows == ()


def test_braces_stand_for_several_words() -> None:
    assert list(expanded("a.{b, c}[].{d,e}")) == ["a.b[].d", "a.b[].e", "a.c[].d", "a.c[].e"]
    assert list(expanded("/bundles/{uuid}")) == ["/bundles/{uuid}"]


def test_what_is_no_row_is_told() -> None:
    broken = (
        "| BUN-1 | too short an id | `tests/x.py` |\n| BUN-02 | no proof at all |\n- internal: x\n"
    )
    assert len(read(broken).malformed) == 3


def test_a_row_has_its_heading_its_words_and_its_proofs() -> None:
    told = (
        "### `get_x`: `GET /x`\n\n| id | what the contract asks | proved by |\n|---|---|---|\n"
        "| XX-01 | Says `query.{a, b}`. | `tests/x.py::test_1` `::test_2` `tests/y.py` |\n"
        "- internal: `tests/z.py`: what it guards\n"
    )
    page = read(told)
    (row,) = page.rows
    assert row.spans == {"get_x", "GET /x", "query.a", "query.b"}
    assert row.proofs == ("tests/x.py::test_1", "tests/x.py::test_2", "tests/y.py")
    assert page.internal == {"tests/z.py": "what it guards"}


def test_only_members_without_members_are_words() -> None:
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
    assert {word for _, word in conformance.words(document)} == {
        *("query.q", "200", "header.Link", "answer.list[].a", "answer.texts"),
        *("answer.free", "answer.named.*.a"),
    }
