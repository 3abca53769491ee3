"""Bundles from a folder."""

from pathlib import Path

import pytest

from ops.demo import folder


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}" if name.endswith(".json") else "x")


def test_each_lowest_folder_with_files_is_a_bundle(tmp_path: Path) -> None:
    fill(tmp_path, "a/one.json", "a/two.bin", "b/c/three.json")
    found = folder.bundles(tmp_path)
    assert [bundle.label for bundle in found] == ["a", "b/c"]
    assert [(file.name, file.indexed) for file in found[0].files] == [
        ("one.json", True),
        ("two.bin", False),
    ]


def test_a_folder_above_others_is_no_bundle(tmp_path: Path) -> None:
    fill(tmp_path, "a/one.json", "a/lower/two.json")
    assert [bundle.label for bundle in folder.bundles(tmp_path)] == ["a/lower"]


def test_notes_hidden_files_and_tables_are_no_files_of_a_bundle(tmp_path: Path) -> None:
    fill(tmp_path, "README.md", "a/README", "a/.hidden", "a/one.json")
    assert [bundle.label for bundle in folder.bundles(tmp_path)] == ["a"]


def test_each_row_of_a_table_is_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "runs.tsv").write_text("run\treads\tage\tnote\nR1\t12\t7\t\nR2\t7\t7 weeks\tx\n")
    found = folder.bundles(tmp_path)
    assert [bundle.metadata()["run_json"] for bundle in found] == [
        [{"run": "R1", "reads": 12, "age": "7", "note": None}],
        [{"run": "R2", "reads": 7, "age": "7 weeks", "note": "x"}],
    ]
    assert [len(bundle.files) for bundle in found] == [2, 2]


def test_a_limit_takes_some_of_every_kind(tmp_path: Path) -> None:
    fill(tmp_path, "a/one.json", "b/two.json")
    (tmp_path / "one.tsv").write_text("run\nR1\nR2\n")
    (tmp_path / "two.tsv").write_text("run\nR3\n")
    found = folder.bundles(tmp_path, 4)
    assert [bundle.label for bundle in found] == ["a", "one/00001", "two/00001", "b"]


def test_a_limit_above_what_is_there_takes_everything(tmp_path: Path) -> None:
    fill(tmp_path, "a/one.json")
    assert len(folder.bundles(tmp_path, 10)) == 1


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(folder.NothingFound):
        folder.bundles(tmp_path)
