"""Reconcile an older catalog with the records in the buckets.

Nothing is notified: what a bucket has, its subscribers were told of before the catalog was lost.
Running again, or after a death, finds what was taken in already. With a bucket away it ends, and
the store stays in doubt: what that bucket holds is not known.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from pipelines import bundles, collections, copies, files, purges, records
from pipelines.collections import KIND
from pipelines.flow import Step
from pipelines.formats import new_uuid
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.manifests import tombstone_jobs
from pipelines.records import BundleRecord, CollectionRecord, FileRecord
from pipelines.recovery import bucket_reader, epochs, rebuild_journals
from pipelines.recovery.bucket_reader import RebuildRun
from storage import keys
from storage.catalog import (
    Tx,
    documents,
    events,
    heads,
    jobs,
    manifests,
    recovery,
    store_state,
    versions,
)
from storage.catalog import bundles as catalog_bundles
from storage.catalog import collections as rows
from storage.catalog import files as file_rows
from storage.catalog import purges as catalog_purges
from storage.catalog.collections import Collection
from storage.catalog.purges import Purge
from storage.catalog.versions import Tombstone
from storage.errors import DamagedObjectError, StoreError, TimedOut, Unavailable
from storage.keys import MarkerKey, RecordKey
from storage.model import FQID, REPLICAS, CollectionLink, Job, Replica
from storage.stores import Stores


def merge_bundle(
    tx: Tx, one: BundleRecord, files: Mapping[FQID, int], *, purged: bool = False
) -> catalog_bundles.BundleRow:
    """The row of a record, published; the caller holds its head, and knows the ids of the files.
    Damaged for other content than the catalog's, and where a file is not known."""
    before = catalog_bundles.find(tx, one.fqid)
    if before is not None and before.digest != one.digest:
        raise DamagedObjectError(f"The catalog knows bundle {one.fqid} with other content.")
    kept = before or catalog_bundles.insert(tx, _new_bundle(tx, one, files, purged=purged))
    if before is None:
        recovery.set_created(tx, bundles.KIND, kept.bundle.id, one.created_us)
    versions.mark_published(tx, bundles.KIND, kept.bundle.fqid)
    return kept


def _new_bundle(
    tx: Tx, one: BundleRecord, files: Mapping[FQID, int], *, purged: bool
) -> catalog_bundles.NewBundleVersion:
    """Of what is being purged some files may be gone before it; of nothing else."""
    lacking = {file for _, file, _ in one.entries if file not in files}
    if lacking and not purged:
        raise DamagedObjectError(f"{len(lacking)} files that it names have no record here.")
    rows = [(files[file], name, flag) for name, file, flag in one.entries if file not in lacking]
    return catalog_bundles.NewBundleVersion(
        fqid=one.fqid,
        digest=one.digest,
        origin=one.origin,
        creator_uid=one.creator_uid,
        author=one.author,
        parent=one.parent,
        event_id=one.event_id,
        runs=recovery.share_runs(rows, _parent_bundle_segments(tx, one), SEGMENT_ENTRIES),
    )


def _parent_bundle_segments(
    tx: Tx, one: BundleRecord
) -> list[tuple[manifests.StoredSegment, Sequence[manifests.EntryRow]]]:
    """The segments of the version that it was made from, with their entries."""
    parent = catalog_bundles.find(tx, FQID(one.fqid.uuid, one.parent)) if one.parent else None
    if parent is None:
        return []
    runs = manifests.list_segments(tx, parent.bundle.id)
    found = manifests.read_segment_rows(tx, [run.segment_id for run in runs])
    return [(run, found[run.segment_id]) for run in runs]


def import_collection(stores: Stores, replica: Replica, key: RecordKey) -> None:
    """Take one record in: its owner sees it in this replica, unless it is buried. A record is put
    only once all that it links to is in the bucket."""
    record = keys.record_key(KIND, key.fqid)
    found = records.parse_collection_record(key, bucket_reader.read_record(stores, replica, record))
    lacking = bucket_reader.find_replicas_without(stores, record)
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [key.fqid.uuid])
        collections.publish_in_replica(tx, merge_collection(tx, found), replica)
        jobs.insert_new(tx, [Job(Step.SYNC, name, f"{KIND}:{key.fqid}") for name in lacking])


