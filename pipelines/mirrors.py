"""Mirror another store: follow its event feed, and put its bundles and files here.

Files and bundles keep uuid, version and checksums. Every byte is verified when it is stored here.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from pipelines import bundles
from pipelines.area_files import checksum_metadata
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.imports import deposit_file
from pipelines.ingest import IngestRequest
from storage.catalog import bundles as bundle_rows
from storage.catalog import files as file_rows
from storage.catalog import store_state
from storage.errors import ConflictError, NotFoundError, Unprocessable
from storage.model import CHECKSUM_NAMES, FQID, Checksums, Replica
from storage.protocols import BlobInfo, Sources
from storage.stores import Stores

THREADS = 4
"""Files of a bundle that are read concurrently."""
ATTEMPTS = 3
"""Attempts to read a file whose bytes come with wrong checksums."""
DELETE_REASON = "It was deleted in the store that is mirrored."


@dataclass(frozen=True, slots=True)
class MirroredFile:
    """A file of the mirrored store; `info` declares its checksums as metadata."""

    info: BlobInfo
    creator_uid: int


class MirroredStore(Sources, Protocol):
    """The store that is mirrored; `open` reads a file by the URL that `file_url` returns."""

    def read_events(self, cursor: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        """Return the next events after a cursor, "" for the first, and the cursor after them."""

    def read_bundle(self, fqid: FQID) -> Mapping[str, Any]:
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


def follow_page(stores: Stores, source: MirroredStore, plan: MirrorPlan) -> dict[str, int] | None:
    """Apply the next events, then save the place after them; return counts, None if there is none.

    If it is interrupted, the same events are applied again, which changes nothing.
    """
    with stores.catalog.read() as tx:
        cursor = store_state.read_value(tx, plan.key) or ""
    events, following = source.read_events(cursor)
    if not events:
        return None
    counts = {"bundles": 0, "deleted": 0}
    for event in events:
        fqid = FQID(event["bundle_uuid"], event["bundle_version"])
        if not fqid.uuid.startswith(plan.prefix):
            continue
        if event["event_type"] == "CREATE":
            counts["bundles"] += copy_bundle(stores, source, plan, fqid)
        else:
            counts["deleted"] += _delete_bundle(stores, plan, fqid)
    with stores.catalog.write() as tx:
        store_state.write_value(tx, plan.key, following)
    return counts


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
    entries = bundle["files"]
    fqids = {FQID(one["uuid"], one["version"]): one for one in entries}
    copying = replace(stores, sources=source)
    with ThreadPoolExecutor(THREADS) as pool:
        work = partial(_copy_file, copying, source, plan)
        list(pool.map(work, _find_missing(stores, fqids)))
    draft = BundleDraft(
        fqid,
        plan.replica,
        bundle["creator_uid"],
        [
            NewEntry(one["name"], FQID(one["uuid"], one["version"]), one["indexed"])
            for one in entries
        ],
    )
    return bundles.put(stores, draft, plan.owner, request_id="mirror").created


def _find_missing(
    stores: Stores, entries: Mapping[FQID, Mapping[str, Any]]
) -> Iterator[tuple[FQID, Checksums]]:
    """Yield the files that are not here; ConflictError for one that has other content here."""
    with stores.catalog.read() as tx:
        rows = {row.fqid: row for row in file_rows.find_all(tx, list(entries))}
    for fqid, entry in entries.items():
        sums, row = Checksums(**{name: entry[name] for name in CHECKSUM_NAMES}), rows.get(fqid)
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
