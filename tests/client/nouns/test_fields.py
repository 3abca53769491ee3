"""`--json FIELDS` of commands that had `--json` before it took fields, and of operations."""

import csv
import io
import re
from pathlib import Path
from uuid import uuid4

import click
import pytest

from store_client.cli import registry
from tests.client.cli.people import Typist
from tests.client.nouns.conftest import READS, Shelf, rows

pytestmark = pytest.mark.spec("CLI-151")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads go to the current directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A directory with a bundle's files, none of which the tests of searches count."""
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "sample.json").write_bytes(b'{"organism": "Mus musculus"}')
    return folder


def test_upload_prints_fields_after_an_equals_sign(
    shelf: Shelf, admin: Typist, sample: Path
) -> None:
    whole = admin.reads("upload", "--json", str(sample), "--dry-run")
    assert list(whole) == ["bundle_uuid", "version", "state", "sent", "bundle", "files"]
    planned = admin.reads("upload", "--json=state,sent", str(sample), "--dry-run")
    assert planned == {"state": "planned", "sent": whole["sent"]}
    assert admin.reads("upload", str(sample), "--dry-run", "--json") == whole
    assert admin.reads("upload", "--json=", str(sample), "--dry-run") == whole
    folders = admin.reads("bundle", "upload", "--json=label,files", "--each-folder", str(sample))
    assert [row["files"] for row in folders] == [1]
    assert list(folders[0]) == ["label", "files"]


def test_download_prints_fields_after_an_equals_sign(shelf: Shelf, admin: Typist) -> None:
    whole = admin.reads("download", "--json", shelf.liver, "--dry-run")
    assert whole["bundle_uuid"] == shelf.liver
    few = admin.reads("download", "--json=files,dry_run", shelf.liver, "--dry-run")
    assert few == {"files": 3, "dry_run": True}
    several = admin.reads("bundle", "download", "--json=bundles", shelf.liver, shelf.heart)
    assert several == {"bundles": 2}
    text = admin.types("download", shelf.liver, "--json=files,version", "--format", "csv").stdout
    assert list(csv.reader(io.StringIO(text))) == [
        ["files", "version"],
        ["3", whole["version"]],
    ]


def test_arguments_that_look_like_the_option_stay_arguments(
    admin: Typist, tmp_path: Path, sample: Path
) -> None:
    sample.rename(tmp_path / "--json")
    done = admin.reads("upload", "--json", "--dry-run", "--", "--json")
    assert done["state"] == "planned"
    assert admin.reads("upload", "--json", "--dry-run", "--src-dir=--json") == done


def test_commands_without_arguments_take_fields_after_a_space(shelf: Shelf, admin: Typist) -> None:
    assert admin.reads("profiles", "--json", "profile") == []
    named = admin.reads("create-version", "--json", "version")
    assert list(named) == ["version"]


def test_operations_print_fields_of_their_answers(shelf: Shelf, admin: Typist) -> None:
    words = ["get-bundle", "--uuid", shelf.liver, "--replica", "aws"]
    files = admin.reads("api", *words, "--json", "name,size")
    assert {"name": "reads.fastq.gz", "size": len(READS)} in files
    assert admin.reads(*words, "--json=name,size") == files
    first = admin.reads(*words, "--no-paginate", "--per-page", "10", "--json", "name,size")
    assert first == files
    lines = admin.types(*words, "--json", "name,size", "--output", "lines")
    assert rows(lines.stdout) == files
    assert set(admin.reads(*words, "--json")) == {"bundle"}
    account = admin.reads("api", "get-v1-account", "--json", "email")
    assert list(account) == ["email"]
    selected = admin.types(*words, "--query", "bundle.uuid", "--json")
    assert selected.stdout == f"{shelf.liver}\n"


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["upload", "--json=bundle_uid", "."], "bundle_uuid"),
        (["upload", "--each-folder", "--json=lable", "."], "label"),
        (["download", "--json=file", "{liver}"], "files"),
        (["download", "--json=bundel", "{liver}", "{heart}"], "bundles"),
        (["collection", "download", "--json=fragment", "{liver}"], "fragments"),
        (["search", "liver", "--download", "got", "--json", "bundel"], "bundles"),
        (["profiles", "--default", "x", "--json", "profil"], "profile"),
        (["area", "select", "--new", "--json=stat"], "state"),
        (["listen", "--json", "bundel"], "bundle"),
        (["get-bundle", "--uuid", "{liver}", "--replica", "aws", "--json", "nam"], "name"),
        (["collection", "create", "--name", "unmade", "--json", "vresion"], "version"),
        (["subscription", "create", "http://x.example", "--match", "a", "--json", "uid"], "uuid"),
    ],
)
def test_wrong_field_names_the_nearest_and_does_nothing(
    shelf: Shelf, admin: Typist, words: list[str], near: str
) -> None:
    before = admin.reads("get-collections"), admin.reads("get-subscriptions", "--replica", "aws")
    done = admin.types(*(word.format(liver=shelf.liver, heart=shelf.heart) for word in words))
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.search(rf"did you mean: .*\b{near}\b", done.stderr), done.stderr
    assert not Path("got").exists()
    after = admin.reads("get-collections"), admin.reads("get-subscriptions", "--replica", "aws")
    assert after == before


def test_operation_that_changes_something_refuses_a_wrong_field_before(
    shelf: Shelf, admin: Typist
) -> None:
    uuid = str(uuid4())
    words = ["--uuid", uuid, "--replica", "aws", "--version", "2026-03-01T000000.000000Z"]
    body = ["--name", "x", "--description", "", "--details", "{}", "--contents", "[]"]
    done = admin.types("put-collection", *words, *body, "--json", "uid")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "did you mean: uuid?" in done.stderr
    assert admin.types("get-collection", "--uuid", uuid, "--replica", "aws").exit_code == 5


def test_bytes_and_raw_answers_have_no_fields(shelf: Shelf, admin: Typist) -> None:
    words = ["get-bundle", "--uuid", shelf.liver, "--replica", "aws"]
    done = admin.types(*words, "--json", "name", "--output", "raw")
    assert done.exit_code == 2
    assert "the raw answer has no fields" in done.stderr
    words[0] = "get-bundle-archive"
    done = admin.types(*words, "--json", "size")
    assert done.exit_code == 2
    assert "the answer is bytes" in done.stderr


@pytest.mark.parametrize("name", ["upload", "download", "whoami", "profiles", "bundle show"])
def test_help_says_how_fields_are_given(name: str) -> None:
    command = registry.load_command(name)
    assert command is not None
    shown = " ".join(command.get_help(click.Context(command)).split())
    if name in ("upload", "download"):
        assert "--json[=FIELDS] One JSON document, of these fields: --json=uuid" in shown
    else:
        assert "--json [FIELDS] One JSON document, of these fields: --json uuid" in shown
