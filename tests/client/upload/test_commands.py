"""The command `store upload`, as it is typed."""

import json
from pathlib import Path

import pytest

from store_client.uploads import UploadOptions, UploadReport, upload
from tests.client.cli.people import Typist, showing
from tests.client.conftest import Served


@pytest.fixture
def typist(store: Served, tmp_path: Path) -> Typist:
    return Typist(tmp_path / "user", showing("admin"), {"STORE_CLIENT_URL": store.url})


@pytest.mark.spec("UPL-02")
def test_prints_uuid_version_and_files(typist: Typist, source: Path) -> None:
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
    done = typist.types(*words)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["state"] == "uploaded"
    assert shown["bundle"] == {
        "uuid": shown["bundle_uuid"],
        "version": shown["version"],
        "creator_uid": 0,
    }
    assert len(shown["files"]) == 4
    again = typist.reads(*words)
    assert again == {**shown, "state": "unchanged", "sent": {"files": 0, "bytes": 0}}


@pytest.mark.spec("UPL-02")
def test_accepts_every_option(typist: Typist, source: Path) -> None:
    shown = typist.reads(
        *("upload", "--src-dir", str(source), "--replica", "gcp", "--timeout-seconds", "60"),
        *("--bundle-uuid", "0B0B0B0B-0000-4000-8000-00000000000B", "--creator-uid", "8008"),
        *("--indexed", "*.txt", "--jobs", "3", "--allow-invalid-json"),
    )
    assert shown["bundle_uuid"] == "0b0b0b0b-0000-4000-8000-00000000000b"
    assert shown["bundle"]["creator_uid"] == 8008
    assert [one["name"] for one in shown["files"] if one["indexed"]] == ["empty.txt"]


@pytest.mark.spec("CLI-143")
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_broken_metadata_is_refused_with_its_position_unless_it_is_allowed(
    typist: Typist, source: Path, more: tuple[str, ...]
) -> None:
    (source / "sample.json").write_text('{"a": 1,\n "b": }')
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress", *more)
    done = typist.types(*words)
    assert done.exit_code == 2
    assert "sample.json, line 2, column 7: Expecting value" in done.stderr
    assert "--allow-invalid-json" in done.stderr
    shown = typist.reads(*words, "--allow-invalid-json")
    assert shown["state"] == ("planned" if more else "uploaded")


@pytest.mark.spec("UPL-21")
def test_a_dry_run_lists_what_would_be_sent(typist: Typist, source: Path) -> None:
    shown = typist.reads("upload", "--src-dir", str(source), "--replica", "aws", "--dry-run")
    assert (shown["state"], shown["version"], shown["sent"]["files"]) == ("planned", None, 4)
    assert all(one["send"] for one in shown["files"])


@pytest.mark.spec("CLI-135")
def test_changed_directory_is_new_bundle_with_hint(typist: Typist, source: Path) -> None:
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
    first = typist.reads(*words)["bundle_uuid"]
    assert "uploaded before" not in typist.types(*words).stderr
    (source / "empty.txt").write_text("not any more")
    for more in (["--dry-run"], []):
        done = typist.types(*words, *more)
        assert f"For a new version of that one: --bundle-uuid {first}\n" in done.stderr
    assert json.loads(done.stdout)["bundle_uuid"] != first
    (source / "empty.txt").write_text("nor now")
    named = typist.types(*words, "--bundle-uuid", first)
    assert "uploaded before" not in named.stderr
    assert json.loads(named.stdout)["bundle_uuid"] == first


@pytest.mark.spec("CLI-136")
def test_a_table_of_files_is_headed_by_the_bundle(typist: Typist, source: Path) -> None:
    words = ("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
    made = typist.reads(*words)
    head, names, *rows = typist.types(*words, "--output", "table").stdout.splitlines()
    assert head.strip() == f"bundle {made['bundle_uuid']} {made['version']}: unchanged"
    assert names.split()[0] == "name"
    assert len(rows) == 4


@pytest.mark.spec("UPL-03")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--src-dir", "/nowhere", "--replica", "aws"), "/nowhere"),
        (("--replica", "aws"), "name one directory"),
        (("{source}", "--src-dir", "{source}"), "name one directory"),
        (("--src-dir", "{source}", "--replica", "azure"), "azure"),
        (("--src-dir", "{source}", "--replica", "aws", "--bundle-uuid", "x"), "not a uuid"),
        (("--src-dir", "{source}", "--replica", "aws", "--staging-bucket", "x:/"), "not a bucket"),
        (("--src-dir", "{source}", "--replica", "aws", "--jobs", "0"), "jobs"),
    ],
)
def test_invalid_options_exit_2_with_one_line(
    typist: Typist, source: Path, words: tuple[str, ...], said: str
) -> None:
    done = typist.types("upload", *(word.format(source=source) for word in words))
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spec("UPL-02")
def test_the_library_has_it_too() -> None:
    assert callable(upload)
    assert {UploadOptions.__name__, UploadReport.__name__} == {"UploadOptions", "UploadReport"}


@pytest.mark.spec("UPL-02")
def test_a_script_takes_one_value_out_of_the_answer(
    typist: Typist, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)  # where the cache of downloads is
    done = typist.types("upload", str(source), "--no-progress", "--query", "bundle_uuid")
    (uuid,) = done.stdout.splitlines()
    assert typist.reads("upload", str(source))["bundle_uuid"] == uuid
    words = ("download", uuid, "--download-dir", str(source.parent / "to"), "--no-progress")
    head, row = typist.types(*words, "--format", "csv").stdout.splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["bundle_uuid"] == uuid
