"""S3 buckets for the contract suite: simulated, or on a named server."""

import functools
import multiprocessing
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import uuid4

from storage.blobs.clients import CloudLimits
from storage.blobs.s3 import S3Blobs, open_s3_blobs
from storage.blobs.s3_client import S3Connection, S3Server
from storage.protocols import BlobStore
from tests.storage.blobs.s3_server import ACCESS_KEY, SECRET_KEY, lasting_s3
from tests.storage.contracts.blob_store import Answer, Backend

LIMITS = CloudLimits(connect_s=5, read_s=30, attempts=3, connections=16)
MIN_PART = 5 * 1024**2

SIMULATED = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The ambient S3 of tests."""


@functools.cache
def admin(endpoint: str) -> Any:
    """A client that makes and removes buckets."""
    return S3Connection(S3Server(endpoint=endpoint), LIMITS).client


def new_bucket(client: Any, *, versioned: bool) -> str:
    name = f"store-{uuid4()}"
    client.create_bucket(Bucket=name)
    if versioned:
        wanted = {"Status": "Enabled"}
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration=wanted)
    return name


def remove_bucket(client: Any, name: str) -> None:
    """With all that it holds."""
    for upload in client.list_multipart_uploads(Bucket=name).get("Uploads", ()):
        client.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
    page = client.list_object_versions(Bucket=name)
    for entry in [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]:
        client.delete_object(Bucket=name, Key=entry["Key"], VersionId=entry["VersionId"])
    client.delete_bucket(Bucket=name)


def opened(
    endpoint: str, name: str, limits: CloudLimits = LIMITS, *, tagged: bool = False
) -> S3Blobs:
    return open_s3_blobs(f"s3://{name}?endpoint={endpoint}", limits, tagged=tagged)


def fetch(url: str) -> Answer:
    """As anybody would."""
    try:
        with urllib.request.urlopen(url) as reply:
            told = reply.headers
            return Answer(
                reply.status, reply.read(), told["Content-Type"], told["Content-Disposition"]
            )
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, b"", None, None)


def _run(endpoint: str, name: str, function: Callable[[BlobStore, int], str], number: int) -> str:
    return function(opened(endpoint, name), number)


@contextmanager
def buckets(endpoint: str, *, versioned: bool) -> Iterator[Backend]:
    """Two fresh buckets, removed in the end."""
    client = admin(endpoint)
    names = [new_bucket(client, versioned=versioned) for _ in range(2)]

    def in_processes(function: Callable[[BlobStore, int], str], count: int) -> list[str]:
        with multiprocessing.get_context("spawn").Pool(count) as pool:
            work = [(endpoint, names[0], function, number) for number in range(count)]
            return pool.starmap(_run, work, chunksize=1)

    one, two = (opened(endpoint, name) for name in names)
    try:
        area = opened(endpoint, names[0], tagged=True)
        yield Backend(one, two, fetch, in_processes, MIN_PART, area)
    finally:
        for name in names:
            remove_bucket(client, name)


@contextmanager
def simulated(_: Path, *, versioned: bool = False) -> Iterator[Backend]:
    """Moto behind its gate."""
    with patch.dict(os.environ, SIMULATED), buckets(lasting_s3(), versioned=versioned) as backend:
        yield backend


@contextmanager
def named(_: Path, *, versioned: bool = False) -> Iterator[Backend]:
    """The server of STORE_TEST_S3, with the ambient credentials."""
    query = dict(
        pair.split("=", 1) for pair in urlsplit(os.environ["STORE_TEST_S3"]).query.split("&")
    )
    with buckets(query["endpoint"], versioned=versioned) as backend:
        yield backend


Opening = Callable[[Path], AbstractContextManager[Backend]]

S3: dict[str, Opening] = {
    "s3": simulated,
    "s3-versioned": functools.partial(simulated, versioned=True),
}
"""What enrols: one entry for each kind of bucket."""

SERVERS: dict[str, Opening] = (
    {"s3-server": named, "s3-server-versioned": functools.partial(named, versioned=True)}
    if "STORE_TEST_S3" in os.environ
    else {}
)
"""Those of a real server, if one is named."""
