"""Tables whose rows are to become bundles: all findings, with their lines."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from store_client.errors import Misused
from store_client.uploads.validation import validate_table
from store_client.validation.schemas import SchemaSet, parse_rules
from tests.storage.contracts.real_data import VARIABLE

pytestmark = pytest.mark.spec("CLI-162")


def found(folder: Path, data: str | bytes, **more: Any) -> list[tuple[int | None, str, str]]:
    path = folder / "runs.tsv"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    report = validate_table(path, **more)
    return [(one.line, one.severity, one.message) for one in report.findings]


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        ("", None, "has no rows below its heading"),
        ("a\tb\n", None, "has no rows below its heading"),
        ("a\tb\n1\t2\t3\n", 2, "3 cells, but 2 columns"),
        ("a\t\n1\t2\n", 1, "column 2 has no name"),
        ("a\tb\ta\n1\t2\t3\n", 1, "two columns a"),
        ('a\tb\n1\t"2\n', 2, "unexpected end of data"),
        ('a\tb\n"1"x\t2\n', 2, "'\t' expected after '\"'"),
        (b"a\tb\n1\t\xff\n", 2, "not UTF-8 text"),
        ("a\tb\n1\t2\n".encode("utf-16"), 1, "not UTF-8 text"),
    ],
)
def test_finds_faults_of_the_table(
    tmp_path: Path, data: str | bytes, line: int | None, message: str
) -> None:
    assert (line, "error", message) in found(tmp_path, data)


def test_finds_all_ragged_rows(tmp_path: Path) -> None:
    rows = found(tmp_path, 'a\tb\n1\t2\n3\n\n"4\n5"\t6\n7\t8\t9\n10\t11\t12\n')
    assert rows == [
        (3, "warning", "1 cells, but 2 columns: the last ones count as empty"),
        (7, "error", "3 cells, but 2 columns"),
        (8, "error", "3 cells, but 2 columns"),
    ]


def test_finds_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    rows = found(tmp_path, "id\tfile\tfile:b.txt\nr1\ta.txt\ta.txt\nr2\tx.txt\t../y.txt\n")
    assert [(line, kind) for line, kind, _ in rows] == [(3, "error")]
    assert "'../y.txt' is not below" in rows[0][2]
    rows = found(tmp_path, "id\tfile\nr1\ta.txt\nr2\tx.txt\n")
    assert rows == [(3, "error", f"x.txt: there is no file {tmp_path / 'x.txt'}")]


def test_finds_rows_of_one_bundle(tmp_path: Path) -> None:
    ((line, kind, message),) = found(tmp_path, "id\tn\nr1\t1\nr2\t2\nr1\t3\n")
    assert (line, kind) == (4, "error")
    assert message.startswith("2 rows are bundle 'r1': lines 2, 4; ")


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("a", "a/b"), "a file has the name of a folder of 'a/b'"),
        (("\u00e9", "e\u0301"), "differ only in their Unicode normalization"),
        (("../a",), "the name '../a' cannot be used"),
    ],
)
def test_finds_names_that_one_bundle_cannot_have(
    tmp_path: Path, names: tuple[str, ...], fault: str
) -> None:
    template = tmp_path / "t.json"
    template.write_text(json.dumps({"files": {name: [] for name in names}}))
    ((line, kind, message),) = found(tmp_path, "id\nr1\n", template=template)
    assert (line, kind) == (2, "error")
    assert fault in message


def test_validates_rendered_documents_and_files(tmp_path: Path) -> None:
    (tmp_path / "more.json").write_text("{")
    (tmp_path / "s.json").write_text(json.dumps({"properties": {"n": {"maximum": 5}}}))
    template = tmp_path / "t.json"
    files = {"run.json": {"n": "{n:integer}"}, "more.json": "@more.json"}
    template.write_text(json.dumps({"files": files}))
    path = tmp_path / "runs.tsv"
    path.write_text("id\tn\nr1\t5\nr2\t6\nr3\tx\n")
    schemas = SchemaSet(parse_rules([str(tmp_path / "s.json")]))
    report = validate_table(path, schemas, template=template)
    assert [(Path(one.path).name, one.line, one.pointer) for one in report.findings] == [
        ("more.json", 1, None),
        ("runs.tsv", 3, "/n"),
        ("runs.tsv", 4, None),
    ]
    assert report.findings[1].message == "6 is greater than the maximum of 5 (in run.json)"
    assert "'x' is no integer" in report.findings[2].message
    assert (report.files, report.validated) == (3, 2)


def test_a_template_of_other_columns_is_refused(tmp_path: Path) -> None:
    template = tmp_path / "t.json"
    template.write_text(json.dumps({"files": {"a.json": {"x": "{other}"}}}))
    with pytest.raises(Misused, match="no column 'other'"):
        found(tmp_path, "id\n1\n", template=template)


REAL = os.environ.get(VARIABLE)


@pytest.mark.skipif(not REAL, reason=f"{VARIABLE} is not set")
def test_real_tables_have_no_faults_of_their_own(tmp_path: Path) -> None:
    template = tmp_path / "t.json"
    shape = {"bundle": "{Run_s}", "files": {"run.json": {"run": "{Run_s}"}}}
    template.write_text(json.dumps(shape))
    tables = sorted((Path(str(REAL)) / "runs").glob("*.tsv"))
    rows = 0
    for table in tables:
        report = validate_table(table, template=template)
        assert report.findings == []
        rows += report.files
    assert len(tables) == 5
    assert rows > 2_500