def merge_collection(tx: Tx, found: CollectionRecord) -> Collection:
    """The row of a record, published; the caller holds its head. Damaged for another's, for other
    content than the catalog's, and for what was purged."""
    if catalog_purges.filter_purged(tx, KIND, [found.fqid]):
        raise DamagedObjectError(f"Collection {found.fqid} was purged.")
    before = rows.find(tx, found.fqid)
    if before is not None and before.digest != found.digest:
        raise DamagedObjectError(f"The catalog knows collection {found.fqid} with other content.")
    if rows.find_owner(tx, found.fqid.uuid) not in (None, found.owner):
        raise DamagedObjectError(
            f"The catalog knows another owner of collection {found.fqid.uuid}."
        )
    kept = before or rows.reserve(tx, _new_collection(tx, found))
    if before is None:
        recovery.set_created(tx, KIND, kept.id, found.created_us)
    versions.mark_published(tx, KIND, kept.fqid)
    return kept


def _new_collection(tx: Tx, found: CollectionRecord) -> rows.NewCollectionVersion:
    return rows.NewCollectionVersion(
        fqid=found.fqid,
        digest=found.digest,
        origin=found.origin,
        owner=found.owner,
        parent=found.parent,
        name=found.name,
        description=found.description,
        details=records.encode_details(found.details),
        event_id=found.event_id,
        runs=recovery.share_runs(
            found.contents, _parent_collection_segments(tx, found), SEGMENT_ENTRIES
        ),
    )


def _parent_collection_segments(
    tx: Tx, found: CollectionRecord
) -> list[tuple[rows.StoredLinkSegment, Sequence[CollectionLink]]]:
    """The segments of the version that it was made from, with their links."""
    parent = rows.find(tx, FQID(found.fqid.uuid, found.parent)) if found.parent else None
    runs = [] if parent is None else rows.list_link_segments(tx, parent.id)
    return [(run, run.links) for run in runs]


log = logging.getLogger(__name__)

BATCH = 500
IMPORTED_REASON = "Taken in from a bucket; to be indexed again."
Key = TypeVar("Key", RecordKey, MarkerKey)


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """What one bucket's listing of a kind told the catalog."""

    kind: str
    replica: Replica
    known: int
    imported: int
    refused: int


def reconcile_catalog(stores: Stores) -> list[ReconcileResult]:
    """Merge both buckets' listings into the catalog, and begin an epoch of its own. Unavailable,
    by the bucket's name, when one does not answer; Damaged when one has a mark that nobody gave."""
    for replica in REPLICAS:
        epochs.list_marks(stores, replica)
    done = [
        *(
            _reconcile_markers(stores, replica, keys.PURGE_MARKERS, _import_purge)
            for replica in REPLICAS
        ),
        *(
            _reconcile_markers(stores, replica, keys.TOMBSTONES, _import_tombstone)
            for replica in REPLICAS
        ),
        *(_reconcile_records(stores, kind, replica) for kind in _IMPORTERS for replica in REPLICAS),
        *(_import_journal_numbers(stores, replica) for replica in REPLICAS),
    ]
    epochs.force_new_epoch(stores)
    with stores.catalog.write() as tx:
        store_state.write_value(tx, recovery.REBUILDING_KEY, None)
    return done


def _import_journal_numbers(stores: Stores, replica: Replica) -> ReconcileResult:
    """The numbers that events were given after the catalog was copied: none is given again."""
    run = RebuildRun(stores, replica, new_uuid(), floor=0)
    try:
        found = rebuild_journals.import_journals(run)
    finally:
        run.end()
    return ReconcileResult(found.kind, replica, found.known, found.imported, found.refused)


