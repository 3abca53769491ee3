"""Domain types that all layers share, as frozen dataclasses."""

import string
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Replica = Literal["aws", "gcp"]
REPLICAS: tuple[Replica, ...] = ("aws", "gcp")
MIN_SECRET_LENGTH = 16
"""Fewest characters of the store's secret."""

EventType = Literal["CREATE", "TOMBSTONE", "DELETE"]


class FQID(NamedTuple):
    """A versioned identity, `<uuid>.<version>`; both parts already normalised."""

    uuid: str
    version: str

    def __str__(self) -> str:
        return f"{self.uuid}.{self.version}"

    @classmethod
    def parse(cls, text: str) -> "FQID":
        """Split at the first dot: a uuid holds none, a version holds one."""
        uuid, _, version = text.partition(".")
        return cls(uuid, version)


@dataclass(frozen=True, slots=True)
class Checksums:
    """The four checksums of some bytes, lower-case hex; `s3_etag` may end in `-<parts>`."""

    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str


CHECKSUM_NAMES = ("sha1", "sha256", "crc32c", "s3_etag")
"""Names of the checksums, in the order of responses."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file version with all that its record needs; `id` is the catalog's key."""

    id: int
    fqid: FQID
    creator_uid: int
    content_type: str
    size: int
    checksums: Checksums
    origin: Replica
    created_us: int
    blob_id: int
    digest: str
    author: str
    event_id: str
    published: bool


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One line of a manifest: a file under its name in the bundle."""

    name: str
    file: FQID
    indexed: bool
    content_type: str
    size: int
    checksums: Checksums


@dataclass(frozen=True, slots=True)
class BundleVersion:
    """A bundle version with all that its record needs but the entries, which are read by page."""

    id: int
    fqid: FQID
    creator_uid: int
    origin: Replica
    file_count: int
    created_us: int
    parent: str | None
    digest: str
    author: str
    event_id: str
    published: bool


class CollectionLink(NamedTuple):
    """One item of a collection; an unknown type names a fragment of a file."""

    type: str
    target: FQID
    path: str | None = None


# ASCII only: the Kelvin sign must not equal k.
_ASCII_LOWERCASE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def normalize_identity(identity: str) -> str:
    """Return an identity for storage and comparison: e-mail addresses in lower case."""
    return identity.translate(_ASCII_LOWERCASE) if "@" in identity else identity


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller, with a normalized e-mail address; optional principals are None if
    anonymous."""

    email: str
    groups: frozenset[str]
    scopes: frozenset[str] = frozenset()
    # About the token: the same person with another token is equal.
    issuer: str | None = field(default=None, compare=False)
    issued_at: float | None = field(default=None, compare=False)
    """Seconds since 1970."""
    grant: str | None = field(default=None, compare=False)
    """Id of the login at this service that issued the token."""

    def __post_init__(self) -> None:
        # Disabling a person must apply to every spelling of the address.
        object.__setattr__(self, "email", normalize_identity(self.email))


class Job(NamedTuple):
    """One step on one reference in one replica; `step` is a word of `pipelines.flow`."""

    step: str
    replica: str
    ref: str


@dataclass(frozen=True, slots=True)
class JobClaim:
    """A claim on a job; `attempts` includes this one."""

    job: Job
    token: str
    attempts: int
    request_id: str


@dataclass(frozen=True, slots=True)
class BundleEvent:
    """Something that happened to a bundle in one replica; `id` derives from the other fields."""

    id: str
    replica: Replica
    type: EventType
    fqid: FQID
    bundle_id: int
    at_us: int
