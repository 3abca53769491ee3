"""Rebuild a lost catalog from the records of one bucket.

Records come by uuid, then version, so that a version finds its parent and shares its segments.
Events that are in no journal are recorded with the same ids as before, without notifications.
Purges and tombstones continue where they were; documents are indexed again.

Meanwhile the catalog has an epoch that no bucket has: the store is read-only, and nothing is
numbered, sent or deleted until `reconcile` has merged the other bucket. An interrupted rebuild
continues when it is started again; a rebuild from the other bucket adds to the first.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pipelines import bundles, collections, files, manifests, records
from pipelines.flow import Step
from pipelines.records import BundleRecord, CollectionRecord, FileRecord
from pipelines.recovery import bucket_reader, epochs, reconcile
from pipelines.recovery.bucket_reader import (
    FOREIGN_NAME,
    LEASE,
    LEASE_S,
    RebuildRun,
    RebuildTally,
    Record,
    import_batch,
    list_batches,
)
from pipelines.recovery.reconcile import IMPORTED_REASON
from storage import keys
from storage.catalog import (
    Tx,
    documents,
    events,
    jobs,
    now_us,
    purges,
    recovery,
    store_state,
    versions,
)
from storage.catalog import files as file_rows
from storage.catalog.purges import Purge
from storage.catalog.versions import Tombstone
from storage.errors import ConflictError, DamagedObjectError
from storage.keys import MarkerKey, RecordKey
from storage.model import FQID, REPLICAS, BundleEvent, EventType, Job, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

BLOB_BATCH = 1_000
"""Blobs, or files, of one transaction."""
PAGE_SIZE = 500
FAR_FUTURE_US = 2**62
READ_ONLY_REASON = "The catalog is being rebuilt. Run `python -m ops reconcile` when that is done."

Item = TypeVar("Item")
Cursor = TypeVar("Cursor")


def _import_markers(
    run: RebuildRun,
    kind: str,
    prefix: str,
    parse_key: Callable[[str], MarkerKey | None],
    parse: Callable[[MarkerKey, bytes], Record],
    save: Callable[[RebuildRun, Tx, Sequence[Record]], None],
) -> RebuildTally:
    tally = RebuildTally(kind, run.replica)
    for batch in list_batches(run, prefix, parse_key, tally):
        import_batch(run, batch, parse, save, tally)
    return tally


def _import_versions(
    run: RebuildRun,
    kind: keys.Kind,
    parse: Callable[[RecordKey, bytes], Record],
    save: Callable[[RebuildRun, Tx, Sequence[Record]], None],
) -> RebuildTally:
    """Import the versions that the catalog does not have in this bucket."""
    tally = RebuildTally(kind, run.replica)
    for batch in list_batches(run, keys.record_prefix(kind), keys.parse_record, tally):
        with run.stores.catalog.read() as tx:
            known = recovery.filter_stored(tx, kind, run.replica, [key.fqid for key, _ in batch])
        tally.known += len(known)
        unknown = [(key, name) for key, name in batch if key.fqid not in known]
        import_batch(run, unknown, parse, save, tally)
    return tally


def _read_pages(
    run: RebuildRun,
    read: Callable[[Tx, Cursor], list[Item]],
    after: Cursor,
    cursor: Callable[[Item], Cursor],
) -> Iterator[list[Item]]:
    """Yield pages of rows; no transaction is open in between."""
    while True:
        with run.stores.catalog.read() as tx:
            page = read(tx, after)
        if not page:
            return
        yield page
        after = cursor(page[-1])


def _save_purges(run: RebuildRun, tx: Tx, batch: Sequence[Purge]) -> None:
    _lock_heads(tx, batch)
    recovery.insert_purges(tx, batch, run.replica)


def _lock_heads(tx: Tx, batch: Sequence[Purge] | Sequence[Tombstone]) -> None:
    for kind in keys.KINDS:
        uuids = [one.uuid for one in batch if one.kind == kind]
        if uuids:
            versions.lock_heads(tx, kind, uuids)


def _save_tombstones(run: RebuildRun, tx: Tx, batch: Sequence[Tombstone]) -> None:
    _lock_heads(tx, batch)
    recovery.insert_tombstones(tx, batch)
    idents: list[int] = []
    for one in batch:
        row = versions.find_tombstone(tx, one.kind, one.uuid, one.version)
        if row is None or row.digest != one.digest:
            raise DamagedObjectError("The catalog has a tombstone with another reason.")
        idents.append(row.id)
    recovery.record_stored(tx, "tombstone", run.replica, idents)


def _save_files(run: RebuildRun, tx: Tx, batch: Sequence[FileRecord]) -> None:
    versions.lock_heads(tx, files.KIND, [one.fqid.uuid for one in batch])
    recovery.insert_files(tx, [(records.make_file_row(one), one.created_us) for one in batch])
    known = recovery.find_digests(tx, files.KIND, [one.fqid for one in batch])
    for one in batch:
        if known.get(one.fqid, (0, ""))[1] != one.digest:
            raise DamagedObjectError(f"The catalog knows file {one.fqid} with other content.")
    recovery.record_stored(tx, files.KIND, run.replica, [known[one.fqid][0] for one in batch])


def import_blobs(run: RebuildRun) -> RebuildTally:
    """Record the blobs of the bucket; publish files that have theirs, sync the others."""
    tally = RebuildTally("blob", run.replica)
    for batch in _list_blob_batches(run, tally):
        with run.transaction() as tx:
            recovery.record_stored_blobs(tx, run.replica, batch)
        tally.imported += len(batch)
    for page in _read_pages(
        run,
        lambda tx, after: recovery.list_stored_files(tx, run.replica, after, limit=BLOB_BATCH),
        0,
        lambda row: row[0],
    ):
        _publish_files(run, page, tally)
    return tally


def _list_blob_batches(run: RebuildRun, tally: RebuildTally) -> Iterator[list[tuple[str, int]]]:
    """Yield batches of checksums and sizes of the bucket's blobs."""
    batch: list[tuple[str, int]] = []
    for info in run.stores.replicas[run.replica].list(keys.BLOBS):
        sha256 = keys.parse_blob(info.key)
        if sha256 is None or info.damaged:
            tally.refuse(info.key, FOREIGN_NAME if sha256 is None else "It is damaged.")
            continue
        batch.append((sha256, info.size))
        if len(batch) == BLOB_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _publish_files(
    run: RebuildRun, page: Sequence[tuple[int, FQID, bool]], tally: RebuildTally
) -> None:
    with run.transaction() as tx:
        versions.lock_heads(tx, files.KIND, [fqid.uuid for _, fqid, _ in page])
        purged = purges.filter_purged(tx, files.KIND, [fqid for _, fqid, _ in page])
        recovery.publish_versions(
            tx,
            files.KIND,
            run.replica,
            [(ident, fqid) for ident, fqid, whole in page if whole and fqid not in purged],
        )
        lacking = [(ident, fqid) for ident, fqid, whole in page if not whole]
        for ident, _ in lacking:
            versions.delete_stored(tx, files.KIND, ident, run.replica)
        wanted = [fqid for _, fqid in lacking if fqid not in purged]
        rows = [Job(Step.SYNC, run.replica, f"{files.KIND}:{fqid}") for fqid in wanted]
        jobs.insert_new(tx, rows)
    for fqid in wanted:
        tally.refuse(keys.record_key("file", fqid), "Its bytes are not in this bucket.")