def _reconcile_records(stores: Stores, kind: keys.Kind, replica: Replica) -> ReconcileResult:
    known, ends = 0, {True: 0, False: 0}
    take = _IMPORTERS[kind]
    listed = bucket_reader.list_bucket(stores, replica, keys.record_prefix(kind))
    for batch in _split_batches(keys.parse_record(info.key) for info in listed):
        with stores.catalog.read() as tx:
            held = recovery.filter_stored(tx, kind, replica, [key.fqid for key in batch])
        known += len(held)
        for key in batch:
            if key.fqid not in held:
                ends[_try_import(partial(take, stores, replica, key), str(key.fqid))] += 1
    return ReconcileResult(kind, replica, known, ends[True], ends[False])


def _reconcile_markers(
    stores: Stores,
    replica: Replica,
    prefix: str,
    take: Callable[[Stores, Replica, MarkerKey], None],
) -> ReconcileResult:
    known, ends = 0, {True: 0, False: 0}
    parse = keys.parse_purge_marker if prefix == keys.PURGE_MARKERS else keys.parse_tombstone
    listed = bucket_reader.list_bucket(stores, replica, prefix)
    for batch in _split_batches(parse(info.key) for info in listed):
        for key in batch:
            with stores.catalog.read() as tx:
                named = (key.kind, key.uuid, key.version or "")
                there = recovery.is_marker_known(tx, *named, purged=prefix == keys.PURGE_MARKERS)
            known += there
            if not there:
                ends[_try_import(partial(take, stores, replica, key), key.uuid)] += 1
    return ReconcileResult(prefix.rstrip("/"), replica, known, ends[True], ends[False])


def _split_batches(found: Iterator[Key | None]) -> Iterator[list[Key]]:
    rest = (key for key in found if key is not None)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _try_import(take: Callable[[], None], name: str) -> bool:
    """False, and told, for a record that is not to be believed: it stays for a human to see."""
    try:
        take()
    except (Unavailable, TimedOut):
        # That says nothing of the record.
        raise
    except StoreError as error:
        log.warning("%s is not taken in: %s", name, error.detail)
        return False
    return True


def _import_purge(stores: Stores, replica: Replica, key: MarkerKey) -> None:
    object_key = keys.purge_marker_key(key.kind, key.uuid, key.version)
    found = records.parse_purge_record(key, bucket_reader.read_record(stores, replica, object_key))
    with stores.catalog.write() as tx:
        heads.lock(tx, key.kind, [key.uuid])
        row = catalog_purges.insert(tx, found)
        recovery.set_created(tx, "purge", row.id, found.created_us)
        _hide_purged(tx, found)
        ref = f"{row.kind}:{row.name}"
        jobs.insert_new(tx, [Job(Step.MARK, name, ref) for name in REPLICAS])


def _hide_purged(tx: Tx, found: Purge) -> None:
    """What is to be purged is not seen meanwhile."""
    versions.unpublish(tx, found.kind, found.uuid, found.version or None)


def _import_tombstone(stores: Stores, replica: Replica, key: MarkerKey) -> None:
    object_key = keys.tombstone_key(key.kind, key.uuid, key.version)
    found = records.parse_tombstone_record(
        key, bucket_reader.read_record(stores, replica, object_key)
    )
    with stores.catalog.write() as tx:
        heads.lock(tx, key.kind, [key.uuid])
        stone = versions.insert_tombstone(tx, found)
        recovery.set_created(tx, "tombstone", stone.id, found.created_us)
        jobs.insert_new(tx, _hide_tombstoned(tx, stone))


def _hide_tombstoned(tx: Tx, stone: Tombstone) -> set[Job]:
    """Record its events without notifying subscribers again."""
    if stone.kind == collections.KIND:
        collections.unpublish(tx, stone.uuid)
        return set(tombstone_jobs(stone.kind, stone.uuid))
    gone = versions.unpublish(tx, stone.kind, stone.uuid, stone.version or None)
    if stone.kind != bundles.KIND:
        return set()
    follow = set(tombstone_jobs(stone.kind, stone.uuid, stone.version))
    for replica, fqid, ident in gone:
        heads.count_change(tx, stone.kind, stone.uuid)
        events.append(tx, "TOMBSTONE", replica, fqid, ident)
        follow.add(Job(Step.INDEX, replica, str(fqid)))
    return follow


