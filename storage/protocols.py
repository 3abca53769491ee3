"""Protocols of blob stores, search indexes and publish/subscribe.

The docstrings are the contracts; every backend is enrolled in one contract suite
(`tests/storage/contracts/`). Nothing here names a vendor.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

from storage.errors import Invalid
from storage.model import FQID
from storage.search.grammar.clauses import Clause

BLOCK = 1024 * 1024
"""Size in bytes of one block of a stream."""
DEFAULT_CONTENT_TYPE = "application/octet-stream"
"""Content type of objects stored without one."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One object's size, pin and metadata.

    `pin` names exactly these bytes: a version id or ETag, a generation, or inode and time; opaque
    to all but its store. `etag` and `crc32c` (8 hex digits, of the whole object) are computed by
    the engine, if its response has them. `damaged` objects occur in listings only, with the stored
    size. `modified_us`, of listings and of folders, is the engine's time of storing or changing the
    object.
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


ProgressCallback = Callable[[str, int], None]
"""Called during a copy with a resume token (empty: none) and the bytes so far; an exception ends
the copy."""


MAX_PARTS = 10_000
"""Parts of one multipart upload."""


class MultipartUpload(Protocol):
    """An unfinished object, invisible until `complete`.

    All parts but the last have one size; parts may be stored in any order and concurrently.
    """

    @property
    def token(self) -> str:
        """Names this upload in its store, so that another process may resume or abort it."""

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        """Store part `number` (1 to 10,000); storing it again replaces it."""

    def parts(self) -> Mapping[int, int]:
        """Return the sizes of stored parts by number."""

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """Publish the object if the key is free; else raise AlreadyExists and store nothing.

        `replace`, which replicas use for repair only, replaces what the key holds. `metadata` adds
        what is known only after the bytes, such as checksums. Invalid if a part is missing or has
        the wrong size; no part at all makes an empty object.
        """

    def abort(self) -> None:
        """Delete the upload and its parts; succeed if it is gone."""

    def sign_part(
        self, number: int, *, length: int, crc32c: int, expires_s: int
    ) -> "PresignedUpload | None":
        """Return a presigned URL to put exactly these bytes as part `number`, for `expires_s`.

        It cannot make an object, list, read or delete. None if the API receives the parts.
        """


def check_part_size(part_size: int) -> None:
    """Raise Invalid for parts without bytes."""
    if part_size < 1:
        raise Invalid("part_size: must be at least 1 byte")


def check_part_number(number: int) -> None:
    """Raise Invalid for a part number that no upload has."""
    if not 1 <= number <= MAX_PARTS:
        raise Invalid(f"part number: must be 1 to {MAX_PARTS}")


def check_parts(sizes: Mapping[int, int], part_size: int) -> int:
    """Return the size of all parts; Invalid if one is missing or has the wrong size."""
    ordered = [size for _, size in sorted(sizes.items())]
    if sorted(sizes) != list(range(1, len(ordered) + 1)):
        raise Invalid("a part is missing: upload it first")
    if any(size != part_size for size in ordered[:-1]):
        raise Invalid("only the last part may be shorter than the part size")
    return sum(ordered)


@dataclass(frozen=True, slots=True)
class PresignedUpload:
    """A URL that allows a PUT of one object or part for a while, without credentials.

    `headers` are signed: send them unchanged. A body may have at most `max_bytes`.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str]
    max_bytes: int


@dataclass(frozen=True, slots=True)
class DirectUploads:
    """Where presigned parts go: their URLs begin with `url`, their requests carry `headers`."""

    url: str
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Temporary credentials for one prefix, valid until `expires` (POSIX time).

    `parameters` are what the engine's programs need.
    """

    kind: str
    parameters: Mapping[str, str | None] = field(repr=False)
    expires: float


class CredentialIssuer(Protocol):
    """Issues temporary credentials for one bucket."""

    def issue_credentials(self, prefix: str, *, name: str, expires_s: int) -> Credentials:
        """Return credentials for `prefix`, which ends in `/`; Unavailable if the engine issues
        none.

        `name` identifies their user in the engine's log.
        """


