"""The nouns that every room shares, as frozen dataclasses; no behaviour beyond spelling."""

import string
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Replica = Literal["aws", "gcp"]
REPLICAS: tuple[Replica, ...] = ("aws", "gcp")
MIN_SECRET = 16
"""Characters that the store's secret has at least."""

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


CHECKSUMS = ("sha1", "sha256", "crc32c", "s3_etag")
"""Their names, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file as the catalog knows it; `id` is the catalog's own key."""

    id: int
    fqid: FQID
    creator_uid: int
    content_type: str
    size: int
    checksums: Checksums
    origin: Replica
    created_us: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a manifest: a file under the name it has when downloaded."""

    name: str
    file: FQID
    indexed: bool
    content_type: str
    size: int
    checksums: Checksums


@dataclass(frozen=True, slots=True)
class BundleVersion:
    """A bundle's head without its entries, which are read by page."""

    id: int
    fqid: FQID
    creator_uid: int
    origin: Replica
    file_count: int
    created_us: int
    parent: str | None = None


class Link(NamedTuple):
    """One item of a collection; a type that is no kind of ours names a fragment of a file."""

    type: str
    target: FQID
    path: str | None = None


# Only ASCII has the case that does not count: the Kelvin sign is no k.
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def one_spelling(identity: str) -> str:
    """An identity as it is kept and compared: an e-mail address in small letters."""
    return identity.translate(_SMALL) if "@" in identity else identity


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, as the verified token says, in the one spelling of that identity; `None` stands for
    nobody wherever this is optional."""

    email: str
    groups: frozenset[str]
    scopes: frozenset[str] = frozenset()
    # How they show it: whoever shows another token is not somebody else.
    issuer: str | None = field(default=None, compare=False)
    issued_at: float | None = field(default=None, compare=False)
    """Seconds since 1970."""
    grant: str | None = field(default=None, compare=False)
    """The login with our own service that it came of."""

    def __post_init__(self) -> None:
        # Whoever disables somebody disables them however an issuer spells them.
        object.__setattr__(self, "email", one_spelling(self.email))


class Todo(NamedTuple):
    """A need: one step on one reference in one replica; `step` is a word of `pipelines.flow`."""

    step: str
    replica: str
    ref: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Our hold on a to-do row; `attempts` counts this claim too."""

    todo: Todo
    token: str
    attempts: int
    request_id: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a bundle in one replica; `id` is made of the other fields."""

    id: str
    replica: Replica
    type: EventType
    fqid: FQID
    bundle_id: int
    at_us: int
