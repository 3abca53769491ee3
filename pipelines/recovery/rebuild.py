"""Rebuild a lost catalog from the records of one bucket.

Records come by uuid, then version, so that a version finds its parent and shares its segments.

Events that no journal has are recorded, the same ids as before, and nobody is told of them again;
what was going on, purges and records of tombstones, is driven on; documents are to be indexed.

The catalog is of an epoch that no bucket knows while it is filled: the store is read-only, nothing
is numbered, sent or deleted, until `reconcile` has merged what the other bucket tells. A rebuild
that died, or met a bucket that was away, is begun again; the other bucket's adds to the first's.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

from pipelines import bundles, collections, files, manifests, records
from pipelines.flow import Step
from pipelines.records import BundleRecord, CollectionRecord, FileRecord
from pipelines.recovery import epochs, rebuild_journals, reconcile
from pipelines.recovery.bucket_reader import (
    LEASE,
    LEASE_S,
    ListedRecord,
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
    heads,
    jobs,
    journals,
    now_us,
    purges,
    recovery,
    store_state,
    versions,
)
from storage.catalog import files as file_rows
from storage.catalog.purges import Purge
from storage.catalog.versions import Tombstone
from storage.errors import Conflict, DamagedObjectError
from storage.keys import RecordKey
from storage.model import FQID, REPLICAS, BundleEvent, EventType, Job, Replica
from storage.stores import Stores

BLOB_BATCH = 1_000
"""Blobs, or rows, of one unit of work."""


def import_purges(run: RebuildRun) -> RebuildTally:
    """What is purged, or about to be."""
    tally = RebuildTally("purged", run.replica)
    for batch in list_batches(run, keys.PURGE_MARKERS, keys.parse_purge_marker, tally):
        import_batch(run, batch, records.parse_purge_record, _save_purges, tally)
    return tally


def _save_purges(run: RebuildRun, tx: Tx, batch: Sequence[Purge]) -> None:
    _lock_heads(tx, batch)
    recovery.insert_purges(tx, batch, run.replica)


def _lock_heads(tx: Tx, batch: Sequence[Purge] | Sequence[Tombstone]) -> None:
    for kind in keys.KINDS:
        uuids = [one.uuid for one in batch if one.kind == kind]
        if uuids:
            heads.lock(tx, kind, uuids)


def import_tombstones(run: RebuildRun) -> RebuildTally:
    """What readers no longer see."""
    tally = RebuildTally("tombstones", run.replica)
    for batch in list_batches(run, keys.TOMBSTONES, keys.parse_tombstone, tally):
        import_batch(run, batch, records.parse_tombstone_record, _save_tombstones, tally)
    return tally


def _save_tombstones(run: RebuildRun, tx: Tx, batch: Sequence[Tombstone]) -> None:
    _lock_heads(tx, batch)
    recovery.insert_tombstones(tx, batch)
    found = [_find_tombstone(tx, one) for one in batch]
    recovery.record_stored(tx, "tombstone", run.replica, [one.id for one in found])


def _find_tombstone(tx: Tx, one: Tombstone) -> Tombstone:
    row = versions.find_tombstone(tx, one.kind, one.uuid, one.version)
    if row is None or row.digest != one.digest:
        raise DamagedObjectError("The catalog knows a tombstone with another reason.")
    return row


def import_files(run: RebuildRun) -> RebuildTally:
    """Files with their bytes; hidden until `bytes_there` is set."""
    return import_versions(run, files.KIND, records.parse_file_record, _save_files)


def import_versions(
    run: RebuildRun,
    kind: keys.Kind,
    parse: Callable[[RecordKey, bytes], Record],
    keep: Callable[[RebuildRun, Tx, Sequence[Record]], None],
) -> RebuildTally:
    """The records of a kind that the catalog does not know in this bucket yet."""
    tally = RebuildTally(kind, run.replica)
    for batch in list_batches(run, keys.record_prefix(kind), keys.parse_record, tally):
        import_batch(run, _select_unknown(run, kind, batch, tally), parse, keep, tally)
    return tally


def _select_unknown(
    run: RebuildRun, kind: keys.Kind, batch: Sequence[ListedRecord[RecordKey]], tally: RebuildTally
) -> list[ListedRecord[RecordKey]]:
    with run.stores.catalog.read() as tx:
        held = recovery.filter_stored(tx, kind, run.replica, [one.key.fqid for one in batch])
    tally.known += len(held)
    return [one for one in batch if one.key.fqid not in held]


def _save_files(run: RebuildRun, tx: Tx, batch: Sequence[FileRecord]) -> None:
    heads.lock(tx, files.KIND, [one.fqid.uuid for one in batch])
    recovery.insert_files(tx, [(records.make_file_row(one), one.created_us) for one in batch])
    known = recovery.find_digests(tx, files.KIND, [one.fqid for one in batch])
    for one in batch:
        if known.get(one.fqid, (0, ""))[1] != one.digest:
            raise DamagedObjectError(f"The catalog knows file {one.fqid} with other content.")
    recovery.record_stored(tx, files.KIND, run.replica, [known[one.fqid][0] for one in batch])


def import_blobs(run: RebuildRun) -> RebuildTally:
    """Which bytes are in the bucket; files that are whole are seen from now on, others are brought
    from the other bucket."""
    tally = RebuildTally("blob", run.replica)
    for batch in list_blob_batches(run, tally):
        with run.transaction() as tx:
            recovery.record_stored_blobs(tx, run.replica, batch)
        tally.imported += len(batch)
    after = 0
    while page := _read_file_page(run, after):
        _publish_files(run, page, tally)
        after = page[-1][0]
    return tally


def list_blob_batches(run: RebuildRun, tally: RebuildTally) -> Iterator[list[tuple[str, int]]]:
    """Checksums and sizes of what lies in the bucket, a batch at a time."""
    batch: list[tuple[str, int]] = []
    for info in run.bucket.list(keys.BLOBS):
        sha256 = keys.parse_blob(info.key)
        if sha256 is None:
            tally.refuse(info.key, "Its name is none that the store gives.")
            continue
        if info.damaged:
            tally.refuse(info.key, "It is damaged.")
            continue
        batch.append((sha256, info.size))
        if len(batch) == BLOB_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _read_file_page(run: RebuildRun, after: int) -> list[tuple[int, FQID, bool]]:
    with run.stores.catalog.read() as tx:
        return recovery.list_stored_files(tx, run.replica, after, limit=BLOB_BATCH)


def _publish_files(
    run: RebuildRun, page: Sequence[tuple[int, FQID, bool]], tally: RebuildTally
) -> None:
    with run.transaction() as tx:
        heads.lock(tx, files.KIND, [fqid.uuid for _, fqid, _ in page])
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


def import_bundles(run: RebuildRun) -> RebuildTally:
    """Bundles; those of which a file is not here are brought from the other bucket."""
    return import_versions(run, bundles.KIND, records.parse_bundle_record, _save_bundles)


def _save_bundles(run: RebuildRun, tx: Tx, batch: Sequence[BundleRecord]) -> None:
    kind = bundles.KIND
    heads.lock(tx, kind, [one.fqid.uuid for one in batch])
    recovery.raise_changes(tx, kind, [one.fqid.uuid for one in batch], run.floor)
    fqids = [one.fqid for one in batch]
    buried, purged = (
        recovery.filter_tombstoned(tx, kind, fqids),
        set(purges.filter_purged(tx, kind, fqids)),
    )
    files = recovery.find_file_ids(tx, {file for one in batch for _, file, _ in one.entries})
    whole = []
    for one in batch:
        ident = reconcile.merge_bundle(tx, one, files, purged=one.fqid in purged).bundle.id
        if _has_all_files(run, tx, one, files):
            whole.append((ident, one.fqid))
        elif one.fqid not in purged:
            jobs.insert_new(tx, [Job(Step.SYNC, run.replica, f"{kind}:{one.fqid}")])
    recovery.record_stored(tx, kind, run.replica, [ident for ident, _ in whole])
    shown = [(ident, fqid) for ident, fqid in whole if fqid not in buried | purged]
    recovery.publish_versions(tx, kind, run.replica, shown)


def _has_all_files(run: RebuildRun, tx: Tx, one: BundleRecord, files: dict[FQID, int]) -> bool:
    """Whether all that it names is whole in this bucket, or is gone for good with it."""
    named = {files[file] for _, file, _ in one.entries if file in files}
    return len(file_rows.filter_published_ids(tx, run.replica, sorted(named))) == len(named)


def import_collections(run: RebuildRun) -> RebuildTally:
    """Collections, each seen by its owner, wherever its links lead by now."""
    return import_versions(
        run, collections.KIND, records.parse_collection_record, _save_collections
    )


def _save_collections(run: RebuildRun, tx: Tx, batch: Sequence[CollectionRecord]) -> None:
    heads.lock(tx, collections.KIND, [one.fqid.uuid for one in batch])
    purged = purges.filter_purged(tx, collections.KIND, [one.fqid for one in batch])
    # What is being purged is erased from the buckets by its own steps, and wants no row.
    for one in (one for one in batch if one.fqid not in purged):
        collections.publish_in_replica(tx, reconcile.merge_collection(tx, one), run.replica)


PAGE_SIZE = 500
FAR_FUTURE_US = 2**62
"""After every moment."""


def complete_rebuild(run: RebuildRun) -> RebuildTally:
    """Go through all that there is; again is the same."""
    tally = RebuildTally("event", run.replica)
    _complete_bundles(run, tally)
    _enqueue_tombstones(run)
    _resume_purges(run, tally)
    return tally


def _complete_bundles(run: RebuildRun, tally: RebuildTally) -> None:
    after = FQID("", "")
    while page := _read_bundle_page(run, after):
        with run.transaction() as tx:
            heads.lock(tx, bundles.KIND, [fqid.uuid for fqid in page])
            _append_events(tx, _list_missing_events(run, tx, page), tally)
            _enqueue_indexing(run, tx, page)
        after = page[-1]


def _read_bundle_page(run: RebuildRun, after: FQID) -> list[FQID]:
    with run.stores.catalog.read() as tx:
        return versions.list_published_after(
            tx, bundles.KIND, after, before_us=FAR_FUTURE_US, limit=PAGE_SIZE
        )


def _list_missing_events(run: RebuildRun, tx: Tx, page: Sequence[FQID]) -> list[BundleEvent]:
    """The events that these bundles had, if no journal tells of them."""
    kind = bundles.KIND
    here = recovery.filter_stored(tx, kind, run.replica, page)
    buried, purged = (
        recovery.filter_tombstoned(tx, kind, page),
        set(purges.filter_purged(tx, kind, page)),
    )
    wanted = [_build_event("CREATE", run.replica, fqid) for fqid in sorted(here - buried - purged)]
    return [
        *wanted,
        *_list_end_events(tx, "TOMBSTONE", sorted(buried)),
        *_list_end_events(tx, "DELETE", sorted(purged)),
    ]


def _list_end_events(tx: Tx, kind: EventType, fqids: Sequence[FQID]) -> list[BundleEvent]:
    """The ends of those that were ever seen, in each replica where they were."""
    begun = [_build_event("CREATE", replica, fqid) for fqid in fqids for replica in REPLICAS]
    never = journals.filter_unknown_events(tx, [event.id for event in begun])
    return [_build_event(kind, one.replica, one.fqid) for one in begun if one.id not in never]


def _build_event(kind: EventType, replica: str, fqid: FQID) -> BundleEvent:
    name = next(one for one in REPLICAS if one == replica)
    return BundleEvent(events.make_event_id(kind, name, fqid), name, kind, fqid, 0, 0)


def _append_events(tx: Tx, wanted: Sequence[BundleEvent], tally: RebuildTally) -> None:
    lacking = journals.filter_unknown_events(tx, [event.id for event in wanted])
    idents = recovery.find_digests(tx, bundles.KIND, [event.fqid for event in wanted])
    for event in wanted:
        if event.id in lacking:
            ident = idents.get(event.fqid, (0, ""))[0]
            events.append(tx, event.type, event.replica, event.fqid, ident)
            tally.imported += 1
        else:
            tally.known += 1


def _enqueue_indexing(run: RebuildRun, tx: Tx, page: Sequence[FQID]) -> None:
    """Every bundle here, seen or buried, has its document or stub written again: an index that was
    not lost may know otherwise. A document that was there before is no news to stored queries."""
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


def _enqueue_tombstones(run: RebuildRun) -> None:
    """Every bucket is to have their records."""
    after = 0
    while page := _read_tombstone_page(run, after):
        with run.transaction() as tx:
            follow = [
                job
                for stone in page
                for job in manifests.tombstone_jobs(stone.kind, stone.uuid, stone.version)
            ]
            jobs.insert_new(tx, follow)
        after = page[-1].id


def _read_tombstone_page(run: RebuildRun, after: int) -> list[Tombstone]:
    with run.stores.catalog.read() as tx:
        return recovery.list_tombstones(tx, after, limit=PAGE_SIZE)


def _resume_purges(run: RebuildRun, tally: RebuildTally) -> None:
    """They are driven to their end once more: what the other bucket holds is not known."""
    after = 0
    while page := _read_purge_page(run, after):
        with run.transaction() as tx:
            told = [FQID(one.uuid, one.version) for one in page if _is_bundle_version(one)]
            _append_events(tx, _list_end_events(tx, "DELETE", told), tally)
            going = [one for one in page if one.finished_us is None]
            rows = [
                Job(Step.MARK, name, f"{one.kind}:{one.name}") for one in going for name in REPLICAS
            ]
            jobs.insert_new(tx, rows)
        after = page[-1].id


def _is_bundle_version(one: Purge) -> bool:
    return one.kind == bundles.KIND and bool(one.version)


def _read_purge_page(run: RebuildRun, after: int) -> list[Purge]:
    with run.stores.catalog.read() as tx:
        return recovery.list_purges(tx, after, limit=PAGE_SIZE)


log = logging.getLogger(__name__)

PHASES: tuple[Callable[[RebuildRun], RebuildTally], ...] = (
    # In this order: what is taken in names what came before it.
    import_purges,
    import_tombstones,
    import_files,
    import_blobs,
    import_bundles,
    import_collections,
    rebuild_journals.import_journals,
    complete_rebuild,
)


def rebuild_catalog(stores: Stores, replica: Replica, *, token: str) -> Iterator[RebuildTally]:
    """Fill the catalog from one bucket, telling of each kind when it is done. Conflict for a
    catalog that holds something else, Unavailable when the bucket is away: begin again later."""
    run = _begin_run(stores, replica, token)
    try:
        for phase in PHASES:
            tally = phase(run)
            log.info("rebuild: %s", tally)
            yield tally
    finally:
        run.end()


def _begin_run(stores: Stores, replica: Replica, token: str) -> RebuildRun:
    last = max((name for name in epochs.list_marks(stores, replica)), default="")
    with stores.catalog.write() as tx:
        if not store_state.acquire_lease(tx, LEASE, token=token, lease_s=LEASE_S):
            raise Conflict("Another rebuild of this catalog is going on.")
        if store_state.read_value(tx, recovery.REBUILDING_KEY) is None:
            _mark_rebuilding(tx, last, token)
        return RebuildRun(
            stores,
            replica,
            token,
            floor=int(store_state.read_value(tx, recovery.REBUILDING_KEY) or 0),
        )


def _mark_rebuilding(tx: Tx, last: str, token: str) -> None:
    if recovery.has_any_rows(tx):
        raise Conflict(
            "The catalog is not empty: `reconcile` takes in what it lacks, a rebuild wants an"
            " empty one."
        )
    heads.lock(tx, "epoch", ["mark"])
    # Counts of changes begin beyond any that a search index was ever told.
    store_state.write_value(tx, recovery.REBUILDING_KEY, str(now_us(tx)))
    recovery.begin_unmarked_epoch(tx, f"{int(last.partition('-')[0] or 0) + 1:020d}-{token}")
    store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, READ_ONLY_REASON)


READ_ONLY_REASON = "The catalog is being rebuilt. Run `python -m ops reconcile` when that is done."
