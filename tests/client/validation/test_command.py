"""`store validate`, and `store upload` at a store with schemas, as they are typed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.cli.people import Typist, showing
from tests.client.conftest import Served

pytestmark = pytest.mark.spec("CLI-161")


@pytest.fixture
def typist(strict: Served, tmp_path: Path) -> Typist:
    return Typist(tmp_path / "user", showing("admin"), {"STORE_CLIENT_URL": strict.url})


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "a.json").write_text('{"organism": 7}')
    (folder / "b.json").write_text('{"organism": }')
    (folder / "c.txt").touch()
    return folder


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_findings_are_json_lines_in_a_pipe_and_errors_exit_2(typist: Typist, sample: Path) -> None:
    done = typist.types("validate", str(sample))
    assert done.exit_code == 2
    assert [
        (one["path"], one["line"], one["column"], one["pointer"], one["severity"])
        for one in lines(done.stdout)
    ] == [
        ("a.json", None, None, "/organism", "error"),
        ("b.json", 1, 14, None, "error"),
        ("c.txt", None, None, None, "warning"),
    ]
    assert "3 files" in done.stderr
    assert "2 errors, 1 warning" in done.stderr
    assert "store: 2 errors in 2 files" in done.stderr


def test_warnings_alone_exit_0(typist: Typist, sample: Path) -> None:
    for name in ("a.json", "b.json"):
        (sample / name).write_text(f'{{"organism": "{name}"}}')
    done = typist.types("validate", str(sample))
    assert done.exit_code == 0
    assert [one["severity"] for one in lines(done.stdout)] == ["warning"]
    assert "2 documents validated by schemas" in done.stderr


def test_the_store_is_not_asked_with_no_store(typist: Typist, sample: Path) -> None:
    done = typist.types("validate", str(sample), "--no-store")
    assert [one["path"] for one in lines(done.stdout)] == ["b.json", "c.txt"]


def test_without_a_store_validation_goes_on(tmp_path: Path, sample: Path) -> None:
    alone = Typist(tmp_path / "other", showing("admin"), {"STORE_CLIENT_URL": "http://127.0.0.1:1"})
    done = alone.types("validate", str(sample))
    assert [one["path"] for one in lines(done.stdout)] == ["b.json", "c.txt"]
    assert "Validated without the schemas of the store: " in done.stderr


def test_schemas_of_options_and_a_table(typist: Typist, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"properties": {"id": {"maxLength": 2}}}))
    table = tmp_path / "runs.tsv"
    table.write_text("id\torganism\nr1\tDanio\nr22\tMus\n")
    done = typist.types("validate", "--table", str(table), "--schema", str(tmp_path / "s.json"))
    assert done.exit_code == 2
    (found,) = lines(done.stdout)
    assert (found["path"], found["line"], found["pointer"]) == (str(table), 3, "/id")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("{sample}", "--table", "{table}"),
        ("{sample}", "--template", "{table}"),
        ("--table", "{table}", "--each-folder"),
    ],
)
def test_rejects_wrong_options(
    typist: Typist, sample: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    table = tmp_path / "runs.tsv"
    table.write_text("a\n1\n")
    done = typist.types("validate", *(word.format(sample=sample, table=table) for word in words))
    assert done.exit_code == 2
    assert done.stdout == ""


def test_each_folder_agrees_with_the_upload(typist: Typist, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "study" / name / "reads").mkdir(parents=True)
        (tmp_path / "study" / name / "reads" / "1.txt").write_text(name)
        (tmp_path / "study" / name / "sample.json").write_text('{"organism": "Danio"}')
    words = (str(tmp_path / "study"), "--each-folder")
    done = typist.types("validate", *words)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "4 files" in done.stderr
    assert "2 documents validated by schemas" in done.stderr
    assert {one["state"] for one in typist.reads("upload", *words)} == {"uploaded"}
    (tmp_path / "study" / "readme.txt").write_text("x")
    for command in ("validate", "upload"):
        done = typist.types(command, *words)
        assert done.exit_code == 2
        assert "readme.txt" in done.output
        assert "beside the folders that become bundles" in done.output


@pytest.mark.spec("CLI-143")
def test_an_upload_is_refused_with_all_findings_before_anything_is_sent(
    typist: Typist, sample: Path, strict: Served
) -> None:
    done = typist.types("upload", str(sample))
    assert done.exit_code == 2
    assert 'store: a.json#/organism: 7 is not of type "string" (and 1 more files)' in done.stderr
    assert '  a.json: /organism: 7 is not of type "string"\n' in done.stderr
    assert "  b.json:1:14: Expecting value\n" in done.stderr
    assert "--no-validate leaves it to the store" in done.stderr
    assert not any(strict.stores.areas.list(""))


@pytest.mark.spec("BUN-71")
@pytest.mark.parametrize("option", ["--no-validate", "--allow-invalid-json"])
def test_the_store_refuses_what_was_not_validated_and_names_the_places(
    typist: Typist, sample: Path, option: str
) -> None:
    done = typist.types("upload", str(sample), option)
    assert done.exit_code == 3
    assert 'a.json#/organism: 7 is not of type "string"' in done.stderr
    assert "b.json#: not JSON: Expecting value at line 1, column 14" in done.stderr
    assert "store validate" in done.stderr


@pytest.mark.spec("BUN-71")
def test_many_faults_that_the_store_names_are_lines(typist: Typist, sample: Path) -> None:
    for number in range(5):
        (sample / f"x{number}.json").write_text("{}")
    done = typist.types("upload", str(sample), "--no-validate")
    assert '  x4.json#: "organism" is a required property\n' in done.stderr


def test_corrected_metadata_is_uploaded(typist: Typist, sample: Path) -> None:
    assert typist.types("upload", str(sample)).exit_code == 2
    for name in ("a.json", "b.json"):
        (sample / name).write_text(f'{{"organism": "{name}"}}')
    assert typist.reads("upload", str(sample))["state"] == "uploaded"


def test_rows_of_a_table_are_validated_before_they_are_sent(
    typist: Typist, tmp_path: Path, strict: Served
) -> None:
    table = tmp_path / "runs.tsv"
    table.write_text("id\torganism\nr1\tDanio\nr2\t\n")
    done = typist.types("upload", "--table", str(table))
    assert done.exit_code == 2
    assert 'r2/metadata.json: "organism" is a required property' in done.stderr
    assert not any(strict.stores.areas.list(""))


def test_the_library_of_schemas_is_loaded_only_to_validate() -> None:
    program = (
        "import sys, store_client.uploads.job, store_client.uploads.bulk, store_client.cli.validate,"
        " store_client.validation.folders; print('jsonschema_rs' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
