"""Mirror another store: follow its event feed, and put its bundles and files here.

Files and bundles keep uuid, version and checksums. Every byte is verified when it is stored here.
What the other store answers is parsed before anything is written: it names keys of objects.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from pipelines import bundles, checksums, formats
from pipelines.area_files import checksum_metadata
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.imports import deposit_file
from pipelines.ingest import IngestRequest
from storage.catalog import bundles as bundle_rows
from storage.catalog import files as file_rows
from storage.catalog import store_state
from storage.errors import (
    ConflictError,
    DomainError,
    Invalid,
    NotFoundError,
    Unavailable,
    Unprocessable,
)
from storage.model import CHECKSUM_NAMES, FQID, Checksums, EventType, Replica
from storage.protocols import BlobInfo, Sources
from storage.stores import Stores

THREADS = 4
"""Files of a bundle that are read concurrently."""
ATTEMPTS = 3
"""Attempts to read a file whose bytes come with wrong checksums."""
MAX_FAILED = 1_000
"""Events that may wait to be tried again; with more the mirror stops."""
MAX_REASON = 500
"""Longest reason of a failed event, in characters."""
DELETE_REASON = "It was deleted in the store that is mirrored."

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that the API accepts."""
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class SourceEvent(Struct, frozen=True):
    """An event of the other store's feed."""

    bundle_uuid: str
    bundle_version: str
    event_type: EventType


class FeedPage(Struct, frozen=True):
    """Some events, and the cursor after them."""

    events: list[SourceEvent]
    cursor: Annotated[str, Meta(min_length=1, max_length=4096)]


class BundleEntry(Struct, frozen=True):
    """A file of a bundle of the other store."""

    uuid: str
    version: str
    name: str
    indexed: bool
    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str


class MirroredBundle(Struct, frozen=True):
    """A bundle of the other store."""

    creator_uid: Integer
    files: list[BundleEntry]


class SourceBundle(Struct, frozen=True):
    """A page of a bundle."""

    bundle: MirroredBundle


class FileHeaders(Struct, frozen=True):
    """What the other store declares about a file."""

    size: Size
    creator_uid: Integer
    content_type: str
    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str


class FailedEvent(Struct, frozen=True):
    """An event that could not be applied; the catalog keeps it to be tried again."""

    bundle: str
    event_type: EventType
    reason: str

    @property
    def fqid(self) -> FQID:
        """The bundle version."""
        return FQID.parse(self.bundle)


T = TypeVar("T")


