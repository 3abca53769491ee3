"""What pages show of a bundle: files, metadata, verification, and what refers to it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelines import documents, failover
from pipelines.matching import Clock, evaluate_event
from pipelines.queries.stored_queries import StoredQuerySet
from storage import keys
from storage.catalog import (
    bundle_contents,
    bundles,
    collections,
    events,
    integrity,
    subscriptions,
)
from storage.catalog.bundle_contents import FolderItem, ReplicaVerification
from storage.catalog.collections import Collection
from storage.catalog.events import EVENT_TYPES
from storage.catalog.subscriptions import ELASTICSEARCH, JMESPATH, Subscription
from storage.errors import DomainError, TimeLimitExceeded, Unavailable
from storage.model import (
    FQID,
    REPLICAS,
    BundleEvent,
    BundleVersion,
    FileVersion,
    ManifestEntry,
    Replica,
)
from storage.stores import Stores

METADATA_FILES_MAX = 50
METADATA_FILE_BYTES_MAX = 256 * 1024
METADATA_BYTES_MAX = 1024 * 1024
"""JSON that one page reads."""
VERIFIED_FILES_MAX = 5_000
"""Files of a bundle whose verification one page summarizes."""
EVENT_VERSIONS_MAX = 50
"""Versions whose events one page shows."""
MATCHED_FILES_MAX = 2_000
"""Files of a bundle that is matched while a reader waits."""
COLLECTIONS_MAX = 200
"""Collections of one owner that are looked through."""


def list_folder(
    stores: Stores, bundle: BundleVersion, prefix: str, *, after: str = "", limit: int
) -> list[FolderItem]:
    """List the folders and files directly below a prefix, in byte order, after a given name."""
    with stores.catalog.read() as tx:
        return bundle_contents.list_folder(tx, bundle.id, prefix, after=after, limit=limit)


def measure_size(stores: Stores, bundle: BundleVersion) -> int:
    """Return the bytes of all files of a bundle."""
    with stores.catalog.read() as tx:
        return bundles.sum_bytes(tx, bundle.id)


# Metadata ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """An indexed JSON file with its value, or why that is not shown."""

    entry: ManifestEntry
    value: Any = None
    problem: str | None = None
    is_away: bool = False
    """Whether its bucket did not answer."""

    @property
    def key(self) -> str:
        """Its key in the search document, below `files`."""
        return documents.document_key(self.entry.name)


def read_metadata(stores: Stores, replica: Replica, bundle: BundleVersion) -> list[MetadataFile]:
    """Return the first metadata files of a bundle, as far as one page shows them.

    A bucket that does not answer becomes the `problem` of its files.
    """
    with stores.catalog.read() as tx:
        entries = bundle_contents.list_metadata_entries(tx, bundle.id, limit=METADATA_FILES_MAX)
    room = METADATA_BYTES_MAX
    found: list[MetadataFile] = []
    problem: str | None = None
    for entry in entries:
        if entry.size > min(room, METADATA_FILE_BYTES_MAX):
            found.append(MetadataFile(entry, problem="Too large to be shown here."))
            continue
        room -= entry.size
        if problem is None:
            found.append(_read_metadata_file(stores, replica, entry))
            problem = found[-1].problem if found[-1].is_away else None
        else:
            found.append(MetadataFile(entry, problem=problem, is_away=True))
    return found


def _read_metadata_file(stores: Stores, replica: Replica, entry: ManifestEntry) -> MetadataFile:
    try:
        content = failover.read_blob_soon(stores, replica, entry.checksums.sha256)
        return MetadataFile(entry, documents.parse_metadata(content)[0])
    except documents.UnreadableMetadata as error:
        return MetadataFile(entry, problem=f"Not readable: {error}.")
    except DomainError as error:
        return MetadataFile(entry, problem=error.detail, is_away=isinstance(error, Unavailable))


# Verification ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BundleVerification:
    """When a bundle's record and the bytes of its files were verified, by replica.

    `files` is None where the bundle has too many files.
    """

    record: dict[Replica, ReplicaVerification]
    files: dict[Replica, ReplicaVerification] | None


def find_bundle_verification(stores: Stores, bundle: BundleVersion) -> BundleVerification:
    """Return when a bundle was verified in each replica."""
    with stores.catalog.read() as tx:
        record = bundle_contents.find_record_verification(tx, bundle.id)
        files = (
            bundle_contents.summarize_verification(tx, bundle.id)
            if bundle.file_count <= VERIFIED_FILES_MAX
            else None
        )
    return BundleVerification(record, files)


@dataclass(frozen=True, slots=True)
class FileVerification:
    """When a file's bytes were stored and verified in a replica, and what is wrong with them."""

    stored_us: int | None
    verified_us: int | None
    damage: str | None