class BlobStore(Protocol):
    """One bucket; objects never change.

    Keys are `/`-separated text of at most 900 UTF-8 bytes without control characters. Metadata are
    lower-case names with printable ASCII values, 2 KB in all.

    Absent keys raise NotFoundError, an unreachable store Unavailable, a malformed key Invalid, an
    object that is not as it was written DamagedObjectError, if the engine can tell.
    """

    def head(self, key: str) -> BlobInfo:
        """Return size, pin, content type and metadata; tags count as metadata, which wins."""

    def read(
        self, key: str, *, pin: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Stream a range in blocks of at most BLOCK bytes; errors come with the first block.

        SourceChanged if `pin` does not match, RangeNotSatisfiable if a `start` above 0 is outside
        the object; a range beyond the end stops there.
        """

    def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str = DEFAULT_CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> BlobInfo:
        """Create the object atomically if the key is free (conditional put), else AlreadyExists.

        `replace`, which replicas use for repair only, replaces what the key holds, atomically.
        """

    def upload(
        self,
        key: str,
        *,
        part_size: int,
        content_type: str,
        metadata: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> MultipartUpload:
        """Begin a multipart upload, or resume that of `token` (NotFoundError if it is gone).

        All parts but the last have `part_size` bytes; a resumed upload keeps its content type and
        metadata.
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
        progress: ProgressCallback | None = None,
    ) -> BlobInfo | None:
        """Copy an object with content type and metadata inside the engine.

        Without `pin` the current object is copied: the caller compares `crc32c` or `etag` of the
        result. A known `size` saves a request. None if `source` is of another engine: the caller
        streams instead. AlreadyExists if the key exists, SourceChanged if `pin` does not match.
        `resume` is a token that `progress` received from an interrupted copy of the same source; if
        it is gone, the copy starts again.
        """

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """List objects under `prefix` with keys greater than `after`, in byte order.

        Only `key`, `size`, `pin` and `modified_us` are promised. Damaged objects are marked.
        """

    def delete(self, key: str, *, pin: str | None = None) -> None:
        """Delete the object; succeed if it is absent."""

    def write_metadata(
        self,
        key: str,
        metadata: Mapping[str, str],
        *,
        pin: str,
        progress: ProgressCallback | None = None,
    ) -> BlobInfo:
        """Add metadata to the object of `pin`; SourceChanged, with nothing changed, if it differs.

        Never used on replicas. Bytes and content type stay; the pin may change. Some engines copy
        the bytes and call `progress`.
        """

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """Return a presigned URL (GET without credentials), valid for `expires_s` seconds.

        Responses have these headers. A path that begins with `/` is relative to the API's external
        URL.
        """

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> PresignedUpload:
        """Return a presigned URL to put only this object, or replace it, for `expires_s` seconds.

        An engine may have a lower size limit, or only its own.
        """

    def find_direct_uploads(self) -> DirectUploads | None:
        """Return where presigned parts go, without a request; None if the API receives them."""

    def direct_url(self, key: str) -> str:
        """Return the object's address in its cloud (`s3://`, `gs://`, `file://`)."""

    def sweep_temporaries(self, older_than_s: float, *, now: float) -> int:
        """Delete leftovers of crashed writers, uploads included, untouched for `older_than_s`.

        Returns how many. `now` is POSIX time.
        """


@runtime_checkable
class StreamTarget(BlobStore, Protocol):
    """A BlobStore that stores an object of known size and checksum while it is being read."""

    def put_stream(self, key: str, blocks: Iterable[bytes], *, size: int, crc32c: str) -> BlobInfo:
        """Create the object if the key is free, else raise AlreadyExists.

        The object appears only after `blocks` ended without an error and the bytes have this size
        (Invalid, Unavailable) and CRC-32C, 8 hex digits (Unavailable). An interrupted stream starts
        again.
        """


@runtime_checkable
class EtagStore(Protocol):
    """A blob store that compares ETags in a cheaper call than `head`."""

    def matches(self, key: str, *, size: int, etag: str) -> bool:
        """Whether an object of this size and ETag exists. False proves nothing: use `head`."""


@runtime_checkable
class BulkCopyTarget(Protocol):
    """A blob store that copies many small objects in one call each."""

    def copy_unverified(
        self, source: BlobStore, key: str, target_key: str, *, is_free: bool = False
    ) -> bool:
        """Copy a small object onto a free key in a call that returns nothing of the copy.

        The caller compares what `list_prefix` returns. `is_free` says that the caller saw the key
        free; else engines whose copies replace are asked first. False if the copy may have failed,
        or if ETags are not MD5s here: the caller uses `copy`.
        """

    def list_prefix(self, prefix: str) -> Mapping[str, BlobInfo]:
        """Return all objects below a prefix that ends in `/`, with sizes and ETags, by key."""


class SourceObject(Protocol):
    """One object that a depositor named by URL; read-only, by its pin.

    Unprocessable (`source_not_found`, `source_not_readable`) if it is absent or may not be read,
    else errors as in BlobStore.
    """

    def head(self) -> BlobInfo:
        """Return size, pin, content type and metadata; tags count as metadata, which wins."""

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Stream a range of the bytes that `pin` names, else raise SourceChanged."""


class Sources(Protocol):
    """Opens the objects of source URLs."""

    def open(self, url: str) -> SourceObject:
        """Return the source without a request.

        Invalid (`unknown_source_schema`) for an unsupported scheme, Forbidden for a file outside
        the configured folders.
        """

    def list(self, url: str) -> Iterator[BlobInfo]:
        """List the objects below `s3://bucket/prefix` or `gs://bucket/prefix`, in byte order.

        Only `key`, `size`, `pin` and `modified_us` are promised. Invalid for another URL, Forbidden
        for the store's own buckets; errors of the bucket as in SourceObject.
        """

    def resolve_area_key(self, url: str) -> str | None:
        """Return the key in the area store that this URL names in any spelling, or None."""

    def is_own_bucket(self, url: str) -> bool:
        """Return whether the URL points into one of the store's own buckets."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document to index; `document` None is the stub of a deleted one.

    `change` is the head's change counter: of two writes of one FQID the larger wins, in any order.
    Paths in the document's own `errors` are stored, but not searchable.
    """

    uuid: str
    version: str
    shape: str
    change: int
    document: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class IndexRefusal:
    """A document that the engine rejected, and why."""

    uuid: str
    version: str
    reason: str


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One matching bundle."""

    uuid: str
    version: str
    document: bytes | None
    """The verbatim JSON document, if requested."""
    page_token: str
    """Pass it as `after` for the results after this hit."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of results; pass `after` for the next page, None on the last one."""

    hits: Sequence[SearchHit]
    total: int
    after: str | None


