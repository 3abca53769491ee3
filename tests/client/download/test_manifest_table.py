"""The manifest as a file: what is taken, what is refused by its line, what a copy says."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_client.downloads import manifests
from store_client.downloads.manifests import REQUIRED, RowResult
from store_client.errors import Misused

pytestmark = pytest.mark.spec("DWN-14")

UUID = "00000000-0000-4000-8000-00000000000a"
VERSION = "2026-01-31T235959.000000Z"
GOOD = {
    "bundle_uuid": UUID,
    "bundle_version": VERSION,
    "file_name": "a.txt",
    "file_uuid": UUID.upper(),
    "file_sha256": "AB" * 32,
    "file_size": "12",
}


def lines(*rows: dict[str, str], columns: tuple[str, ...] = REQUIRED) -> str:
    return "\n".join(["\t".join(columns), *("\t".join(row[c] for c in columns) for row in rows)])


def manifest(folder: Path, text: str, *, encoding: str = "utf-8") -> Path:
    path = folder / "m.tsv"
    path.write_bytes(text.encode(encoding))
    return path


@given(st.permutations([*REQUIRED, "note", "file_version"]), st.sampled_from(["\n", "\r\n"]))
def test_accepts_columns_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, columns: list[str], end: str
) -> None:
    row = {**GOOD, "note": "x", "file_version": VERSION}
    text = lines(row, columns=tuple(columns)).replace("\n", end)
    (found,) = manifests.read_manifest(manifest(tmp_path_factory.mktemp("m"), text)).rows
    assert (found.uuid, found.sha256, found.size, found.version) == (UUID, "ab" * 32, 12, VERSION)


def test_accepts_bom_quotes_and_empty_lines(tmp_path: Path) -> None:
    quoted = {**GOOD, "file_name": '"a ""b"""'}
    text = lines(quoted) + "\n\n\t\t\n" + "\t".join(GOOD[c] for c in REQUIRED) + "\n\n"
    table = manifests.read_manifest(manifest(tmp_path, text, encoding="utf-8-sig"))
    assert [(row.line, row.name) for row in table.rows] == [(2, 'a "b"'), (5, "a.txt")]
    assert table.rows[0].version == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"bundle_uuid": "x"},
        {"bundle_version": "2026"},
        {"file_name": "../a"},
        {"file_name": ""},
        {"file_uuid": ""},
        {"file_sha256": "0"},
        {"file_size": "-1"},
        {"file_size": "1.0"},
        {"file_size": "٣"},
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(Misused, match="line 3: "):
        manifests.read_manifest(manifest(tmp_path, lines(GOOD, {**GOOD, **wrong})))


def test_a_line_that_is_too_short_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misused, match="line 3: "):
        manifests.read_manifest(manifest(tmp_path, lines(GOOD) + "\n" + UUID))


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_column_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    columns = tuple(name for name in REQUIRED if name != missing)
    with pytest.raises(Misused, match=f"line 1: no column {missing}"):
        manifests.read_manifest(manifest(tmp_path, lines(GOOD, columns=columns)))


def test_rejects_invalid_manifests(tmp_path: Path) -> None:
    with pytest.raises(Misused, match="two columns"):
        manifests.read_manifest(manifest(tmp_path, lines(GOOD, columns=(*REQUIRED, "file_name"))))
    with pytest.raises(Misused, match="empty"):
        manifests.read_manifest(manifest(tmp_path, ""))
    with pytest.raises(Misused, match="UTF-8"):
        manifests.read_manifest(manifest(tmp_path, "é", encoding="latin-1"))
    with pytest.raises(Misused, match="line 2"):
        manifests.read_manifest(manifest(tmp_path, lines(GOOD) + "x" * 200_000))
    with pytest.raises(Misused, match="cannot read"):
        manifests.read_manifest(tmp_path / "absent")


def test_a_copy_keeps_all_cells_and_adds_two(tmp_path: Path) -> None:
    row = {**GOOD, "note": 'tab "and" quote'}
    text = lines(row, columns=("note", *REQUIRED)) + "\tbeyond the header"
    table = manifests.read_manifest(manifest(tmp_path, text))
    manifests.write_copy(table, tmp_path / "copy.tsv", {2: RowResult(VERSION, ".store/x")})
    with (tmp_path / "copy.tsv").open(newline="") as file:
        (found,) = csv.DictReader(file, delimiter="\t")
    assert found == {**row, "file_version": VERSION, "file_path": ".store/x"}
    again = manifests.read_manifest(tmp_path / "copy.tsv")
    manifests.write_copy(again, tmp_path / "copy.tsv", {2: RowResult(VERSION, "elsewhere")})
    assert manifests.read_manifest(tmp_path / "copy.tsv").columns == again.columns
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.spec("DWN-60")
@pytest.mark.parametrize("second", ["x", '3 prime"'])
def test_a_quote_that_belongs_to_the_text_swallows_no_line(tmp_path: Path, second: str) -> None:
    notes = ["x", '"5 prime', "x", second, "x"]
    text = lines(*({**GOOD, "note": note} for note in notes), columns=(*REQUIRED, "note"))
    with pytest.raises(Misused, match=r"line [56]: .*(unexpected end|over several lines)"):
        manifests.read_manifest(manifest(tmp_path, text))


@pytest.mark.spec("DWN-60")
def test_accepts_multi_line_cells(tmp_path: Path) -> None:
    text = lines({**GOOD, "note": '"one\ntwo"'}, GOOD | {"note": ""}, columns=(*REQUIRED, "note"))
    table = manifests.read_manifest(manifest(tmp_path, text))
    assert [row.cells[-1] for row in table.rows] == ["one\ntwo", ""]
