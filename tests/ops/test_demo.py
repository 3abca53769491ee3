"""The bundles of the demonstration, and its report when a store does not start."""

import json
from pathlib import Path

import click
import pytest

from ops import demo

pytestmark = pytest.mark.spec("OPS-17")


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}" if name.endswith(".json") else "x")


def labels(source: Path) -> list[str]:
    return [label for label, _ in demo.find_bundles(source)]


def test_each_lowest_folder_with_files_is_a_bundle(tmp_path: Path) -> None:
    fill(tmp_path, "a/one.json", "a/two.bin", "b/c/three.json")
    assert labels(tmp_path) == ["a", "b/c"]
    files = dict(demo.find_bundles(tmp_path))["a"]
    assert dict(files) == {name: tmp_path / "a" / name for name in ("one.json", "two.bin")}


def test_folder_with_subfolders_is_no_bundle(tmp_path: Path) -> None:
    fill(tmp_path, "a/one.json", "a/lower/two.json")
    assert labels(tmp_path) == ["a/lower"]


def test_leaves_out_notes_hidden_files_and_tables(tmp_path: Path) -> None:
    fill(tmp_path, "README.md", "a/README", "a/.hidden", "a/one.json")
    assert [list(files) for _, files in demo.find_bundles(tmp_path)] == [["one.json"]]


def test_each_row_of_a_table_is_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "runs.tsv").write_text("run\treads\tage\tnote\nR1\t12\t7\t\nR2\t7\t7 weeks\tx\n")
    demo.write_bundles(tmp_path / "target", tmp_path, None)
    rows = [json.loads(path.read_bytes()) for path in sorted(tmp_path.rglob("run.json"))]
    assert rows == [
        {"run": "R1", "reads": 12, "age": "7", "note": None},
        {"run": "R2", "reads": 7, "age": "7 weeks", "note": "x"},
    ]
    data = list(tmp_path.rglob("reads.fastq.gz"))
    assert [path.stat().st_size for path in data] == [demo.ROW_BYTES] * 2


def test_limit_takes_some_of_every_kind(tmp_path: Path) -> None:
    fill(tmp_path, "a/one.json", "b/two.json")
    (tmp_path / "one.tsv").write_text("run\nR1\nR2\n")
    (tmp_path / "two.tsv").write_text("run\nR3\n")
    assert labels(tmp_path)[:4] == ["a", "one/00001", "two/00001", "b"]
    assert demo.write_bundles(tmp_path / "target", tmp_path, 4) == 4
    names = {path.name for path in (tmp_path / "target").iterdir()}
    assert names == {"a", "one-00001", "two-00001", "b"}


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(click.ClickException, match="neither folders with files nor"):
        demo.write_bundles(tmp_path / "target", tmp_path / "source", None)


def test_samples_are_the_same_at_every_run_and_have_each_special_case() -> None:
    first, again = (dict(demo.sample_bundles()) for _ in range(2))
    assert first == again
    assert len(first) == 20
    assert len(first[demo.MANY_FILES_IN]) == 50
    assert first[demo.EMPTY_FILE_IN]["reads/unassigned.fastq"] == b""
    image = first[demo.LARGE_FILE_IN]["images/stack.tiff"]
    assert isinstance(image, bytes)
    assert len(image) == demo.LARGE_MIB << 20


def test_reports_a_store_that_does_not_start() -> None:
    with pytest.raises(click.ClickException, match=r"(?s)did not become ready.*STORE_REDIS_URL"):
        demo.run(limit=1, settings={"STORE_REDIS_URL": "ftp://nowhere"})
