"""What pages show of a bundle: files by folder, metadata, and when copies were verified."""

from dataclasses import dataclass
from typing import Any

from pipelines import documents, failover
from storage import keys
from storage.catalog import bundle_contents, bundles, integrity
from storage.catalog.bundle_contents import FolderItem, ReplicaVerification
from storage.errors import DomainError, Unavailable
from storage.model import REPLICAS, BundleVersion, FileVersion, ManifestEntry, Replica
from storage.stores import Stores

METADATA_FILES_MAX = 50
METADATA_FILE_BYTES_MAX = 256 * 1024
METADATA_BYTES_MAX = 1024 * 1024
"""JSON that one page reads."""
VERIFIED_FILES_MAX = 5_000
"""Files of a bundle whose verification one page summarizes."""


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
        record = bundle_contents.find_record_verification(tx, "bundle", bundle.id)
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