def _save_bundles(run: RebuildRun, tx: Tx, batch: Sequence[BundleRecord]) -> None:
    kind = bundles.KIND
    versions.lock_heads(tx, kind, [one.fqid.uuid for one in batch])
    recovery.raise_changes(tx, kind, [one.fqid.uuid for one in batch], run.floor)
    fqids = [one.fqid for one in batch]
    buried = recovery.filter_tombstoned(tx, kind, fqids)
    purged = set(purges.filter_purged(tx, kind, fqids))
    files = recovery.find_file_ids(tx, {file for one in batch for _, file, _ in one.entries})
    whole = []
    for one in batch:
        ident = reconcile.merge_bundle(tx, one, files, purged=one.fqid in purged).id
        # Files that still exist must be complete in this bucket.
        named = {files[file] for _, file, _ in one.entries if file in files}
        if len(file_rows.filter_published_ids(tx, run.replica, sorted(named))) == len(named):
            whole.append((ident, one.fqid))
        elif one.fqid not in purged:
            jobs.insert_new(tx, [Job(Step.SYNC, run.replica, f"{kind}:{one.fqid}")])
    recovery.record_stored(tx, kind, run.replica, [ident for ident, _ in whole])
    shown = [(ident, fqid) for ident, fqid in whole if fqid not in buried | purged]
    recovery.publish_versions(tx, kind, run.replica, shown)


