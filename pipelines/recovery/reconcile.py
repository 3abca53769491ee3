"""Reconcile an older catalog with the records in the buckets.

Nothing is notified: subscribers heard of these records before the catalog was lost. Running again
skips what is imported already. If a bucket is away, the store stays read-only: what that bucket
holds is unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from pipelines import bundles, collections, copies, files, integrity, records
from pipelines.collections import KIND
from pipelines.flow import Step
from pipelines.formats import new_uuid
from pipelines.manifests import share_runs, tombstone_jobs
from pipelines.records import BundleRecord, CollectionRecord, FileRecord
from pipelines.recovery import bucket_reader, epochs
from pipelines.recovery.bucket_reader import RebuildRun, RebuildTally
from storage import keys
from storage.catalog import Tx, documents, events, jobs, purges, recovery, store_state, versions
from storage.catalog import bundles as catalog_bundles
from storage.catalog import collections as rows
from storage.catalog import files as file_rows
from storage.catalog.collections import Collection
from storage.catalog.documents import IndexRecord
from storage.catalog.versions import Tombstone
from storage.errors import DamagedObjectError, DomainError, TimeLimitExceeded, Unavailable
from storage.keys import MarkerKey, RecordKey
from storage.model import FQID, REPLICAS, BundleVersion, FileVersion, Job, Replica
from storage.stores import Stores

BATCH = 500
IMPORTED_REASON = "Taken in from a bucket; to be indexed again."
Key = TypeVar("Key", RecordKey, MarkerKey)


def merge_bundle(
    tx: Tx, one: BundleRecord, files: Mapping[FQID, int], *, purged: bool = False
) -> BundleVersion:
    """Insert or find the row of a record, published; the caller has locked its head.

    `files` are the ids of files. DamagedObjectError if the catalog has other content, or lacks a
    file.
    """
    before = catalog_bundles.find(tx, one.fqid)
    if before is not None and before.digest != one.digest:
        raise DamagedObjectError(f"The catalog knows bundle {one.fqid} with other content.")
    kept = before or catalog_bundles.insert(tx, _new_bundle(tx, one, files, purged=purged))
    if before is None:
        recovery.set_created(tx, bundles.KIND, kept.id, one.created_us)
    versions.mark_published(tx, bundles.KIND, kept.fqid)
    return kept


def _new_bundle(
    tx: Tx, one: BundleRecord, files: Mapping[FQID, int], *, purged: bool
) -> catalog_bundles.NewBundleVersion:
    parent = catalog_bundles.find(tx, FQID(one.fqid.uuid, one.parent)) if one.parent else None
    segments = [] if parent is None else catalog_bundles.list_segments(tx, parent.id)
    shared = catalog_bundles.read_segment_rows(tx, [run.segment_id for run in segments])
    # Files of a bundle that is being purged may be gone already.
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
        runs=share_runs(rows, [(run, shared[run.segment_id]) for run in segments]),
    )


def merge_collection(tx: Tx, found: CollectionRecord) -> Collection:
    """Insert or find the row of a record, published; the caller has locked its head.

    DamagedObjectError if it was purged, or if the catalog has another owner or content.
    """
    if purges.filter_purged(tx, KIND, [found.fqid]):
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
    parent = rows.find(tx, FQID(found.fqid.uuid, found.parent)) if found.parent else None
    segments = [] if parent is None else rows.list_link_segments(tx, parent.id)
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
        runs=share_runs(found.contents, [(run, run.links) for run in segments]),
    )


def reconcile_catalog(stores: Stores) -> list[RebuildTally]:
    """Merge both buckets' listings into the catalog, and begin a new epoch.

    Unavailable if a bucket is away, DamagedObjectError for a mark that no store has made.
    """
    for replica in REPLICAS:
        epochs.list_marks(stores, replica)
    # In this order: records refer to those imported before them.
    tallies = [
        *(_reconcile_markers(stores, replica, purged=True) for replica in REPLICAS),
        *(_reconcile_markers(stores, replica, purged=False) for replica in REPLICAS),
        *(_reconcile_records(stores, kind, replica) for kind in _IMPORTERS for replica in REPLICAS),
    ]
    for replica in REPLICAS:
        # Their sequence numbers must not be assigned again.
        run = RebuildRun(stores, replica, new_uuid(), floor=0)
        try:
            tallies.append(bucket_reader.import_journals(run))
        finally:
            run.end()
    epochs.force_new_epoch(stores)
    with stores.catalog.write() as tx:
        store_state.write_value(tx, recovery.REBUILDING_KEY, None)
    return tallies


def _reconcile_records(stores: Stores, kind: keys.Kind, replica: Replica) -> RebuildTally:
    def filter_known(tx: Tx, batch: Sequence[RecordKey]) -> set[RecordKey]:
        stored = recovery.filter_stored(tx, kind, replica, [key.fqid for key in batch])
        return {key for key in batch if key.fqid in stored}

    tally = RebuildTally(kind, replica)
    prefix = keys.record_prefix(kind)
    _import_unknown(stores, tally, prefix, keys.parse_record, filter_known, _IMPORTERS[kind])
    return tally


def _reconcile_markers(stores: Stores, replica: Replica, *, purged: bool) -> RebuildTally:
    def filter_known(tx: Tx, batch: Sequence[MarkerKey]) -> set[MarkerKey]:
        find = purges.find if purged else versions.find_tombstone
        return {key for key in batch if find(tx, key.kind, key.uuid, key.version or "") is not None}

    prefix, parse, import_marker = (
        (keys.PURGE_MARKERS, keys.parse_purge_marker, _import_purge)
        if purged
        else (keys.TOMBSTONES, keys.parse_tombstone, _import_tombstone)
    )
    tally = RebuildTally(prefix.rstrip("/"), replica)
    _import_unknown(stores, tally, prefix, parse, filter_known, import_marker)
    return tally


def _import_unknown(
    stores: Stores,
    tally: RebuildTally,
    prefix: str,
    parse: Callable[[str], Key | None],
    filter_known: Callable[[Tx, Sequence[Key]], set[Key]],
    import_one: Callable[[Stores, Replica, Key], None],
) -> None:
    """Import the records under a prefix that the catalog does not know; refuse damaged ones."""
    listed = bucket_reader.list_bucket(stores, tally.replica, prefix)
    parsed = ((info.key, key) for info in listed if (key := parse(info.key)) is not None)
    while batch := dict(islice(parsed, BATCH)):
        with stores.catalog.read() as tx:
            known = filter_known(tx, list(batch.values()))
        tally.known += len(known)
        for name, key in batch.items():
            if key in known:
                continue
            try:
                import_one(stores, tally.replica, key)
                tally.imported += 1
            except (Unavailable, TimeLimitExceeded):
                # Says nothing about the record.
                raise
            except DomainError as error:
                tally.refuse(name, error.detail)


def _import_purge(stores: Stores, replica: Replica, key: MarkerKey) -> None:
    name = keys.purge_marker_key(key.kind, key.uuid, key.version)
    purge = records.parse_purge_record(key, bucket_reader.read_record(stores, replica, name))
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, key.kind, [key.uuid])
        row = purges.insert(tx, purge)
        recovery.set_created(tx, "purge", row.id, purge.created_us)
        # Hidden until the purge has deleted it.
        versions.unpublish(tx, purge.kind, purge.uuid, purge.version or None)
        ref = f"{row.kind}:{row.name}"
        jobs.insert_new(tx, [Job(Step.MARK, name, ref) for name in REPLICAS])


def _import_tombstone(stores: Stores, replica: Replica, key: MarkerKey) -> None:
    name = keys.tombstone_key(key.kind, key.uuid, key.version)
    record = records.parse_tombstone_record(key, bucket_reader.read_record(stores, replica, name))
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, key.kind, [key.uuid])
        stone = versions.insert_tombstone(tx, record)
        recovery.set_created(tx, "tombstone", stone.id, record.created_us)
        jobs.insert_new(tx, _hide_tombstoned(tx, stone))


def _hide_tombstoned(tx: Tx, stone: Tombstone) -> set[Job]:
    """Unpublish versions, and record their events without notifications; return the jobs."""
    if stone.kind == collections.KIND:
        collections.unpublish(tx, stone.uuid)
        return set(tombstone_jobs(stone.kind, stone.uuid))
    gone = versions.unpublish(tx, stone.kind, stone.uuid, stone.version or None)
    if stone.kind != bundles.KIND:
        return set()
    follow = set(tombstone_jobs(stone.kind, stone.uuid, stone.version))
    for replica, fqid, ident in gone:
        versions.count_change(tx, stone.kind, stone.uuid)
        events.append(tx, "TOMBSTONE", replica, fqid, ident)
        follow.add(Job(Step.INDEX, replica, str(fqid)))
    return follow


def _import_file(stores: Stores, replica: Replica, key: RecordKey) -> None:
    name = keys.record_key(key.kind, key.fqid)
    record = records.parse_file_record(key, bucket_reader.read_record(stores, replica, name))
    with bucket_reader.name_failing_bucket(replica):
        blob = keys.blob_key(record.checksums.sha256)
        is_whole = copies.has_object_of_size(stores.replicas[replica], blob, record.size)
    lacking = [*bucket_reader.find_replicas_without(stores, name), *([] if is_whole else [replica])]
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, files.KIND, [key.fqid.uuid])
        purged = purges.filter_purged(tx, files.KIND, [key.fqid])
        if not purged:
            row = _merge_file(tx, record)
            if is_whole:
                file_rows.publish(tx, [row], replica)
            jobs.insert_new(tx, _sync_jobs(key, lacking))
    with bucket_reader.name_failing_bucket(replica):
        integrity.delete_late_records(stores, replica, files.KIND, purged)


def _sync_jobs(key: RecordKey, lacking: Sequence[Replica]) -> list[Job]:
    return [Job(Step.SYNC, replica, f"{key.kind}:{key.fqid}") for replica in lacking]


def _merge_file(tx: Tx, found: FileRecord) -> FileVersion:
    before = file_rows.find(tx, found.fqid)
    if before is not None and before.digest != found.digest:
        raise DamagedObjectError(f"The catalog knows file {found.fqid} with other content.")
    row = before or file_rows.reserve(tx, records.make_file_row(found))
    if before is None:
        recovery.set_created(tx, "file", row.id, found.created_us)
    versions.mark_published(tx, files.KIND, row.fqid)
    return row


def _import_bundle(stores: Stores, replica: Replica, key: RecordKey) -> None:
    name = keys.record_key(key.kind, key.fqid)
    record = records.parse_bundle_record(key, bucket_reader.read_record(stores, replica, name))
    lacking = bucket_reader.find_replicas_without(stores, name)
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, bundles.KIND, [key.fqid.uuid])
        purged = purges.filter_purged(tx, bundles.KIND, [key.fqid])
        if not purged:
            idents = recovery.find_file_ids(tx, {file for _, file, _ in record.entries})
            row = merge_bundle(tx, record, idents)
            # Its sync would publish it as new, and notify subscribers.
            jobs.delete(tx, Job(Step.SYNC, replica, f"{key.kind}:{key.fqid}"))
            jobs.insert_new(tx, _sync_jobs(key, lacking))
            _publish_bundle(tx, row, replica)
    with bucket_reader.name_failing_bucket(replica):
        integrity.delete_late_records(stores, replica, bundles.KIND, purged)


def _publish_bundle(tx: Tx, bundle: BundleVersion, replica: Replica) -> None:
    """Publish and index a bundle without notifications, unless it is under a tombstone."""
    versions.record_stored(tx, bundles.KIND, bundle.id, replica)
    if versions.find_covering_tombstone(tx, bundles.KIND, *bundle.fqid):
        return
    versions.publish(tx, bundles.KIND, replica, bundle.fqid, bundle.id)
    change = versions.count_change(tx, bundles.KIND, bundle.fqid.uuid)
    events.append(tx, "CREATE", replica, bundle.fqid, bundle.id)
    if not documents.find_states(tx, replica, [bundle.id]):
        # With a state, INDEX does not evaluate stored queries.
        state = IndexRecord(bundle.id, "unindexed", "", change, IMPORTED_REASON)
        documents.record_states(tx, replica, [state])
    jobs.insert_new(tx, [Job(Step.INDEX, replica, str(bundle.fqid))])


def _import_collection(stores: Stores, replica: Replica, key: RecordKey) -> None:
    """Import a collection; its record is put only after everything that it links to."""
    name = keys.record_key(key.kind, key.fqid)
    record = records.parse_collection_record(key, bucket_reader.read_record(stores, replica, name))
    lacking = bucket_reader.find_replicas_without(stores, name)
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, key.kind, [key.fqid.uuid])
        collections.publish_in_replica(tx, merge_collection(tx, record), replica)
        jobs.insert_new(tx, _sync_jobs(key, lacking))


_IMPORTERS: Mapping[keys.Kind, Callable[[Stores, Replica, RecordKey], None]] = {
    files.KIND: _import_file,
    bundles.KIND: _import_bundle,
    collections.KIND: _import_collection,
}
