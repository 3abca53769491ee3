"""What the rooms above may ask of a blob store, a search index and a notice board.

Each backend is enrolled in one contract suite (`tests/storage/contracts/`): the docstring is the
contract, the suite its proof. No word of a vendor appears here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from storage.model import FQID
from storage.query.grammar import Clause

BLOCK = 1024 * 1024
"""Bytes of one block of every stream."""
DEFAULT_TYPE = "application/octet-stream"
"""Content type of what was given none."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """What a HEAD tells of one object. `pin` names exactly these bytes: a version id or entity tag,
    a generation, or inode and time; opaque to all but the store that made it. `etag` and `crc32c`
    (8 hex digits, of the whole object) are the engine's own findings, where an answer tells them.
    `damaged` objects occur in listings only: their `size` is what is stored, whatever it is.
    `modified_us`, of listings and of folders, is when the object was stored or changed, by the
    engine's clock.
    """

    key: str
    size: int
    pin: str
    content_type: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    etag: str | None = None
    crc32c: str | None = None
    damaged: bool = False
    modified_us: int | None = None


Progress = Callable[[str, int], None]
"""Told, as a copy moves on, a token to take it up again (empty: none) and the bytes so far. What it
raises ends the copy."""


class Upload(Protocol):
    """An unfinished object, invisible until `complete`; parts of one size but the last, which may
    be stored in any order and several at once."""

    @property
    def token(self) -> str:
        """Names this upload in its store, so that another process may resume or abort it."""

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        """Store part `number` (1 to 10,000); storing one again replaces it."""

    def parts(self) -> Mapping[int, int]:
        """Sizes of the parts that are stored already, by number."""

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """Make the object visible if the key is free, else raise AlreadyExists and keep nothing;
        with `replace`, which replicas use for repair only, in place of what the key held.

        `metadata` adds what was not known before the bytes had passed, such as their checksums.
        Invalid when a part is missing or of the wrong size; no part at all is an empty object.
        """

    def abort(self) -> None:
        """Forget the upload and its parts; no error when it is gone already."""


@dataclass(frozen=True, slots=True)
class SignedUpload:
    """A URL that anybody may PUT one object to, for a while. `headers` are part of what is signed:
    they are sent as they are. A body has at most `max_bytes`."""

    url: str = field(repr=False)
    headers: Mapping[str, str]
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Loan:
    """Credentials of an engine's own that reach below one prefix only, until `expires`, POSIX time.
    `words` are what its programs want to be told."""

    kind: str
    words: Mapping[str, str | None] = field(repr=False)
    expires: float


class Lender(Protocol):
    """Makes credentials of the engine of one bucket."""

    def lend(self, prefix: str, *, name: str, expires_s: int) -> Loan:
        """Credentials for what lies below `prefix`, which ends in `/`; `name` is what the engine's
        own log calls whoever uses them. Unavailable when the engine gives none."""


class BlobStore(Protocol):
    """One bucket. Keys are `/`-separated text of at most 900 UTF-8 bytes, no control characters;
    metadata are lower-case names with printable ASCII values, 2 KB in all; objects never change.

    Absent keys raise NotFound, a store that cannot be reached Unavailable, a bad key Invalid, an
    object that cannot be read as it was written Damaged, where the engine can tell.
    """

    def head(self, key: str) -> BlobInfo:
        """Size, pin, content type and metadata (object tags count as metadata, which wins)."""

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Stream a range in blocks of at most BLOCK bytes; errors come with the first block.

        SourceChanged if `pin` no longer fits, RangeNotSatisfiable if a `start` above 0 is not
        inside the object; a range that ends beyond it ends with it.
        """

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """Create the object if the key is free, else raise AlreadyExists; all of it or nothing.

        With `replace`, which replicas use for repair only, in place of what the key held, at one
        instant.
        """

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Upload:
        """Start a multipart upload, or take up the one named by `token` (NotFound if it is gone).

        All parts but the last will have `part_size` bytes; what is taken up keeps its first words.
        """

    def copy(
        self,
        source: "BlobStore",
        key: str,
        target_key: str,
        *,
        pin: str | None,
        part_size: int,
        size: int | None = None,
        resume: str | None = None,
        progress: Progress | None = None,
    ) -> BlobInfo | None:
        """Copy, content type and metadata too, inside the engine and not through us.

        Without `pin` what lies there now: the caller holds the `crc32c` or `etag` of what comes
        back to what it expects. A `size` that the caller knows saves asking for it. None when
        `source` is of another engine: the caller streams instead. AlreadyExists when the key is
        taken, SourceChanged when `pin` no longer fits. `resume` is a token that `progress` was
        given by a copy of the same source that died; one that is gone starts anew.
        """

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """Objects under `prefix` with a key greater than `after`, in byte order of keys; of each
        only `key`, `size`, `pin` and `modified_us` are promised. Damaged objects are listed and
        marked."""

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """Remove the object; not an error when it is absent."""

    def describe(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: Progress | None = None,
    ) -> BlobInfo:
        """Add to an object's metadata what was found of the bytes that `pin` names; what replicas
        hold is never described anew. SourceChanged, with nothing changed, if it fits no longer.

        Bytes and content type stay as they are; the pin may be another one afterwards. On some
        engines the bytes are copied, and `progress` is told.
        """

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """A URL that anybody may GET for `expires_s` seconds, answering with these headers. A path
        beginning with `/` is relative to the API's external URL."""

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> SignedUpload:
        """Leave for anybody to store, or replace, this one object for `expires_s` seconds, and for
        nothing else. An engine may have a lower limit of its own, or only that."""

    def direct_url(self, key: str) -> str:
        """The object's address in its cloud's own words (`s3://`, `gs://`, `file://`)."""

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """Forget what writers that died left unfinished, uploads too, if nothing has touched it for
        so long; returns how many. `now` is POSIX time."""