def _save_collections(run: RebuildRun, tx: Tx, batch: Sequence[CollectionRecord]) -> None:
    versions.lock_heads(tx, collections.KIND, [one.fqid.uuid for one in batch])
    purged = purges.filter_purged(tx, collections.KIND, [one.fqid for one in batch])
    # The steps of the purge erase the records of purged collections; they need no row.
    for one in (one for one in batch if one.fqid not in purged):
        collections.publish_in_replica(tx, reconcile.merge_collection(tx, one), run.replica)


def complete_rebuild(run: RebuildRun) -> RebuildTally:
    """Restore events, index jobs, tombstones and purges; idempotent."""
    tally = RebuildTally("event", run.replica)
    for fqids in _read_pages(
        run,
        lambda tx, after: versions.list_published_after(
            tx, bundles.KIND, after, before_us=FAR_FUTURE_US, limit=PAGE_SIZE
        ),
        FQID("", ""),
        lambda fqid: fqid,
    ):
        with run.transaction() as tx:
            versions.lock_heads(tx, bundles.KIND, [fqid.uuid for fqid in fqids])
            _append_events(tx, _list_missing_events(run, tx, fqids), tally)
            _enqueue_indexing(run, tx, fqids)
    for stones in _read_pages(
        run,
        lambda tx, after: recovery.list_tombstones(tx, after, limit=PAGE_SIZE),
        0,
        lambda stone: stone.id,
    ):
        with run.transaction() as tx:
            follow = [
                job
                for stone in stones
                for job in manifests.tombstone_jobs(stone.kind, stone.uuid, stone.version)
            ]
            jobs.insert_new(tx, follow)
    for page in _read_pages(
        run,
        lambda tx, after: recovery.list_purges(tx, after, limit=PAGE_SIZE),
        0,
        lambda purge: purge.id,
    ):
        with run.transaction() as tx:
            _resume_purges(tx, page, tally)
    return tally


def _list_missing_events(run: RebuildRun, tx: Tx, page: Sequence[FQID]) -> list[BundleEvent]:
    """Return the events that these bundles had."""
    kind = bundles.KIND
    here = recovery.filter_stored(tx, kind, run.replica, page)
    buried = recovery.filter_tombstoned(tx, kind, page)
    purged = set(purges.filter_purged(tx, kind, page))
    wanted = [_build_event("CREATE", run.replica, fqid) for fqid in sorted(here - buried - purged)]
    return [
        *wanted,
        *_list_end_events(tx, "TOMBSTONE", sorted(buried)),
        *_list_end_events(tx, "DELETE", sorted(purged)),
    ]


def _list_end_events(tx: Tx, kind: EventType, fqids: Sequence[FQID]) -> list[BundleEvent]:
    """Return the events that ended versions, in each replica that had published them."""
    begun = [_build_event("CREATE", replica, fqid) for fqid in fqids for replica in REPLICAS]
    known = events.filter_existing(tx, [event.id for event in begun])
    return [_build_event(kind, one.replica, one.fqid) for one in begun if one.id in known]


def _build_event(kind: EventType, replica: str, fqid: FQID) -> BundleEvent:
    name = next(one for one in REPLICAS if one == replica)
    return BundleEvent(events.make_event_id(kind, name, fqid), name, kind, fqid, 0, 0)


def _append_events(tx: Tx, wanted: Sequence[BundleEvent], tally: RebuildTally) -> None:
    """Append those events that no journal had."""
    named = {event.id for event in wanted}
    lacking = named - events.filter_existing(tx, named)
    idents = recovery.find_digests(tx, bundles.KIND, [event.fqid for event in wanted])
    for event in wanted:
        if event.id in lacking:
            ident = idents.get(event.fqid, (0, ""))[0]
            events.append(tx, event.type, event.replica, event.fqid, ident)
    tally.imported += len(lacking)
    tally.known += len(wanted) - len(lacking)


