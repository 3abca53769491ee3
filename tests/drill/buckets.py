"""Read buckets with the clients of their clouds, without the store's code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore.config import Config
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from storage.protocols import BlobStore

BLOCK = 1 << 20


class Bucket(Protocol):
    """What the check after a drill asks of a bucket."""

    def names(self) -> Iterator[str]:
        """Every object."""

    def read(self, key: str) -> Iterator[bytes]:
        """Its bytes."""

    def unfinished(self) -> list[str]:
        """Keys of uploads that were begun and not ended."""


class S3Bucket:
    """By boto3."""

    def __init__(self, url: str, credentials: Mapping[str, str]) -> None:
        self._name, options = _parts(url)
        self._client = boto3.client(
            "s3",
            endpoint_url=options["endpoint"],
            region_name=options.get("region", "us-east-1"),
            aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=32),
        )

    def create(self) -> None:
        """Make it."""
        self._client.create_bucket(Bucket=self._name)

    def names(self) -> Iterator[str]:
        """See Bucket."""
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name):
            yield from (found["Key"] for found in page.get("Contents", ()))

    def read(self, key: str) -> Iterator[bytes]:
        """See Bucket."""
        answer = self._client.get_object(Bucket=self._name, Key=key)
        yield from answer["Body"].iter_chunks(BLOCK)

    def unfinished(self) -> list[str]:
        """See Bucket."""
        answer = self._client.list_multipart_uploads(Bucket=self._name)
        return [upload["Key"] for upload in answer.get("Uploads", ())]


class GcsBucket:
    """By google-cloud-storage."""

    def __init__(self, url: str) -> None:
        name, options = _parts(url)
        client: Any = storage.Client(
            options.get("project", "drill"),
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": options["endpoint"]},
        )
        self._bucket: Any = client.bucket(name)

    def create(self) -> None:
        """Make it."""
        self._bucket.create()

    def names(self) -> Iterator[str]:
        """See Bucket."""
        yield from (blob.name for blob in self._bucket.list_blobs())

    def read(self, key: str) -> Iterator[bytes]:
        """See Bucket."""
        with self._bucket.blob(key).open("rb", chunk_size=8 * BLOCK) as file:
            while block := file.read(BLOCK):
                yield block

    def unfinished(self) -> list[str]:
        """Its unfinished uploads cannot be listed."""
        return []


@dataclass(frozen=True)
class Folder:
    """A bucket of the embedded store: nobody else reads its objects."""

    blobs: BlobStore

    def names(self) -> Iterator[str]:
        """See Bucket."""
        yield from (info.key for info in self.blobs.list(""))

    def read(self, key: str) -> Iterator[bytes]:
        """See Bucket."""
        return self.blobs.read(key)

    def unfinished(self) -> list[str]:
        """They are beside the objects, and swept with them."""
        return []


def _parts(url: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    return parts.netloc, dict(parse_qsl(parts.query))