@runtime_checkable
class StreamTarget(BlobStore, Protocol):
    """A BlobStore that stores an object of known size and checksum while it is still being read."""

    def put_stream(self, key: str, blocks: Iterable[bytes], *, size: int, crc32c: str) -> BlobInfo:
        """Create the object if the key is free, else raise AlreadyExists.

        Nothing is visible until `blocks` has ended without an error, nor if the bytes are not of
        this size (Invalid, Unavailable) and CRC-32C, 8 hex digits (Unavailable). An interrupted
        stream begins anew.
        """


@runtime_checkable
class EtagStore(Protocol):
    """A blob store whose ETags can be compared in a cheaper call than `head`."""

    def matches(self, key: str, *, size: int, etag: str) -> bool:
        """Whether an object of this size and ETag is there. False proves nothing: use `head`."""


@runtime_checkable
class BulkTarget(Protocol):
    """A blob store into which many small objects are copied in one call each."""

    def copy_unread(
        self, source: BlobStore, key: str, target_key: str, *, is_free: bool = False
    ) -> bool:
        """Copy a small object onto a free key in a call that returns nothing of the copy: the
        caller compares what `list_below` returns. `is_free` says that the caller saw the key free;
        otherwise an engine whose copies replace is asked first. False if the copy may have failed,
        or if ETags are no digests here: the caller uses `copy`."""

    def list_below(self, prefix: str) -> Mapping[str, BlobInfo]:
        """All objects below a prefix that ends in `/`, with their sizes and ETags, by key."""


class Source(Protocol):
    """One object that a depositor named by URL; only read, by its pin.

    Unprocessable (`source_not_found`, `source_not_readable`) when it is absent or may not be read,
    else as a BlobStore.
    """

    def head(self) -> BlobInfo:
        """Size, pin, content type and metadata; tags count as metadata, which wins."""

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Stream a range of exactly the bytes that `pin` names, else raise SourceChanged."""


class Sources(Protocol):
    """What a `source_url` may name."""

    def open(self, url: str) -> Source:
        """The source, not yet touched; Invalid (`unknown_source_schema`) for a scheme that we do
        not read, Forbidden for a file outside of the configured folders."""

    def area_key(self, url: str) -> str | None:
        """The key in the area store that this URL names in any of its spellings, or None."""

    def own(self, url: str) -> bool:
        """True when the URL points into one of the store's own buckets."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document on its way into the index. `change` is the head's change counter: of two writes of
    one FQID the larger wins, whatever their order. `document` None is the stub of one not live.
    What lies at or below a `path` of the document's own `errors` is kept, but not searchable."""

    uuid: str
    version: str
    shape: str
    change: int
    document: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document that the engine would not take, and why."""

    uuid: str
    version: str
    reason: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One bundle that matches."""

    uuid: str
    version: str
    score: float | None
    document: bytes | None
    """The verbatim document as JSON, when it was asked for."""
    place: str
    """What to pass on as `after` for what comes behind it."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """`after` is what to pass on for the next page; None on the last one."""

    hits: Sequence[Hit]
    total: int
    after: str | None


class SearchIndex(Protocol):
    """The searchable documents of one replica."""

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[Refusal]:
        """Store or replace, and return once all are searchable; refusals never stop the others."""

    def search(
        self, query: Clause, *, size: int, after: str | None = None, raw: bool = False
    ) -> SearchPage:
        """Live documents that match, newest version first, then by uuid; a walk by `after` sees
        everything that was there at its start once. Invalid when the engine refuses the query,
        TimedOut beyond its time limit; never a partial result."""

    def get(self, uuid: str, version: str) -> bytes | None:
        """The verbatim live document, or None."""

    def held(self) -> Iterator[FQID]:
        """What the engine holds, documents and stubs, by uuid, then version; what others write
        meanwhile may be there or not. Nothing at all when the engine lost its index."""

    def begin_rebuild(self) -> str:
        """Open a new generation that `write` fills beside the current one; returns its name."""

    def finish_rebuild(self, generation: str) -> None:
        """Search the new generation from now on and drop the old one."""

    def ping(self) -> str:
        """The engine's name and version; Unavailable when it cannot be reached."""


class Notices(Protocol):
    """A board for wake-up calls between processes: lossy, never the truth."""

    def publish(self, *topics: str) -> None:
        """Wake whoever waits for one of these; silently nothing when the board is down."""

    def listen(self, *topics: str) -> AbstractContextManager["Listening"]:
        """Subscribed from the moment the block is entered."""


class Listening(Protocol):
    """A subscription that is already in force."""

    def wait(self, timeout_s: float) -> bool:
        """True as soon as one of the topics was published since the last wait."""
