"""Directories to upload, clients that note what they ask, and a bucket on S3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from store_client.client import Client
from store_client.configuration import Configuration
from store_client.transfer import s3 as s3_transfer
from store_client.transfer.journal import UploadJournal
from tests.client.upload.directories import filled
from tests.client.upload.recording import Recording, client_of
from tests.storage.blobs.s3_server import ACCESS_KEY, SECRET_KEY, lasting_s3


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with metadata, data in folders and an empty file."""
    return filled(tmp_path / "sample")


@pytest.fixture
def recording() -> Recording:
    """What was asked."""
    return Recording()


@pytest.fixture
def recorded(config: Configuration, recording: Recording) -> Iterator[Client]:
    """A client of the store that notes what it asks."""
    with client_of(config, recording) as made:
        yield made


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """boto3's client of the ambient S3."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": lasting_s3(),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    return s3_transfer.connect(4)


@pytest.fixture
def bucket(s3: Any) -> str:
    """A bucket of the depositor's."""
    name = f"staging-{uuid4()}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[UploadJournal]:
    """The journal of an upload."""
    made = UploadJournal(tmp_path / "journal.jsonl")
    yield made
    made.close()
