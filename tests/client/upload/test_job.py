"""Whole uploads through an upload area, against an embedded store."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import Misused, NotAllowed, Unreachable
from store_client.http.retries import RetryPolicy
from store_client.http.session import HttpSession
from store_client.transfer.journal import UploadJournal
from store_client.uploads.job import upload
from store_client.uploads.options import UploadOptions
from store_client.uploads.plan import UploadReport
from tests.client.conftest import Served
from tests.client.upload.directories import MB, NAMES, aged, contents, filled, large
from tests.client.upload.recording import Recording, client_of


def sha256s(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in contents(folder).items()}


def as_said(done: UploadReport) -> dict[str, str]:
    return {entry["name"]: entry["sha256"] for entry in done.files}


@pytest.mark.spec("UPL-01")
def test_a_directory_becomes_a_bundle_with_its_names_types_and_metadata(
    client: Client, source: Path
) -> None:
    done = upload(client, UploadOptions(source, "aws"))
    assert (done.state, done.sent_files) == ("uploaded", 4)
    assert as_said(done) == sha256s(source)
    kinds = {entry["name"]: (entry["content-type"], entry["indexed"]) for entry in done.files}
    assert kinds == {
        "empty.txt": ("text/plain", False),
        "reads/lane 1/R1.fastq.gz": ("application/gzip", False),
        "reads/lane 1/R2.fastq.gz": ("application/gzip", False),
        "sample.json": ("application/json", True),
    }
    shown = client.session.request(
        "GET", f"/v1/bundles/{done.bundle_uuid}", params={"replica": "aws"}
    ).json()["bundle"]
    assert (shown["version"], shown["files"]) == (done.version, list(done.files))


@pytest.mark.spec("UPL-02")
def test_the_json_has_uuid_version_and_files(client: Client, source: Path) -> None:
    done = upload(client, UploadOptions(source, "aws", creator_uid=8008)).as_json()
    assert done["bundle"] == {
        "uuid": done["bundle_uuid"],
        "version": done["version"],
        "creator_uid": 8008,
    }
    assert [sorted({"name", "uuid", "version", "sha256"} & set(one)) for one in done["files"]] == [
        ["name", "sha256", "uuid", "version"]
    ] * 4


@pytest.mark.spec("UPL-15")
def test_the_same_content_again_is_nothing_to_do(
    recorded: Client, recording: Recording, source: Path
) -> None:
    first = upload(recorded, UploadOptions(source, "aws"))
    recording.asked.clear()
    second = upload(recorded, UploadOptions(source, "aws"))
    assert (second.state, second.sent_bytes) == ("unchanged", 0)
    assert (second.bundle_uuid, second.version) == (first.bundle_uuid, first.version)
    assert second.files == first.files
    assert not [line for line in recording.asked if not line.startswith("GET ")]


@pytest.mark.spec("UPL-15")
def test_files_that_were_only_touched_are_not_sent_again(
    recorded: Client, recording: Recording, source: Path
) -> None:
    upload(recorded, UploadOptions(source, "aws"))
    aged(source, 60)
    recording.asked.clear()
    assert upload(recorded, UploadOptions(source, "aws")).state == "unchanged"
    assert not recording.puts("")


@pytest.mark.spec("UPL-15")
def test_reads_just_written_files_again(client: Client, source: Path) -> None:
    file = source / "sample.json"
    file.write_text('{"a": 1}')
    told = file.stat()
    first = upload(client, UploadOptions(source, "aws"))
    # The same size, and by the file system's clock the same moment.
    file.write_text('{"a": 2}')
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
    second = upload(client, UploadOptions(source, "aws"))
    assert second.state == "uploaded"
    assert as_said(second) == sha256s(source) != as_said(first)


@pytest.mark.spec("UPL-16")
def test_changed_content_is_another_bundle_of_which_only_the_change_is_sent(
    recorded: Client, recording: Recording, source: Path
) -> None:
    first = upload(recorded, UploadOptions(source, "aws"))
    (source / "sample.json").write_text('{"organism": "Mus musculus"}')
    recording.asked.clear()
    second = upload(recorded, UploadOptions(source, "aws"))
    assert second.bundle_uuid != first.bundle_uuid
    assert as_said(second) == sha256s(source)
    assert len(recording.puts("area")) == len(recording.puts("files")) == 1
    assert second.sent_files == 1


@pytest.mark.spec("UPL-16")
def test_a_bundle_that_is_named_gets_a_new_version(client: Client, source: Path) -> None:
    uuid = str(uuid4())
    first = upload(client, UploadOptions(source, "aws", bundle_uuid=uuid.upper()))
    assert first.bundle_uuid == uuid
    (source / "more.txt").write_text("more")
    second = upload(client, UploadOptions(source, "aws", bundle_uuid=uuid))
    assert second.bundle_uuid == uuid
    assert str(second.version) > str(first.version)
    (source / "more.txt").unlink()
    third = upload(client, UploadOptions(source, "aws", bundle_uuid=uuid))
    assert as_said(third) == as_said(first)
    assert str(third.version) > str(second.version)


@pytest.mark.spec("UPL-15")
def test_other_machine_compares_with_named_bundle(
    client: Client, config: Configuration, source: Path, tmp_path: Path
) -> None:
    first = upload(client, UploadOptions(source, "aws", bundle_uuid=str(uuid4())))
    there = shutil.copytree(source, tmp_path / "elsewhere")
    recording = Recording()
    other = Configuration(tmp_path / "other", tmp_path / "other", config.url)
    with client_of(other, recording) as second:
        options = UploadOptions(there, "aws", bundle_uuid=first.bundle_uuid)
        assert upload(second, options).version == first.version
        assert not recording.puts("")
        (there / "sample.json").write_text("{}")
        changed = upload(second, options)
    assert as_said(changed) == sha256s(there)
    assert len(recording.puts("area")) == len(recording.puts("files")) == 1


@pytest.mark.spec("UPL-16")
def test_deleted_bundle_is_created_anew(client: Client, source: Path) -> None:
    first = upload(client, UploadOptions(source, "aws"))
    client.call(
        "delete_bundle",
        uuid=first.bundle_uuid,
        version=first.version,
        replica="aws",
        reason="a test",
    )
    second = upload(client, UploadOptions(source, "aws"))
    assert (second.state, second.bundle_uuid != first.bundle_uuid) == ("uploaded", True)


@pytest.mark.spec("UPL-16")
def test_other_creator_or_metadata_is_a_change(client: Client, source: Path) -> None:
    first = upload(client, UploadOptions(source, "aws"))
    other = upload(client, UploadOptions(source, "aws", creator_uid=7))
    odd = UploadOptions(source, "aws", indexed=("*.txt",), allow_invalid_json=True)
    data = upload(client, odd)
    assert len({first.bundle_uuid, other.bundle_uuid, data.bundle_uuid}) == 3
    kinds = {entry["name"]: (entry["content-type"], entry["indexed"]) for entry in data.files}
    assert kinds["empty.txt"] == ("application/json", True)
    assert kinds["sample.json"] == ("application/json", False)


@pytest.mark.spec("UPL-21")
def test_dry_run_lists_and_sends_nothing(
    recorded: Client, recording: Recording, source: Path, config: Configuration
) -> None:
    done = upload(recorded, UploadOptions(source, "aws", dry_run=True))
    assert done.state == "planned"
    assert [entry["name"] for entry in done.files if entry["send"]] == NAMES
    assert done.sent_bytes == sum(map(len, contents(source).values()))
    assert not recording.asked
    assert not list(config.uploads.glob("*.jsonl"))
    upload(recorded, UploadOptions(source, "aws"))
    (source / "empty.txt").write_text("not any more")
    again = upload(recorded, UploadOptions(source, "aws", dry_run=True))
    assert [entry["name"] for entry in again.files if entry["send"]] == ["empty.txt"]


@pytest.mark.spec("UPL-13")
def test_the_area_of_an_upload_goes_when_its_bundle_is_there(
    recorded: Client, recording: Recording, source: Path
) -> None:
    upload(recorded, UploadOptions(source, "aws"))
    assert recording.asked[-1].startswith("DELETE /v1/area/")


@pytest.mark.spec("UPL-13")
def test_a_large_file_goes_through_an_area(client: Client, tmp_path: Path) -> None:
    large(tmp_path / "s" / "big.bam", 64 * MB + 1)
    done = upload(client, UploadOptions(tmp_path / "s", "gcp"))
    assert as_said(done) == sha256s(tmp_path / "s")
    assert done.files[0]["s3_etag"].endswith("-2")


def signalled(
    config: Configuration, source: Path, when: tuple[signal.Signals, str, int]
) -> "subprocess.CompletedProcess[str]":
    """`store upload` in a process that gets a signal when it asks something for that time."""
    number, what, which = when
    program = [sys.executable, "-m", "tests.client.upload.recording", str(config.home), config.url]
    words = ["upload", "--src-dir", str(source), "--replica", "aws", "--jobs", "2"]
    return subprocess.run(
        [*program, str(int(number)), what, str(which), *words],
        capture_output=True,
        text=True,
        timeout=120,
    )


DEATHS = [
    ("POST /v1/area", 1),
    ("PUT /v1/area", 1),
    ("PUT /v1/area", 3),
    ("PUT /v1/files", 1),
    ("PUT /v1/bundles", 1),
    ("DELETE /v1/area", 1),
]


@pytest.mark.spec("UPL-14")
@pytest.mark.parametrize(("what", "number"), DEATHS)
def test_killed_upload_resumes_without_repeating(
    store: Served, config: Configuration, source: Path, what: str, number: int
) -> None:
    died = signalled(config, source, (signal.SIGKILL, what, number))
    assert died.returncode == -9, died.stderr
    lines = next(config.uploads.glob("*.jsonl")).read_text().splitlines()
    staged = sum('"url"' in line and '"stored"' not in line for line in lines)
    stored = sum('"stored"' in line for line in lines)
    recording = Recording()
    with client_of(config, recording) as client:
        done = upload(client, UploadOptions(source, "aws"))
        assert as_said(done) == sha256s(source)
        assert len(recording.puts("area")) == 4 - staged
        assert len(recording.puts("files")) == 4 - stored
        assert done.state == ("unchanged" if what == "DELETE /v1/area" else "uploaded")
        assert upload(client, UploadOptions(source, "aws")).version == done.version
        shown = client.call("get_bundles_all", replica="aws")["bundles"]
    assert len(shown) == 1


@pytest.mark.spec("UPL-14")
@pytest.mark.parametrize(("what", "number"), [("PUT /v1/area", 2), ("PUT /v1/bundles", 1)])
def test_interrupted_upload_says_how_to_resume(
    store: Served, config: Configuration, source: Path, what: str, number: int
) -> None:
    done = signalled(config, source, (signal.SIGINT, what, number))
    assert done.returncode == 130, done.stderr
    assert "run the same command again" in done.stderr
    assert "Traceback" not in done.stderr
    recording = Recording()
    with client_of(config, recording) as client:
        assert as_said(upload(client, UploadOptions(source, "aws"))) == sha256s(source)
    # Of two requests that were on their way one arrived; the large file may have stopped halfway.
    assert len(recording.puts("area")) <= 3


@pytest.mark.spec("UPL-62")
def test_resumes_after_area_was_deleted(
    client: Client, store: Served, config: Configuration, source: Path
) -> None:
    died = signalled(config, source, (signal.SIGKILL, "PUT /v1/area", 3))
    assert died.returncode == -9, died.stderr
    (path,) = config.uploads.glob("*.jsonl")
    before = UploadJournal(path, writing=False).attempt
    assert before is not None
    client.call("delete_area", uuid=before.area)
    done = upload(client, UploadOptions(source, "aws"))
    assert (done.bundle_uuid, done.version) == (before.uuid, before.version)
    assert as_said(done) == sha256s(source)


@pytest.mark.spec("UPL-14")
def test_finds_bundle_that_crashed_run_had_put(
    client: Client, store: Served, config: Configuration, source: Path
) -> None:
    """It died between the bundle and the note of it, and a file changed since."""
    uuid = str(uuid4())
    options = UploadOptions(source, "aws", bundle_uuid=uuid)
    first = upload(client, options)
    path = next(config.uploads.glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"finished":true' not in line))
    (source / "sample.json").write_text("{}")
    second = upload(client, options)
    assert (second.bundle_uuid, as_said(second)) == (uuid, sha256s(source))
    assert str(second.version) > str(first.version)


@pytest.mark.spec("UPL-17")
def test_lost_journal_costs_only_work(client: Client, config: Configuration, source: Path) -> None:
    uuid = str(uuid4())
    first = upload(client, UploadOptions(source, "aws", bundle_uuid=uuid))
    path = next(config.uploads.glob("*.jsonl"))
    path.write_bytes(b"\xff\x00" + path.read_bytes()[:-40].replace(b'"sha256"', b'"sha255"'))
    again = upload(client, UploadOptions(source, "aws", bundle_uuid=uuid))
    assert (again.state, again.version) == ("unchanged", first.version)


@pytest.mark.spec("UPL-03")
def test_reports_missing_permission(config: Configuration, source: Path) -> None:
    with (
        client_of(config, httpx.HTTPTransport(), "reader") as reader,
        pytest.raises(NotAllowed),
    ):
        upload(reader, UploadOptions(source, "aws"))


@pytest.mark.spec("UPL-14")
def test_upload_resumes_after_outage(config: Configuration, source: Path) -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody is there")

    session = HttpSession(
        config.url, policy=RetryPolicy(), sleep=lambda _: None, transport=httpx.MockTransport(away)
    )
    with (
        Client(config=config, session=session) as client,
        pytest.raises(Unreachable) as told,
    ):
        upload(client, UploadOptions(source, "aws"))
    assert told.value.hint


@pytest.mark.spec("UPL-03")
@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": "azure"},
        {"staging_bucket": "ftp://x"},
        {"staging_bucket": "s3://"},
        {"jobs": 0},
        {"timeout_seconds": -1},
        {"timeout_seconds": float("nan")},
        {"bundle_uuid": "not a uuid"},
        {"creator_uid": 2**63},
        {"src_dir": Path("/nowhere at all")},
    ],
)
def test_rejects_invalid_options_at_once(tmp_path: Path, wrong: dict[str, object]) -> None:
    usual: dict[str, object] = {"src_dir": tmp_path, "replica": "aws"}
    with pytest.raises(Misused):
        UploadOptions(**{**usual, **wrong})  # type: ignore[arg-type]


@pytest.mark.spec("UPL-02")
def test_buckets_are_named_with_or_without_their_cloud(tmp_path: Path) -> None:
    def url(text: str, replica: str) -> str:
        bucket = UploadOptions(tmp_path, replica, staging_bucket=text).bucket
        return bucket.url if bucket else ""

    assert url("mine", "aws") == "s3://mine/"
    assert url("mine/a/b/", "gcp") == "gs://mine/a/b/"
    assert url("S3://mine/a", "gcp") == "s3://mine/a/"
    assert url("", "aws") == ""


@pytest.mark.spec("UPL-01")
def test_twenty_files_of_the_same_content_are_twenty_files(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "twins"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.txt").write_text("the same")
    done = upload(client, UploadOptions(folder, "aws"))
    assert len({entry["uuid"] for entry in done.files}) == 20
    assert len({entry["sha256"] for entry in done.files}) == 1


@pytest.mark.spec("UPL-17")
def test_directories_have_separate_journals(client: Client, tmp_path: Path) -> None:
    one, two = filled(tmp_path / "one"), filled(tmp_path / "two")
    made = {upload(client, UploadOptions(each, "aws")).bundle_uuid for each in (one, two)}
    assert len(made) == 2