FacetValue = str | float | bool


@dataclass(frozen=True, slots=True)
class FacetCount:
    """How many bundles have a value in a field."""

    value: FacetValue
    count: int


@dataclass(frozen=True, slots=True)
class FacetCounts:
    """How many bundles match, and by field how many of them have each value."""

    total: int
    facets: Mapping[str, Sequence[FacetCount]]


@dataclass(frozen=True, slots=True)
class IndexedField:
    """A field with the kind of its values; it has one entry for each kind.

    `kind` is string, number or boolean; `documents` have such a value.
    """

    name: str
    kind: str
    documents: int


class SearchIndex(Protocol):
    """The searchable documents of one replica."""

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[IndexRefusal]:
        """Store or replace documents, searchable on return. Refusals do not stop others."""

    def search(
        self,
        query: Clause,
        *,
        size: int,
        after: str | None = None,
        raw: bool = False,
        raw_limit: int | None = None,
        oldest_first: bool = False,
    ) -> SearchPage:
        """Return live documents that match, newest version first, then by uuid.

        `oldest_first` reverses this order; a page token is of one order. `raw` includes the
        documents, except those of more than `raw_limit` bytes.

        Paging by `after` returns everything that existed at its start once. Invalid if the engine
        rejects the query, TimeLimitExceeded beyond its time limit; never a partial result.
        """

    def count_facets(self, query: Clause, fields: Sequence[str], *, size: int) -> FacetCounts:
        """Count the live documents that match, by value of each field.

        At most `size` values a field, most frequent first, ties by kind and value. A document
        counts once for each of its values. A string counts whole, if it is short enough for
        `.keyword`; the suffix may be given. A field that no document has is empty. Errors as in
        `search`.
        """

    def list_fields(
        self, *, prefix: str = "", after: tuple[str, str] | None = None, size: int
    ) -> Sequence[IndexedField]:
        """List fields of live documents by name, then kind, after a name and kind.

        Names longer than 1,000 characters are left out.
        """

    def get(self, uuid: str, version: str) -> bytes | None:
        """Return the verbatim live document, or None."""

    def list_ids(self) -> Iterator[FQID]:
        """List the engine's documents and stubs by uuid, then version.

        Concurrent writes may be included or not. Empty if the engine lost its index.
        """

    def begin_rebuild(self) -> str:
        """Begin a generation that `write` fills beside the current one; return its name."""

    def finish_rebuild(self, generation: str) -> None:
        """Make the new generation current and drop the old one."""

    def ping(self) -> str:
        """Return the engine's name and version; Unavailable if it cannot be reached."""


class SchemaFault(NamedTuple):
    """What is wrong with a value: the JSON pointer of the part, and the reason."""

    pointer: str
    message: str


class MetadataSchema(Protocol):
    """A JSON Schema for the metadata files whose names match `pattern`.

    `documents` are the schema and all that it refers to, by name; `digest` is that of them.
    """

    @property
    def pattern(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def documents(self) -> Mapping[str, Any]: ...
    @property
    def digest(self) -> str: ...

    def matches(self, name: str) -> bool:
        """Return whether it is for files of this name."""

    def find_faults(self, value: Any, *, most: int) -> list[SchemaFault]:
        """Return at most `most` faults of a value."""


class PubSub(Protocol):
    """Wake-ups between processes: lossy, never the truth."""

    def publish(self, *topics: str) -> None:
        """Wake the waiters of these topics; do nothing if the engine is down."""

    def listen(self, *topics: str) -> AbstractContextManager["TopicSubscription"]:
        """Subscribe from the moment the block is entered."""


class TopicSubscription(Protocol):
    """An active subscription."""

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as a topic was published since the last wait, else False."""


class BackupTarget(Protocol):
    """Keeps backups by name; a name appears once its backup is complete, and never changes."""

    @property
    def staging_folder(self) -> Path:
        """The folder of a file that will be stored."""

    def store(self, draft: Path, name: str) -> None:
        """Store a file; AlreadyExists if the name is taken."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a backup, which can be read again from its beginning; NotFoundError."""

    def list_names(self) -> list[str]:
        """Return the names of backups, the oldest first."""

    def delete(self, name: str) -> None:
        """Delete a backup."""