def _import_file(stores: Stores, replica: Replica, key: RecordKey) -> None:
    record = keys.record_key(key.kind, key.fqid)
    found = records.parse_file_record(key, bucket_reader.read_record(stores, replica, record))
    with bucket_reader.name_failing_bucket(replica):
        blob = keys.blob_key(found.checksums.sha256)
        whole = copies.has_object_of_size(stores.replicas[replica], blob, found.size)
    lacking = [*bucket_reader.find_replicas_without(stores, record), *([] if whole else [replica])]
    with stores.catalog.write() as tx:
        heads.lock(tx, files.KIND, [key.fqid.uuid])
        purged = catalog_purges.filter_purged(tx, files.KIND, [key.fqid])
        if not purged:
            row = _merge_file(tx, found)
            if whole:
                file_rows.publish(tx, [row], replica)
            ref = f"{files.KIND}:{key.fqid}"
            jobs.insert_new(tx, [Job(Step.SYNC, name, ref) for name in lacking])
    with bucket_reader.name_failing_bucket(replica):
        purges.delete_late_records(stores, replica, files.KIND, purged)


def _merge_file(tx: Tx, found: FileRecord) -> file_rows.FileRow:
    before = file_rows.find(tx, found.fqid)
    if before is not None and before.digest != found.digest:
        raise DamagedObjectError(f"The catalog knows file {found.fqid} with other content.")
    row = before or file_rows.reserve(tx, records.make_file_row(found))
    if before is None:
        recovery.set_created(tx, "file", row.file.id, found.created_us)
    versions.mark_published(tx, files.KIND, row.file.fqid)
    return row


def _import_bundle(stores: Stores, replica: Replica, key: RecordKey) -> None:
    record = keys.record_key(key.kind, key.fqid)
    found = records.parse_bundle_record(key, bucket_reader.read_record(stores, replica, record))
    ref = f"{bundles.KIND}:{key.fqid}"
    lacking = bucket_reader.find_replicas_without(stores, record)
    with stores.catalog.write() as tx:
        heads.lock(tx, bundles.KIND, [key.fqid.uuid])
        purged = catalog_purges.filter_purged(tx, bundles.KIND, [key.fqid])
        if not purged:
            idents = recovery.find_file_ids(tx, {file for _, file, _ in found.entries})
            row = merge_bundle(tx, found, idents)
            # What would make it visible as something new, and tell of it.
            jobs.delete(tx, Job(Step.SYNC, replica, ref))
            jobs.insert_new(tx, _publish_bundle(tx, row, replica, lacking))
    with bucket_reader.name_failing_bucket(replica):
        purges.delete_late_records(stores, replica, bundles.KIND, purged)


def _publish_bundle(
    tx: Tx, row: catalog_bundles.BundleRow, replica: Replica, lacking: Sequence[Replica]
) -> list[Job]:
    """Publish it in a replica unless it is buried; index it without notifications."""
    bundle = row.bundle
    versions.record_stored(tx, bundles.KIND, bundle.id, replica)
    ref = f"{bundles.KIND}:{bundle.fqid}"
    follow = [Job(Step.SYNC, name, ref) for name in lacking]
    if versions.find_covering_tombstone(tx, bundles.KIND, *bundle.fqid):
        return follow
    versions.publish(tx, bundles.KIND, replica, bundle.fqid, bundle.id)
    change = heads.count_change(tx, bundles.KIND, bundle.fqid.uuid)
    events.append(tx, "CREATE", replica, bundle.fqid, bundle.id)
    if documents.find_state(tx, replica, bundle.id) is None:
        # A document that was there before is no news to stored queries.
        documents.record_state(
            tx,
            replica,
            bundle.id,
            state="unindexed",
            shape="",
            change=change,
            reason=IMPORTED_REASON,
        )
    return [*follow, Job(Step.INDEX, replica, str(bundle.fqid))]


_IMPORTERS: Mapping[keys.Kind, Callable[[Stores, Replica, RecordKey], None]] = {
    # In this order: what is taken in names what came before it.
    files.KIND: _import_file,
    bundles.KIND: _import_bundle,
    collections.KIND: import_collection,
}