def find_file_verification(stores: Stores, file: FileVersion) -> dict[Replica, FileVerification]:
    """Return how each replica's copy of a file's bytes is."""
    key = keys.blob_key(file.checksums.sha256)
    with stores.catalog.read() as tx:
        stored = bundle_contents.find_blob_verification(tx, file.blob_id)
        damaged = {name: integrity.filter_damaged(tx, name, [key]).get(key) for name in REPLICAS}
    return {
        name: FileVerification(
            stored[name].stored_us if name in stored else None,
            stored[name].verified_us if name in stored else None,
            damaged[name],
        )
        for name in REPLICAS
    }


# References --------------------------------------------------------------------------------


def list_events(stores: Stores, fqids: Sequence[FQID]) -> list[BundleEvent]:
    """List the events of a few versions in every replica, the latest first."""
    idents = [
        events.make_event_id(kind, replica, fqid)
        for fqid in fqids[:EVENT_VERSIONS_MAX]
        for replica in REPLICAS
        for kind in EVENT_TYPES
    ]
    with stores.catalog.read() as tx:
        found = events.find_all(tx, idents) if idents else []
    return sorted(found, key=lambda event: (event.at_us, event.replica), reverse=True)


def list_collections(stores: Stores, owner: str, fqid: FQID) -> list[Collection]:
    """List the owner's collections whose latest version contains a bundle.

    Of those of the first COLLECTIONS_MAX collections.
    """
    with stores.catalog.read() as tx:
        return collections.list_containing(tx, owner, "bundle", fqid, limit=COLLECTIONS_MAX)


def list_own_collections(
    stores: Stores, owner: str, *, after: str = "", limit: int = COLLECTIONS_MAX
) -> list[Collection]:
    """List the latest versions of the owner's collections, by uuid, after a given uuid."""
    with stores.catalog.read() as tx:
        return collections.list_latest(tx, owner, after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class SubscriptionMatches:
    """The subscriptions that match a bundle, and why others may be missing."""

    subscriptions: list[Subscription]
    problem: str | None = None


def find_matching_subscriptions(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    owner: str,
    *,
    time_s: float,
    clock: Clock,
) -> SubscriptionMatches:
    """Return the owner's subscriptions whose queries match a bundle, whenever they were made."""
    with stores.catalog.read() as tx:
        own = [
            row
            for kind in (JMESPATH, ELASTICSEARCH)
            for row in subscriptions.list_by_owner(tx, owner, replica, kind)
        ]
    if not own:
        return SubscriptionMatches([])
    if bundle.file_count > MATCHED_FILES_MAX:
        return SubscriptionMatches([], "The bundle has too many files to be matched here.")
    end = clock() + time_s

    def check_time(_moved: int) -> None:
        if clock() > end:
            raise TimeLimitExceeded("The evaluation took too long.")

    queries = StoredQuerySet(replace(row, created_us=0) for row in own)
    event_id = events.make_event_id("CREATE", replica, bundle.fqid)
    event = BundleEvent(event_id, replica, "CREATE", bundle.fqid, bundle.id, bundle.created_us)
    try:
        document = documents.load_small_document(stores, replica, bundle, check_time)
        if document is None:
            return SubscriptionMatches([], "The bundle's metadata is too large to be matched here.")
        matches = {
            delivery.subscription_id
            for delivery in evaluate_event(
                queries,
                event,
                document,
                base_url=stores.base_url,
                steps=stores.max_query_steps,
                beat=check_time,
            )
            if delivery.failure is None
        }
    except DomainError as error:
        return SubscriptionMatches([], error.detail)
    return SubscriptionMatches([row for row in own if row.id in matches])
