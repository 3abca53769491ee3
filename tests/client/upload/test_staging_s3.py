"""Waiting in a bucket of S3: the simulated server, and whole uploads by way of it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from store_client.checksums import ETAG_CHUNK, FileChecksums, hash_bytes
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.content_types import guess_content_type
from store_client.errors import Damaged, Misused, NotAllowed, NotFound, Refused, Unreachable
from store_client.local_files import LocalFile, list_files
from store_client.progress import TransferProgress
from store_client.transfer import s3 as s3_transfer
from store_client.transfer.engine import TransferContext, open_transfer
from store_client.transfer.journal import UploadJournal
from store_client.uploads.job import upload
from store_client.uploads.options import StagingBucket, UploadOptions
from store_client.uploads.staging import S3Staging, StagedFile, StagingItem
from tests.client.upload.directories import MB, large
from tests.client.upload.recording import Recording, client_of
from tests.client.upload.test_job import as_said, sha256s
from tests.storage.blobs.s3_server import ASKED

VERSION = "2026-01-31T235959.000000Z"
REFUSAL = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


@pytest.fixture
def shared() -> Iterator[TransferContext]:
    with open_transfer(4) as made:
        yield made


@pytest.fixture
def staging(s3: Any, bucket: str, shared: TransferContext, journal: UploadJournal) -> S3Staging:
    return S3Staging(StagingBucket("s3", bucket, "some/where/"), s3, shared, journal)


def item(folder: Path, name: str = "") -> StagingItem:
    (file,) = (one for one in list_files(folder) if name in ("", one.name))
    return StagingItem(file, guess_content_type(file.name), "0000-uuid", VERSION)


def sums_of(path: Path) -> FileChecksums:
    return hash_bytes(path.read_bytes())


def tags(s3: Any, bucket: str, staged: StagedFile) -> dict[str, str]:
    key = staged.url.removeprefix(f"s3://{bucket}/")
    found = s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    return {tag["Key"]: tag["Value"] for tag in found}


def head(s3: Any, bucket: str, staged: StagedFile) -> Any:
    return s3.head_object(Bucket=bucket, Key=staged.url.removeprefix(f"s3://{bucket}/"))


def refuse(client: Any, operation: str, *, when: Callable[[Any], bool] = lambda _: True) -> None:
    """S3 says no to this operation from now on."""

    def answer(request: Any, **_: Any) -> AWSResponse | None:
        if not when(request):
            return None
        response = AWSResponse(request.url, 403, {"Content-Type": "application/xml"}, None)
        response._content = REFUSAL
        return response

    client.meta.events.register(f"before-send.s3.{operation}", answer, unique_id=operation)


def allow(client: Any, operation: str) -> None:
    """It does again."""
    client.meta.events.unregister(f"before-send.s3.{operation}", unique_id=operation)


def sent(*words: str) -> int:
    return ASKED.count(" ".join(words))


PART = ("PUT", "partNumber", "uploadId")


@pytest.mark.spec("UPL-09")
def test_a_small_file_is_one_object_with_its_checksums(
    s3: Any, bucket: str, staging: S3Staging, source: Path
) -> None:
    one = item(source, "reads/lane 1/R1.fastq.gz")
    ASKED.clear()
    staged = staging.stage(one)
    assert staged.url == f"s3://{bucket}/some/where/0000-uuid.{VERSION}/{one.file.name}"
    assert staged.checksums == sums_of(Path(one.file.path))
    there = head(s3, bucket, staged)
    assert there["Metadata"] == staged.checksums.metadata()
    assert there["ContentType"] == "application/gzip"
    assert there["ETag"] == f'"{staged.checksums.s3_etag}"'
    assert ASKED[0] == "PUT"
    assert not staging.rewrite_checksums(one, staged)


@pytest.mark.spec("UPL-09")
def test_an_empty_file_is_one_object(
    s3: Any, bucket: str, staging: S3Staging, source: Path
) -> None:
    staged = staging.stage(item(source, "empty.txt"))
    assert head(s3, bucket, staged)["ContentLength"] == 0


@pytest.mark.spec("UPL-09")
@pytest.mark.parametrize("size", [ETAG_CHUNK, ETAG_CHUNK + 1])
def test_a_large_file_has_the_parts_of_its_entity_tag_and_tags(
    s3: Any, bucket: str, staging: S3Staging, tmp_path: Path, size: int
) -> None:
    path = large(tmp_path / "s" / "big.bam", size)
    ASKED.clear()
    staged = staging.stage(item(tmp_path / "s"))
    assert staged.checksums == sums_of(path)
    assert sent(*PART) == -(-size // ETAG_CHUNK)
    there = head(s3, bucket, staged)
    assert there["ETag"] == f'"{staged.checksums.s3_etag}"'
    assert there["ContentType"] == "application/octet-stream"
    assert tags(s3, bucket, staged) == staged.checksums.metadata()


@pytest.mark.spec("UPL-09")
def test_copies_object_onto_itself_if_tags_are_forbidden(
    s3: Any, bucket: str, staging: S3Staging, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", ETAG_CHUNK + MB)
    refuse(s3, "PutObjectTagging")
    staged = staging.stage(item(tmp_path / "s"))
    there = head(s3, bucket, staged)
    assert there["Metadata"] == sums_of(path).metadata()
    assert there["ETag"] == f'"{staged.checksums.s3_etag}"'
    assert there["ContentType"] == "application/octet-stream"


@pytest.mark.spec("UPL-09")
def test_repeats_tags_as_metadata_if_store_cannot_read_them(
    s3: Any, bucket: str, staging: S3Staging, tmp_path: Path
) -> None:
    large(tmp_path / "s" / "big.bam", ETAG_CHUNK)
    staged = staging.stage(item(tmp_path / "s"))
    assert head(s3, bucket, staged)["Metadata"] == {}
    assert staging.rewrite_checksums(item(tmp_path / "s"), staged)
    assert head(s3, bucket, staged)["Metadata"] == staged.checksums.metadata()


@pytest.mark.spec("UPL-10")
def test_next_run_sends_missing_parts_only(
    s3: Any, bucket: str, staging: S3Staging, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", ETAG_CHUNK + MB)
    refuse(s3, "UploadPart", when=lambda request: "partNumber=1" in request.url)
    with pytest.raises(NotAllowed):
        staging.stage(item(tmp_path / "s"))
    allow(s3, "UploadPart")
    ASKED.clear()
    staged = staging.stage(item(tmp_path / "s"))
    assert sent(*PART) == 1
    assert staged.checksums == sums_of(path)
    assert head(s3, bucket, staged)["ETag"] == f'"{staged.checksums.s3_etag}"'


@pytest.mark.spec("UPL-10")
def test_a_part_that_arrived_with_other_bytes_is_sent_again(
    s3: Any, bucket: str, staging: S3Staging, journal: UploadJournal, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", ETAG_CHUNK + MB)
    refuse(s3, "CompleteMultipartUpload")
    with pytest.raises(NotAllowed):
        staging.stage(item(tmp_path / "s"))
    allow(s3, "CompleteMultipartUpload")
    before = journal.unfinished["big.bam"]
    key = before.url.removeprefix(f"s3://{bucket}/")
    s3.upload_part(Bucket=bucket, Key=key, UploadId=before.token, PartNumber=2, Body=b"harm" * 9)
    ASKED.clear()
    staged = staging.stage(item(tmp_path / "s"))
    assert sent(*PART) == 1
    assert staged.checksums == sums_of(path)
    assert head(s3, bucket, staged)["ContentLength"] == path.stat().st_size


@pytest.mark.spec("UPL-10")
def test_a_run_that_died_before_the_tags_left_the_object_whole(
    s3: Any, bucket: str, staging: S3Staging, tmp_path: Path
) -> None:
    large(tmp_path / "s" / "big.bam", ETAG_CHUNK + MB)
    refuse(s3, "PutObjectTagging")
    refuse(s3, "UploadPartCopy")
    with pytest.raises(Refused):
        staging.stage(item(tmp_path / "s"))
    allow(s3, "PutObjectTagging")
    allow(s3, "UploadPartCopy")
    ASKED.clear()
    staged = staging.stage(item(tmp_path / "s"))
    assert sent(*PART) == 0
    assert tags(s3, bucket, staged) == staged.checksums.metadata()


@pytest.mark.spec("UPL-10")
def test_forgotten_upload_starts_again(
    s3: Any, bucket: str, staging: S3Staging, journal: UploadJournal, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", ETAG_CHUNK)
    refuse(s3, "CompleteMultipartUpload")
    with pytest.raises(NotAllowed):
        staging.stage(item(tmp_path / "s"))
    allow(s3, "CompleteMultipartUpload")
    staging.abandon(journal.unfinished["big.bam"])
    assert staging.stage(item(tmp_path / "s")).checksums == sums_of(path)


class Meddling:
    """Writes to a file when the first of its bytes were sent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Nothing."""

    def bytes(self, n: int) -> None:
        with self.path.open("ab") as file:
            file.write(b"more")

    def file(self) -> None:
        """Nothing."""

    def phase(self, name: str) -> None:
        """Nothing."""


@pytest.mark.spec("UPL-08")
def test_file_changed_while_reading_leaves_nothing(
    s3: Any, bucket: str, journal: UploadJournal, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", ETAG_CHUNK + MB)
    tell: TransferProgress = Meddling(path)
    # No room for the second part until the first was sent.
    with (
        open_transfer(2, tell, memory=ETAG_CHUNK) as shared,
        pytest.raises(Damaged, match="was changed"),
    ):
        S3Staging(StagingBucket("s3", bucket, ""), s3, shared, journal).stage(item(tmp_path / "s"))
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    assert not journal.unfinished


@pytest.mark.spec("UPL-08")
def test_a_file_that_changed_since_it_was_listed_is_not_sent(
    s3: Any, bucket: str, staging: S3Staging, source: Path
) -> None:
    one = item(source, "sample.json")
    (source / "sample.json").write_text("{}")
    with pytest.raises(Damaged):
        staging.stage(one)
    (source / "sample.json").unlink()
    with pytest.raises(Damaged):
        staging.stage(one)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


@pytest.mark.spec("UPL-11")
def test_sends_bodies_without_expect_continue(s3: Any, bucket: str) -> None:
    headers: list[Any] = []
    s3.meta.events.register("before-send.s3", lambda request, **_: headers.append(request.headers))
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert headers
    assert all("Expect" not in each for each in headers)


@pytest.mark.spec("UPL-09")
def test_a_name_that_is_too_long_for_a_key_is_left_out_of_it(
    s3: Any, bucket: str, staging: S3Staging, source: Path
) -> None:
    one = item(source, "sample.json")
    local = LocalFile("/".join(["d" * 200] * 6), one.file.path, one.file.stamp)
    staged = staging.stage(StagingItem(local, one.content_type, one.uuid, one.version))
    assert staged.url == f"s3://{bucket}/some/where/0000-uuid.{VERSION}"


@pytest.mark.spec("UPL-11")
def test_reports_missing_bucket(s3: Any, source: Path, journal: UploadJournal) -> None:
    with open_transfer(2) as shared, pytest.raises(NotFound, match="s3://not-there"):
        S3Staging(StagingBucket("s3", "not-there-at-all", ""), s3, shared, journal).stage(
            item(source, "sample.json")
        )


@pytest.mark.spec("UPL-11")
def test_explains_missing_credentials(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NotAllowed) as told, s3_transfer.translate_errors("s3://x"):
        s3_transfer.connect(1).list_buckets()
    assert "AWS_ACCESS_KEY_ID" in told.value.hint


@pytest.mark.spec("UPL-11")
def test_a_server_that_is_away_is_unreachable(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setattr(s3_transfer, "ATTEMPTS", 1)
    with pytest.raises(Unreachable), s3_transfer.translate_errors("s3://x"):
        s3_transfer.connect(1).list_buckets()


@pytest.mark.spec("UPL-03")
@pytest.mark.parametrize(
    ("module", "bucket", "extra"),
    [("boto3.session", "s3://b-b", "[s3]"), ("google.cloud.storage", "gs://b-b", "[gcs]")],
)
def test_names_missing_package(
    *,
    client: Client,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    bucket: str,
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Misused) as told:
        upload(client, UploadOptions(source, "aws", staging_bucket=bucket))
    assert told.value.hint == f"pip install consortium-store-client{extra}"


@pytest.mark.spec("UPL-09")
def test_a_directory_goes_by_way_of_a_bucket(
    config: Configuration, bucket: str, source: Path
) -> None:
    large(source / "big.bam", ETAG_CHUNK + 1)
    recording = Recording()
    options = UploadOptions(source, "aws", staging_bucket=f"s3://{bucket}/staged")
    with client_of(config, recording) as client:
        done = upload(client, options)
        assert as_said(done) == sha256s(source)
        ASKED.clear()
        assert upload(client, options).version == done.version
    assert not recording.puts("area")
    assert not [line for line in ASKED if line.startswith("PUT")]


@pytest.mark.spec("UPL-10")
def test_stages_lost_objects_again(
    s3: Any, client: Client, bucket: str, source: Path, config: Configuration
) -> None:
    """The store was away when all was staged; then the bucket was cleared."""
    options = UploadOptions(source, "aws", staging_bucket=bucket)

    def no_files(line: str) -> None:
        if line.startswith("PUT /v1/files"):
            raise KeyboardInterrupt

    with (
        client_of(config, Recording(no_files)) as first,
        pytest.raises(KeyboardInterrupt),
    ):
        upload(first, options)
    for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]:
        s3.delete_object(Bucket=bucket, Key=entry["Key"])
    assert as_said(upload(client, options)) == sha256s(source)


@pytest.mark.spec("UPL-20")
def test_names_and_resends_mismatched_file(
    s3: Any, client: Client, bucket: str, source: Path, config: Configuration
) -> None:
    """Harmed in the bucket, after it was sent and before the store read it."""
    options = UploadOptions(source, "aws", staging_bucket=bucket)

    def harm(line: str) -> None:
        if line.startswith("PUT /v1/files"):
            for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]:
                if entry["Key"].endswith("sample.json"):
                    there = s3.head_object(Bucket=bucket, Key=entry["Key"])
                    s3.put_object(
                        Bucket=bucket,
                        Key=entry["Key"],
                        Body=b"x" * entry["Size"],
                        Metadata=there["Metadata"],
                        ContentType=there["ContentType"],
                    )

    with (
        client_of(config, Recording(harm)) as first,
        pytest.raises(Damaged, match=r"sample\.json"),
    ):
        upload(first, options)
    done = upload(client, options)
    assert as_said(done) == sha256s(source)
    assert done.sent_files == 1


@pytest.mark.spec("UPL-22")
def test_takes_back_progress_of_resent_parts(s3: Any, bucket: str, source: Path) -> None:
    counted: list[int] = []

    class Counting(Meddling):
        def bytes(self, n: int) -> None:
            counted.append(n)

    with open_transfer(1, Counting(source)) as shared:
        failed: list[bool] = []

        def once(request: Any, **_: Any) -> AWSResponse | None:
            if failed:
                return None
            failed.append(True)
            request.body.read(1)
            return AWSResponse(request.url, 503, {}, Raw())

        s3.meta.events.register("before-send.s3.PutObject", once, unique_id="once")
        journal = UploadJournal(source.parent / "j.jsonl", writing=False)
        S3Staging(StagingBucket("s3", bucket, ""), s3, shared, journal).stage(
            item(source, "reads/lane 1/R1.fastq.gz")
        )
    assert failed
    assert sum(counted) == 300_000


class Raw:
    """An empty body."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        return iter(())
