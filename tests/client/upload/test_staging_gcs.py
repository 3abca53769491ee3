"""Waiting in a bucket of Google Cloud Storage, against a simulated one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google.cloud.storage
import pytest
from google.oauth2.credentials import Credentials

from store_client.checksums import MB
from store_client.errors import Damaged, NotAllowed
from store_client.transfer.engine import TransferContext, open_transfer
from store_client.transfer.journal import UploadJournal
from store_client.uploads.options import StagingBucket
from store_client.uploads.staging import GcsStaging
from tests.client.upload.directories import large
from tests.client.upload.test_staging_s3 import VERSION, item, sums_of
from tests.storage.blobs.backend_gcs import running
from tests.storage.blobs.gcs_objects import Stored
from tests.storage.blobs.gcs_server import Gcs, Trouble

BUCKET = StagingBucket("gs", "staging", "here/")
TOKEN = "a token of the depositor's"


@pytest.fixture
def gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcs]:
    """The ambient Google Cloud Storage."""
    with running(tmp_path) as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
        gcs.objects.make_bucket("staging")
        yield gcs


@pytest.fixture
def objects(gcs: Gcs) -> Iterator[Any]:
    """Google's client. An emulator is asked without credentials as a rule: this one wants some."""
    gcs.tokens._given.add(TOKEN)
    made = google.cloud.storage.Client(project="p", credentials=Credentials(TOKEN))
    yield made
    made.close()


@pytest.fixture
def shared() -> Iterator[TransferContext]:
    with open_transfer(2) as made:
        yield made


@pytest.fixture
def staging(objects: Any, shared: TransferContext, journal: UploadJournal) -> GcsStaging:
    return GcsStaging(BUCKET, objects, shared, journal)


def stored(gcs: Gcs, url: str) -> Stored:
    return gcs.objects.get("staging", url.removeprefix("gs://staging/"), {})


@pytest.mark.spec("UPL-12")
def test_a_small_file_goes_with_its_checksums(gcs: Gcs, staging: GcsStaging, source: Path) -> None:
    one = item(source, "sample.json")
    staged = staging.stage(one)
    assert staged.url == f"gs://staging/here/0000-uuid.{VERSION}/sample.json"
    there = stored(gcs, staged.url)
    assert there.data == (source / "sample.json").read_bytes()
    assert there.metadata == staged.checksums.metadata()
    assert there.content_type == "application/json"
    assert staged.checksums == sums_of(source / "sample.json")


@pytest.mark.spec("UPL-12")
@pytest.mark.parametrize("size", [8 * MB + 1, 16 * MB, 33 * MB])
def test_a_large_file_goes_through_a_session_and_then_gets_its_checksums(
    gcs: Gcs, staging: GcsStaging, tmp_path: Path, size: int
) -> None:
    path = large(tmp_path / "s" / "big.bam", size)
    staged = staging.stage(item(tmp_path / "s"))
    there = stored(gcs, staged.url)
    assert there.data == path.read_bytes()
    assert there.metadata == sums_of(path).metadata()
    assert there.content_type == "application/octet-stream"


@pytest.mark.spec("UPL-12")
def test_resumes_session(
    gcs: Gcs, staging: GcsStaging, journal: UploadJournal, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", 40 * MB)
    gcs.trouble.append(Trouble("PATCH .*", status=403))
    with pytest.raises(NotAllowed):
        staging.stage(item(tmp_path / "s"))
    assert journal.unfinished["big.bam"].token
    gcs.asked.clear()
    staged = staging.stage(item(tmp_path / "s"))
    assert stored(gcs, staged.url).metadata == sums_of(path).metadata()
    assert sum(line.startswith("PUT /session/") for line in gcs.asked) == 1


@pytest.mark.spec("UPL-12")
def test_a_connection_that_breaks_costs_only_what_did_not_arrive(
    gcs: Gcs, staging: GcsStaging, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", 20 * MB)
    gcs.trouble.append(Trouble(r"PUT /session/.*", wait_s=0, times=2, deaf=5 * MB))
    staged = staging.stage(item(tmp_path / "s"))
    assert stored(gcs, staged.url).data == path.read_bytes()


@pytest.mark.spec("UPL-12")
def test_half_finished_session_resumes(
    gcs: Gcs, objects: Any, staging: GcsStaging, *, journal: UploadJournal, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", 40 * MB)
    with open_transfer(1, Stopping()) as shared:
        first = GcsStaging(BUCKET, objects, shared, journal)
        with pytest.raises(KeyboardInterrupt):
            first.stage(item(tmp_path / "s"))
    gcs.asked.clear()
    staged = staging.stage(item(tmp_path / "s"))
    assert stored(gcs, staged.url).data == path.read_bytes()
    # One question, and two pieces of 16 MB and 8 MB.
    assert sum(line.startswith("PUT /session/") for line in gcs.asked) == 3


class Stopping:
    """Somebody presses Ctrl-C when the first piece has arrived."""

    def total(self, files: int, bytes: int) -> None:  # noqa: A002
        """Nothing."""

    def bytes(self, n: int) -> None:
        raise KeyboardInterrupt

    def file(self) -> None:
        """Nothing."""

    def phase(self, name: str) -> None:
        """Nothing."""


@pytest.mark.spec("UPL-12")
def test_other_bytes_at_google_are_damaged_and_sent_again(
    gcs: Gcs, staging: GcsStaging, journal: UploadJournal, tmp_path: Path
) -> None:
    path = large(tmp_path / "s" / "big.bam", 9 * MB)
    gcs.trouble.append(Trouble("PATCH .*", status=403))
    with pytest.raises(NotAllowed):
        staging.stage(item(tmp_path / "s"))
    url = journal.unfinished["big.bam"].url
    key = url.removeprefix("gs://staging/")
    gcs.objects.put("staging", {"name": key}, b"x" * 9 * MB, {})
    with pytest.raises(Damaged):
        staging.stage(item(tmp_path / "s"))
    assert stored(gcs, staging.stage(item(tmp_path / "s")).url).data == path.read_bytes()