def _enqueue_indexing(run: RebuildRun, tx: Tx, page: Sequence[FQID]) -> None:
    """Index every bundle again: the index may not agree with the catalog.

    Stored queries are not evaluated again.
    """
    here = sorted(recovery.filter_stored(tx, bundles.KIND, run.replica, page))
    idents = recovery.find_digests(tx, bundles.KIND, here)
    documents.record_unindexed(
        tx,
        run.replica,
        [idents[fqid][0] for fqid in here],
        change=run.floor,
        reason=IMPORTED_REASON,
    )
    jobs.insert_new(tx, [Job(Step.INDEX, run.replica, str(fqid)) for fqid in here])


def _resume_purges(tx: Tx, page: Sequence[Purge], tally: RebuildTally) -> None:
    """Run unfinished purges to their end again: what the other bucket holds is unknown."""
    deleted = [
        FQID(purge.uuid, purge.version)
        for purge in page
        if purge.kind == bundles.KIND and purge.version
    ]
    _append_events(tx, _list_end_events(tx, "DELETE", deleted), tally)
    rows = [
        Job(Step.MARK, replica, f"{purge.kind}:{purge.name}")
        for purge in page
        if purge.finished_us is None
        for replica in REPLICAS
    ]
    jobs.insert_new(tx, rows)


PHASES: tuple[Callable[[RebuildRun], RebuildTally], ...] = (
    # In this order: records refer to those imported before them.
    lambda run: _import_markers(
        run,
        "purged",
        keys.PURGE_MARKERS,
        keys.parse_purge_marker,
        records.parse_purge_record,
        _save_purges,
    ),
    lambda run: _import_markers(
        run,
        "tombstones",
        keys.TOMBSTONES,
        keys.parse_tombstone,
        records.parse_tombstone_record,
        _save_tombstones,
    ),
    # Files are hidden until `import_blobs` has found their bytes.
    lambda run: _import_versions(run, files.KIND, records.parse_file_record, _save_files),
    import_blobs,
    lambda run: _import_versions(run, bundles.KIND, records.parse_bundle_record, _save_bundles),
    lambda run: _import_versions(
        run, collections.KIND, records.parse_collection_record, _save_collections
    ),
    bucket_reader.import_journals,
    complete_rebuild,
)


def rebuild_catalog(stores: Stores, replica: Replica, *, token: str) -> Iterator[RebuildTally]:
    """Fill the catalog from one bucket; yield the tally of each phase.

    ConflictError for a catalog with other data, Unavailable if the bucket is away: start again
    later.
    """
    last = max(epochs.list_marks(stores, replica), default="")
    with stores.catalog.write() as tx:
        if not store_state.acquire_lease(tx, LEASE, token=token, lease_s=LEASE_S):
            raise ConflictError("Another rebuild of this catalog is running.")
        if store_state.read_value(tx, recovery.REBUILDING_KEY) is None:
            _mark_rebuilding(tx, last, token)
        floor = int(store_state.read_value(tx, recovery.REBUILDING_KEY) or 0)
    run = RebuildRun(stores, replica, token, floor)
    try:
        for phase in PHASES:
            tally = phase(run)
            log.info("rebuild: %s", tally)
            yield tally
    finally:
        run.end()


def _mark_rebuilding(tx: Tx, last: str, token: str) -> None:
    if recovery.has_any_rows(tx):
        raise ConflictError(
            "The catalog is not empty: `reconcile` imports what it lacks, a rebuild needs an empty"
            " one."
        )
    versions.lock_heads(tx, "epoch", ["mark"])
    # Change counts start above everything that a search index has seen.
    store_state.write_value(tx, recovery.REBUILDING_KEY, str(now_us(tx)))
    recovery.begin_unmarked_epoch(tx, f"{int(last.partition('-')[0] or 0) + 1:020d}-{token}")
    store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, READ_ONLY_REASON)
