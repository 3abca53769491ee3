"""A folder: all findings at once, each with its path."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from store_client.validation.folders import validate_each_folder, validate_folder
from store_client.validation.schemas import SchemaSet, parse_rules

pytestmark = pytest.mark.spec("CLI-160")


def found(folder: Path, **more: Any) -> list[tuple[str, str, str]]:
    report = validate_folder(folder, **more)
    return [(one.severity, one.path, one.message) for one in report.findings]


def test_a_good_folder_has_no_findings(tmp_path: Path) -> None:
    (tmp_path / "reads").mkdir()
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "reads" / "a.txt").write_text("data")
    report = validate_folder(tmp_path)
    assert (report.findings, report.files, report.size) == ([], 2, 6)


def test_finds_everything_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1,\n "b": }')
    (tmp_path / "b.json").write_text("")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "new\nline").write_text("1")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to(".")
    (tmp_path / "Käfer.txt").write_text("2")
    (tmp_path / "Ka\u0308fer.txt").write_text("3")
    (tmp_path / "x.TXT").write_text("same")
    (tmp_path / "x.txt").write_text("same")
    assert found(tmp_path) == [
        ("error", "Käfer.txt", "differs from 'Ka\u0308fer.txt' only in its Unicode normalization"),
        ("error", "a.json", "Expecting value"),
        ("error", "b.json", "Expecting value"),
        ("error", "broken", "is a broken link"),
        ("warning", "circle", "is a link to a directory, and left out"),
        ("warning", "empty.txt", "is empty"),
        ("error", "new\nline", "a name must not contain control characters"),
        (
            "warning",
            "x.txt",
            "differs from 'x.TXT' only in case: some file systems cannot have both",
        ),
        ("warning", "x.txt", "has the same content as x.TXT"),
    ]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of the superuser, who may read everything."""
    before = os.getresuid()
    if before[0] == 0:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(*before)


def test_finds_what_cannot_be_read() -> None:
    # Folders of pytest are private.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "a.txt").write_text("1")
        (folder / "a.txt").chmod(0)
        (folder / "deep").mkdir(mode=0)
        with as_nobody():
            findings = found(folder)
    assert findings == [
        ("error", "a.txt", "is not readable"),
        ("error", "deep", f"cannot read the directory {folder / 'deep'}: Permission denied"),
    ]


def test_finds_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert found(tmp_path) == [("error", "pipe", "is not a file")]


def test_finds_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    assert found(tmp_path) == [("error", str(tmp_path), "has no files")]


def test_finds_files_that_the_store_does_not_take(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("12345")
    assert found(tmp_path, max_file=4) == [
        ("error", "a.txt", "is larger than the store takes (4 bytes)")
    ]


def test_metadata_are_the_names_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "a.meta").write_text("{")
    report = validate_folder(tmp_path, indexed=("*.meta",))
    assert [one.path for one in report.errors] == ["a.meta"]


def test_counts_what_schemas_validated(tmp_path: Path) -> None:
    (tmp_path / "s.schema").write_text('{"required": ["a"]}')
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"describedBy": "s.schema"}')
    (tmp_path / "c.json").write_text("{}")
    schemas = SchemaSet()
    for _ in range(2):
        report = validate_folder(tmp_path, schemas)
        assert (report.validated, report.count("error")) == (2, 2)


def test_each_folder_is_validated_as_a_bundle(tmp_path: Path) -> None:
    for name in ("m1", "m2/a", "m2/b"):
        folder = tmp_path / name
        (folder / "reads").mkdir(parents=True)
        (folder / "sample.json").write_text('{"age": 3}')
        (folder / "reads" / "1.txt").write_text("ACGT")
    assert validate_each_folder(tmp_path).findings == []
    (tmp_path / "m1" / "reads" / "2.txt").write_text("ACGT")
    (tmp_path / "m2" / "b" / "sample.json").write_text("{")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "schema.json").write_text('{"required": ["sex"]}')
    rules = parse_rules((f"sample.json={tmp_path / 'schema.json'}",), None)
    (tmp_path / "schema.json").unlink()
    report = validate_each_folder(tmp_path, SchemaSet(rules))
    assert [(one.severity, one.path, one.message) for one in report.findings] == [
        ("warning", "m1/reads/2.txt", "has the same content as reads/1.txt"),
        ("error", "m1/sample.json", '"sex" is a required property'),
        ("error", "m2/a/sample.json", '"sex" is a required property'),
        ("error", "m2/b/sample.json", "Expecting property name enclosed in double quotes"),
        ("error", "notes.txt", "lies beside the folders that become bundles"),
    ]
    assert (report.files, report.validated) == (8, 2)