def decode_answer(where: str, body: bytes | bytearray, expected: type[T]) -> T:
    """Decode what a store answered; Unavailable if no store answers so."""
    try:
        return msgspec.json.decode(body, type=expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unavailable(f"{where}: not a store's answer: {error}") from error


def parse_headers(where: str, values: Mapping[str, str]) -> FileHeaders:
    """Parse the headers of a file; Unavailable if no store answers so."""
    try:
        return msgspec.convert(values, FileHeaders, strict=False)
    except msgspec.ValidationError as error:
        raise Unavailable(f"{where}: not a store's answer: {error}") from error


@dataclass(frozen=True, slots=True)
class MirroredFile:
    """A file of the mirrored store; `info` declares its checksums as metadata."""

    info: BlobInfo
    creator_uid: int


class MirroredStore(Sources, Protocol):
    """The store that is mirrored; `open` reads a file by the URL that `file_url` returns."""

    def check(self) -> None:
        """Raise Unavailable unless the store answers."""

    def read_events(self, cursor: str) -> FeedPage:
        """Return the next events after a cursor, "" for the first."""

    def read_bundle(self, fqid: FQID) -> MirroredBundle:
        """Return a bundle with all its entries; NotFoundError if it is deleted."""

    def file_url(self, fqid: FQID) -> str:
        """Return the URL of a file version."""

    def read_file(self, fqid: FQID) -> MirroredFile:
        """Return the metadata of a file version."""


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """What is mirrored: the URL of the store, a replica, bundles by prefix; and for whom."""

    url: str
    replica: Replica
    owner: str
    prefix: str = ""

    @property
    def key(self) -> str:
        """The name under which the catalog keeps the place in the feed."""
        return f"mirror:{self.replica}:{self.prefix}:{self.url}"

    @property
    def failed_key(self) -> str:
        """The name under which the catalog keeps the events that failed."""
        return f"mirror-failed:{self.replica}:{self.prefix}:{self.url}"


@dataclass(slots=True)
class MirrorProgress:
    """Bundle versions copied and deleted, and the events that failed."""

    bundles: int = 0
    deleted: int = 0
    failed: list[FailedEvent] = field(default_factory=list)


def follow_page(stores: Stores, source: MirroredStore, plan: MirrorPlan) -> MirrorProgress | None:
    """Apply the next events, then save the place after them; None if there is none.

    An event that cannot be applied is saved to be tried again, and the next ones are applied.
    If the page is interrupted, the same events are applied again, which changes nothing.
    """
    with stores.catalog.read() as tx:
        store_state.check_writable(tx)
        cursor = store_state.read_value(tx, plan.key) or ""
    page = source.read_events(cursor)
    if not page.events:
        return None
    if page.cursor == cursor:
        raise Unavailable(f"{plan.url} returns events, but no new cursor.")
    events = [(_parse_bundle_fqid(event), event.event_type) for event in page.events]
    wanted = [(fqid, kind) for fqid, kind in events if fqid.uuid.startswith(plan.prefix)]
    return _apply_events(stores, source, plan, wanted, cursor=page.cursor)


def retry_failed(stores: Stores, source: MirroredStore, plan: MirrorPlan) -> MirrorProgress:
    """Apply the events again that failed."""
    failed = [(one.fqid, one.event_type) for one in list_failed(stores, plan)]
    return _apply_events(stores, source, plan, failed) if failed else MirrorProgress()


def list_failed(stores: Stores, plan: MirrorPlan) -> list[FailedEvent]:
    """Return the events that failed and were not applied since."""
    with stores.catalog.read() as tx:
        text = store_state.read_value(tx, plan.failed_key)
    return [] if text is None else msgspec.json.decode(text, type=list[FailedEvent])


def _apply_events(
    stores: Stores,
    source: MirroredStore,
    plan: MirrorPlan,
    events: Sequence[tuple[FQID, EventType]],
    cursor: str | None = None,
) -> MirrorProgress:
    """Apply events; save those that failed, and the cursor after them."""
    progress = MirrorProgress()
    failed = {one.fqid: one for one in list_failed(stores, plan)}
    for fqid, event_type in events:
        with stores.catalog.read() as tx:
            store_state.check_writable(tx)
        # A deletion also ends the attempts to copy.
        failed.pop(fqid, None)
        try:
            if event_type == "CREATE":
                progress.bundles += copy_bundle(stores, source, plan, fqid)
            else:
                progress.deleted += _delete_bundle(stores, plan, fqid)
        except DomainError as error:
            if isinstance(error, Unavailable):
                # If the whole store is away, nothing is wrong with this event.
                source.check()
            failed[fqid] = FailedEvent(str(fqid), event_type, error.detail[:MAX_REASON])
            progress.failed.append(failed[fqid])
        if len(failed) > MAX_FAILED:
            raise Unavailable(
                f"More than {MAX_FAILED} events could not be applied. The last one:"
                f" {event_type} {fqid}: {failed[fqid].reason}"
            )
    text = msgspec.json.encode([*failed.values()]).decode() if failed else None
    with stores.catalog.write() as tx:
        store_state.write_value(tx, plan.failed_key, text)
        if cursor is not None:
            store_state.write_value(tx, plan.key, cursor)
    return progress


def copy_bundle(stores: Stores, source: MirroredStore, plan: MirrorPlan, fqid: FQID) -> bool:
    """Copy a bundle version with the files that are not here; return whether it is new."""
    with stores.catalog.read() as tx:
        row, is_buried = bundle_rows.find_with_tombstone(tx, fqid)
    if is_buried or (row is not None and row.published):
        return False
    try:
        bundle = source.read_bundle(fqid)
    except NotFoundError:
        # Its deletion follows in the feed.
        return False
    entries, declared = _parse_entries(bundle.files)
    copying = replace(stores, sources=source)
    with ThreadPoolExecutor(THREADS) as pool:
        work = partial(_copy_file, copying, source, plan)
        list(pool.map(work, _find_missing(stores, declared)))
    draft = BundleDraft(fqid, plan.replica, bundle.creator_uid, entries)
    return bundles.put(stores, draft, plan.owner, request_id="mirror").created


def _parse_bundle_fqid(event: SourceEvent) -> FQID:
    return FQID(formats.parse_uuid(event.bundle_uuid), formats.parse_version(event.bundle_version))


def _parse_entries(
    files: Sequence[BundleEntry],
) -> tuple[list[NewEntry], dict[FQID, Checksums]]:
    """Return the entries of a bundle, and the checksums of its files; Invalid as in a deposit."""
    formats.check_file_names([one.name for one in files])
    entries, declared = list[NewEntry](), dict[FQID, Checksums]()
    for one in files:
        fqid = FQID(formats.parse_uuid(one.uuid), formats.parse_version(one.version))
        sums = Checksums(**{name: getattr(one, name) for name in CHECKSUM_NAMES})
        sums = checksums.parse_declared(checksum_metadata(sums))
        if declared.setdefault(fqid, sums) != sums:
            raise Invalid(f"File {fqid} has two contents in one bundle.")
        entries.append(NewEntry(one.name, fqid, one.indexed))
    return entries, declared


def _find_missing(
    stores: Stores, declared: Mapping[FQID, Checksums]
) -> Iterator[tuple[FQID, Checksums]]:
    """Yield the files that are not here; ConflictError for one that has other content here."""
    with stores.catalog.read() as tx:
        rows = {row.fqid: row for row in file_rows.find_all(tx, list(declared))}
    for fqid, sums in declared.items():
        row = rows.get(fqid)
        if row is None or not row.published:
            yield fqid, sums
        elif row.checksums != sums:
            raise ConflictError(f"File {fqid} exists with other content.")


def _copy_file(
    stores: Stores, source: MirroredStore, plan: MirrorPlan, wanted: tuple[FQID, Checksums]
) -> None:
    fqid, sums = wanted
    found = source.read_file(fqid)
    if found.info.metadata != checksum_metadata(sums):
        raise Unprocessable(f"File {fqid}: its headers contradict its bundle.")
    new = IngestRequest(fqid, plan.replica, source.file_url(fqid), found.creator_uid)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            deposit_file(stores, new, found.info, plan.owner)
            return
        except Unprocessable:
            if attempt == ATTEMPTS:
                raise


def _delete_bundle(stores: Stores, plan: MirrorPlan, fqid: FQID) -> bool:
    """Delete a version that this mirror brought; return whether it was here."""
    with stores.catalog.read() as tx:
        row, is_buried = bundle_rows.find_with_tombstone(tx, fqid)
    if is_buried:
        return False
    if row is not None and row.published and row.author != plan.owner:
        raise ConflictError(
            f"Bundle {fqid} is deleted in the other store, but {row.author} deposited it here, and"
            f" not {plan.owner}. Delete it yourself, or use `--owner {row.author}` if the mirror"
            " brought it."
        )
    try:
        jobs = bundles.delete(
            stores,
            plan.replica,
            fqid.uuid,
            fqid.version,
            reason=DELETE_REASON,
            author=plan.owner,
            request_id="mirror",
        )
    except NotFoundError:
        # It never came here.
        return False
    return bool(jobs)
