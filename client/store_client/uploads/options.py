"""Options of an upload, and their validation."""

import re
from dataclasses import dataclass
from pathlib import Path

from store_client.content_types import METADATA
from store_client.errors import Misused
from store_client.identifiers import check_uuid

TIMEOUT_SECONDS = 1200
"""How long to wait for verification (Limits: upload time-out)."""
JOBS = 16
MAX_JOBS = 64
SCHEMES = {"aws": "s3", "gcp": "gs"}
"""Where the bucket of a replica is, when only its name is given."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class StagingBucket:
    """A bucket of the depositor; `prefix` is "" or ends with a slash."""

    scheme: str
    name: str
    prefix: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.name}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """One upload. Raises Misused for what cannot be used.

    src_dir: the directory; names in the bundle are relative to it.
    replica: `aws` or `gcp`, where the bundle begins.
    staging_bucket: `s3://bucket/prefix`, `gs://bucket/prefix` or a bucket's name in the replica's
        cloud; without one the files wait in an upload area of the store.
    timeout_seconds: how long verification by the store is waited for.
    bundle_uuid: the bundle that gets a new version; a new one by default.
    creator_uid: the number that the files and the bundle carry as their creator's.
    jobs: files, and parts of large files, on their way at once.
    indexed: shell patterns (case-sensitive) of names that are metadata.
    dry_run: look, and say what would be done; nothing is sent.
    allow_invalid_json: upload without validating metadata files.
    """

    src_dir: Path
    replica: str
    staging_bucket: str = ""
    timeout_seconds: float = TIMEOUT_SECONDS
    bundle_uuid: str | None = None
    creator_uid: int = 0
    jobs: int = JOBS
    indexed: tuple[str, ...] = METADATA
    dry_run: bool = False
    allow_invalid_json: bool = False

    def __post_init__(self) -> None:
        if self.replica not in SCHEMES:
            raise Misused(f"{self.replica!r} is not a replica", hint="use aws or gcp")
        if not self.src_dir.is_dir():
            raise Misused(f"there is no directory {self.src_dir}")
        if not 1 <= self.jobs <= MAX_JOBS:
            raise Misused(
                f"jobs: must be 1 to {MAX_JOBS} (got {self.jobs})", hint=f"use 1 to {MAX_JOBS}"
            )
        if not self.timeout_seconds >= 0:
            raise Misused("timeout_seconds must not be negative")
        if not -(2**63) <= self.creator_uid < 2**63:
            raise Misused(
                f"{self.creator_uid} is not a valid creator_uid", hint="use a number of 64 bits"
            )
        _ = self.bundle, self.bucket

    @property
    def bundle(self) -> str | None:
        """The bundle's uuid in lower case."""
        return None if self.bundle_uuid is None else check_uuid(self.bundle_uuid, "bundle's uuid")

    @property
    def bucket(self) -> StagingBucket | None:
        """The depositor's own bucket; None means an upload area."""
        return (
            _parse_bucket(self.staging_bucket, SCHEMES[self.replica])
            if self.staging_bucket
            else None
        )


def _parse_bucket(text: str, usual: str) -> StagingBucket:
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = usual, text
    name, _, prefix = rest.partition("/")
    if scheme.lower() not in SCHEMES.values() or not _BUCKET.fullmatch(name):
        raise Misused(
            f"{text!r} is not a bucket",
            hint="use s3://bucket/prefix, gs://bucket/prefix or its name",
        )
    prefix = prefix.strip("/")
    return StagingBucket(scheme.lower(), name, f"{prefix}/" if prefix else "")
