"""Tables whose rows become bundles: what is read, what a template makes of it, what is refused."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_client.errors import Misused
from store_client.uploads.table import (
    RenderedBundle,
    TableRow,
    read_table,
    read_template,
    render_plainly,
)

pytestmark = pytest.mark.spec("UPL-64")

COLUMNS = ("run", "organism", "bases")


def table(folder: Path, text: str | bytes, name: str = "runs.tsv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rendered(folder: Path, template: Any, **cells: str) -> RenderedBundle:
    path = folder / "template.json"
    path.write_text(json.dumps(template))
    row = {"run": "R1", "organism": "Danio rerio", "bases": "12", **cells}
    return read_template(path, tuple(row)).render(TableRow(2, row), folder)


def refusal(folder: Path, template: Any, **cells: str) -> str:
    with pytest.raises(Misused) as told:
        rendered(folder, template, **cells)
    return f"{told.value} {told.value.hint}"


def test_columns_become_metadata_values_and_names(tmp_path: Path) -> None:
    template = {
        "bundle": "{run}",
        "files": {
            "{run}.json": {
                "run": "{run}",
                "about": "{run} of {organism} {{sic}}",
                "bases": "{bases:integer}",
                "share": "{bases:number}",
                "nested": [{"of": "{organism}"}, True, None, 3],
            },
            "reads.txt": "@data/{run}.txt",
        },
    }
    made = rendered(tmp_path, template)
    assert made.label == "R1"
    assert json.loads(made.documents["R1.json"]) == {
        "run": "R1",
        "about": "R1 of Danio rerio {sic}",
        "bases": 12,
        "share": 12,
        "nested": [{"of": "Danio rerio"}, True, None, 3],
    }
    assert made.files == {"reads.txt": tmp_path / "data" / "R1.txt"}


def test_members_of_empty_cells_are_left_out(tmp_path: Path) -> None:
    files = {"run.json": {"run": "{run}", "organism": "{organism}", "list": ["{organism}"]}}
    made = rendered(tmp_path, {"files": files}, organism="")
    assert json.loads(made.documents["run.json"]) == {"run": "R1", "list": []}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ([], ["no member", "files"]),
        ({"files": {}}, ["no member"]),
        ({"files": {"a.json": {}}, "bundel": "x"}, ["'bundel'", "bundle"]),
        ({"files": {"a.json": {"x": "{organsm}"}}}, ["'organsm'", "did you mean: organism"]),
        ({"files": {"a.json": {"x": "{run"}}}, ["{run"]),
        ({"files": {"a.json": {"x": "{run:date}"}}}, ["'date'", "number, integer or boolean"]),
        ({"files": {"a.json": "text"}}, ["a.json", "@PATH"]),
        ({"files": {"a.json": 7}}, ["a.json"]),
        ({"files": {"a.json": {"x": "{run.__class__}"}}}, ["no column 'run.__class__'"]),
        ({"files": {"a.json": {"x": "{0}"}}}, ["no column '0'"]),
        ({"files": {"a.json": {}}, "bundle": 3}, ["bundle must be a text"]),
        ({"files": {"a.json": {}}, "bundle": "R\x1b[31m"}, ["line 2", "control characters"]),
        ({"files": {"a.json": {"x": "\ud800"}}}, ["half of a surrogate pair"]),
        ({"files": {"a.json": {}}, "bundle": "\ud800"}, ["half of a surrogate pair"]),
    ],
)
def test_faulty_templates_are_refused_with_the_place(
    tmp_path: Path, template: Any, words: list[str]
) -> None:
    told = refusal(tmp_path, template)
    assert all(word in told for word in words), told


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"bases": "many"}, ["line 2", "bases", "'many' is no integer"]),
        ({"run": ""}, ["line 2", "column 'run' is empty"]),
        ({"bases": "1_000"}, ["'1_000' is no integer"]),
        ({"bases": "१२"}, ["is no integer"]),
        ({"bases": "1" * 5000}, ["111...' is no integer"]),
        ({"run": "../../etc/passwd"}, ["line 2", "is not below"]),
        ({"run": "a\0b"}, ["line 2", "is not below"]),
    ],
)
def test_cells_that_do_not_fit_are_refused_with_their_line(
    tmp_path: Path, cells: dict[str, str], words: list[str]
) -> None:
    files = {"a.json": {"n": "{bases:integer}"}, "b": "@{run}"}
    told = refusal(tmp_path, {"files": files}, **cells)
    assert all(word in told for word in words), told


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("12345678901234567890", 12345678901234567890),
        ("-9007199254740993", -9007199254740993),
        ("1.5", 1.5),
        ("1e300", 1e300),
        (".5", 0.5),
    ],
)
def test_numbers_keep_all_their_digits(tmp_path: Path, cell: str, value: float) -> None:
    made = rendered(tmp_path, {"files": {"a.json": {"n": "{bases:number}"}}}, bases=cell)
    found = json.loads(made.documents["a.json"])["n"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("cell", ["inf", "nan", "1e400", "1_0", "0x1", "", " 1"])
def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path, cell: str) -> None:
    files = {"{bases:number}": []}
    assert "line 2" in refusal(tmp_path, {"files": files}, bases=cell)


def test_members_that_a_template_gives_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"files": {"a.json": {"x": 1}, "a.json": {"y": 2}}}')
    with pytest.raises(
        Misused, match=r"t\.json is not JSON: one object has the name 'a\.json' twice"
    ):
        read_template(tmp_path / "t.json", COLUMNS)


def test_labels_of_rows_have_no_control_characters(tmp_path: Path) -> None:
    with pytest.raises(Misused, match=r"line 2: the name 'R\\x1b\[31m' has control characters"):
        render_plainly(TableRow(2, {"run": "R\x1b[31m"}), tmp_path)
    label = render_plainly(TableRow(2, {"run": "Größe\u00a0é\nb"}), tmp_path).label
    assert label == "Größe\u00a0é\nb"


def test_deeply_nested_templates_are_refused(tmp_path: Path) -> None:
    nested = "[" * 600 + "]" * 600
    (tmp_path / "t.json").write_text(f'{{"files": {{"a.json": {nested}}}}}')
    with pytest.raises(Misused, match="nested deeper than 100"):
        read_template(tmp_path / "t.json", COLUMNS)


def test_members_that_become_the_same_are_refused(tmp_path: Path) -> None:
    template = {"files": {"a.json": {"{run}": 1, "R1": 2}}}
    assert "two members have the same name" in refusal(tmp_path, template)


@pytest.mark.parametrize(
    "cells",
    [
        {"file": "x/b", "file:b": "y/c"},
        {"file": "x/metadata.json"},
        {"file:metadata.json": "x"},
    ],
)
def test_files_of_a_row_do_not_replace_each_other(tmp_path: Path, cells: dict[str, str]) -> None:
    with pytest.raises(Misused, match="line 2: two files have the name"):
        render_plainly(TableRow(2, {"run": "R1", **cells}), tmp_path)


def test_paths_of_a_table_stay_below_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    for cell in ("/etc/passwd", "../secret", "link"):
        with pytest.raises(Misused, match="is not below"):
            render_plainly(TableRow(2, {"run": "R", "file": cell}), tmp_path / "in")


def test_a_row_without_a_template_is_one_document_and_its_files(tmp_path: Path) -> None:
    cells = {"run": "R1", "organism": "", "file": "a.txt", "file:reads.txt": "b/c.txt"}
    made = render_plainly(TableRow(2, cells), tmp_path)
    assert json.loads(made.documents["metadata.json"]) == {"run": "R1"}
    assert made.files == {"a.txt": tmp_path / "a.txt", "reads.txt": tmp_path / "b" / "c.txt"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["no rows"]),
        (b"run\torganism\n", ["no rows"]),
        (b"run\trun\nA\tB\n", ["line 1", "two columns run"]),
        (b"run\t\nA\tB\n", ["line 1", "column 2 has no name"]),
        (b"run\nA\tB\n", ["line 2", "2 cells, but 1 columns"]),
        (b"run\nA\n\xff\n", ["line 3", "UTF-8"]),
        (b"run\tx\nA\tB\nC\tD\0E\n", ["line 3", "column 'x'", "NUL"]),
        (b"run,organism\nA,B\n", ["line 1", "only one column", "separated by tabs"]),
        (b"run;organism\nA;B\n", ["line 1", "only one column", "'run;organism'"]),
        (b'run\torganism\n"A"B\tC\n', ["line 2"]),
    ],
)
def test_faulty_tables_are_refused_with_the_line(
    tmp_path: Path, text: bytes, words: list[str]
) -> None:
    with pytest.raises(Misused) as told:
        read_table(table(tmp_path, text))
    assert all(word in str(told.value) for word in words), told.value


CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=10).map(str.strip)


@given(rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_table_that_a_spreadsheet_writes_is_read_as_it_was(
    rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name, separator in (("t.tsv", "\t"), ("t.csv", ",")):
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=separator).writerows([COLUMNS, *rows])
        path = table(tmp_path_factory.mktemp("t"), text.getvalue(), name)
        wanted = [dict(zip(COLUMNS, row, strict=True)) for row in rows if any(row)]
        if wanted:
            assert [row.cells for row in read_table(path)] == wanted
