"""Making another replica hold it too: blobs, then file records, then the bundle's record.

A half copy is never visible: what a record names is in the bucket, with the right checksum, before
the record is. Every step may run twice, half, or beside its twin.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from pipelines import flow, topics
from pipelines.batches import Completed, run_each, run_in_groups, run_through
from pipelines.collecting import collections
from pipelines.depositing import files, manifests, purging
from pipelines.keeping import blob_life, copying, failover, integrity, records
from pipelines.keeping.bulk_copying import BulkCopies
from pipelines.keeping.copying import Beat
from pipelines.limits import ETAG_CHUNK
from pipelines.replicating import collection_sync
from storage import keys
from storage.catalog import Tx, bundles, heads, purges, todo, uploads, visibility
from storage.catalog import files as file_rows
from storage.errors import Conflict, NotFound
from storage.model import FQID, REPLICAS, Claim, FileVersion, Replica, Todo
from storage.protocols import BlobStore, BulkTarget
from storage.stores import Stores

BATCH = 512
"""Files of one bundle that are looked up, and revealed, at a time."""
LISTED_PER_LOOK = 8
"""Objects that a listing shows for the price of a look at one."""
SMALL = 100
"""Files of a bundle that is synced together with others."""
TOUCH_S = 60.0
"""How often an upload that goes on says so: the sweep of unfinished ones waits for much longer."""


def sync(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Make one replica hold what another one holds; `<kind>:<fqid>`."""
    kind, _, name = claim.todo.ref.partition(":")
    return _SYNC[kind](stores, claim, FQID.parse(name), beat)


def _sync_file(stores: Stores, claim: Claim, fqid: FQID, beat: Beat) -> tuple[Todo, ...]:
    target = flow.replica_of(claim.todo)
    with stores.catalog.read() as tx:
        row = file_rows.by_fqid(tx, fqid)
        purged = purges.among(tx, files.KIND, [fqid])
        if row is None and not purged:
            raise NotFound(f"There is no file {fqid}.")
        known = file_rows.blobs_present(tx, target, [row] if row else [])
    if row is None or purged:
        return purging.taken_back(stores, claim, purged)
    blob_life.revive(stores, target, [row])
    _copy_file(stores, target, beat, known, row)
    with stores.catalog.write() as tx:
        purged = _reveal_files(tx, [row], target)
        if not purged:
            todo.finish(tx, claim)
    stores.notices.publish(topics.of_file(target, fqid))
    return purging.taken_back(stores, claim, purged) if purged else ()


def sync_batch(stores: Stores, claims: Sequence[Claim], beat: Beat) -> Completed:
    """Sync several small files, and several bundles whose files came; those that go well are
    revealed together. Collections, and bundles that need more, go by themselves."""
    by_kind: dict[str, dict[FQID, Claim]] = {files.KIND: {}, manifests.KIND: {}}
    for claim in claims:
        kind, _, name = claim.todo.ref.partition(":")
        if kind in by_kind:
            by_kind[kind][FQID.parse(name)] = claim
    completed = dict[Todo, tuple[Todo, ...]]()
    if len(by_kind[files.KIND]) > 1:
        completed.update(_sync_files(stores, by_kind[files.KIND], beat))
    if len(by_kind[manifests.KIND]) > 1:
        completed.update(_sync_bundles(stores, by_kind[manifests.KIND]))
    return completed


def _sync_files(stores: Stores, claimed: Mapping[FQID, Claim], beat: Beat) -> Completed:
    target = _target(claimed)
    with stores.catalog.read() as tx:
        rows = {row.file.fqid: row for row in file_rows.by_fqids(tx, list(claimed))}
        for fqid in purges.among(tx, files.KIND, list(rows)):
            del rows[fqid]
        known = file_rows.blobs_present(tx, target, list(rows.values()))
    blob_life.revive(stores, target, list(rows.values()))
    return run_in_groups(
        lambda fqid: _copy_file(stores, target, beat, known, rows[fqid]),
        rows,
        lambda copied: _reveal_together(stores, target, claimed, [rows[fqid] for fqid in copied]),
        step=flow.Step.SYNC,
        replica=target,
        parallel=stores.copy_parallel,
    )


def _reveal_together(
    stores: Stores,
    target: Replica,
    claimed: Mapping[FQID, Claim],
    rows: Sequence[file_rows.Reserved],
) -> Completed:
    """Reveal files whose blobs and records are there, and complete their jobs."""
    with stores.catalog.write() as tx:
        purged = _reveal_files(tx, rows, target)
        done = [row.file.fqid for row in rows if row.file.fqid not in purged]
        todo.finish_all(tx, [claimed[fqid] for fqid in done])
    for fqid in done:
        stores.notices.publish(topics.of_file(target, fqid))
    return {claimed[fqid].todo: () for fqid in done}


def _sync_bundles(stores: Stores, claimed: Mapping[FQID, Claim]) -> Completed:
    target = _target(claimed)
    rows = _complete_bundles(stores, target, list(claimed))

    def place(fqid: FQID) -> bool:
        data = records.of_bundle(rows[fqid], manifests.manifest_of(stores, rows[fqid].bundle))
        return integrity.place_record(stores, target, keys.record(manifests.KIND, fqid), data)

    placed = run_each(
        place, rows, step=flow.Step.SYNC, replica=target, parallel=stores.copy_parallel
    )
    if not placed:
        return {}
    completed = dict[Todo, tuple[Todo, ...]]()
    with stores.catalog.write() as tx:
        heads.lock(tx, manifests.KIND, [fqid.uuid for fqid in placed])
        purged = purges.among(tx, manifests.KIND, list(placed))
        done = [fqid for fqid in placed if fqid not in purged]
        for fqid in done:
            follow = _reveal_bundle(tx, rows[fqid], target, same=placed[fqid])
            completed[claimed[fqid].todo] = follow
        todo.finish_all(tx, [claimed[fqid] for fqid in done])
        jobs = [(claimed[fqid].todo, claimed[fqid].request_id) for fqid in done]
        todo.add_each(tx, [(job, request) for own, request in jobs for job in completed[own]])
    return completed


def _complete_bundles(
    stores: Stores, target: Replica, fqids: Sequence[FQID]
) -> dict[FQID, bundles.Reserved]:
    """Those of these bundles that are small, not purged, and have all of their files here."""
    with stores.catalog.read() as tx:
        rows = {row.bundle.fqid: row for row in bundles.by_fqids(tx, fqids)}
        purged = purges.among(tx, manifests.KIND, list(rows))
        needed = {
            fqid: set(bundles.file_ids(tx, row.bundle.id))
            for fqid, row in rows.items()
            if row.bundle.file_count <= SMALL and fqid not in purged
        }
        idents = sorted(set[int]().union(*needed.values()))
        seen = file_rows.seen_by_id(tx, target, idents)
    return {fqid: rows[fqid] for fqid, files_of in needed.items() if files_of <= seen}


def _target(claimed: Mapping[FQID, Claim]) -> Replica:
    return flow.replica_of(next(iter(claimed.values())).todo)


def _copy_file(
    stores: Stores,
    target: Replica,
    beat: Beat,
    known: Set[int],
    row: file_rows.Reserved,
    *,
    brought: Set[int] = frozenset(),
) -> None:
    """A file's blob, unless it was `brought` just now or is `known` and there, and its record into
    a bucket; readers do not see it yet."""
    if row.blob_id not in brought:
        _copy_blob(stores, row.file, target, beat, known=row.blob_id in known)
    if not files.put_record(stores, row, target):
        raise Conflict(f"The record of {row.file.fqid} differs.", code="file_already_exists")


def _reveal_files(tx: Tx, rows: Sequence[file_rows.Reserved], target: Replica) -> dict[FQID, bool]:
    """Let readers see them, but for those that were purged meanwhile, which are returned."""
    heads.lock(tx, files.KIND, [row.file.fqid.uuid for row in rows])
    purged = purges.among(tx, files.KIND, [row.file.fqid for row in rows])
    file_rows.reveal(tx, [row for row in rows if row.file.fqid not in purged], target)
    return purged


def _copy_blob(
    stores: Stores, file: FileVersion, target: Replica, beat: Beat, *, known: bool
) -> None:
    """The file's bytes into a bucket, compared by checksum."""
    key = keys.blob(file.checksums.sha256)
    blobs = stores.replicas[target]
    if known and failover.find_damage(stores, target, key, file) is None:
        return
    large = file.size > ETAG_CHUNK
    copying.copy(
        _other(stores, file, target),
        blobs,
        key,
        key,
        size=file.size,
        checksums=file.checksums,
        beat=beat,
        ledger=_Unfinished(stores, target, key) if large else None,
    )


class _Unfinished:
    """The catalog's row of a large copy, so that another worker takes it up where one died."""

    def __init__(self, stores: Stores, target: Replica, key: str) -> None:
        self._stores, self._target, self._key = stores, target, key
        self._noted: str | None = None
        self._touched = -TOUCH_S

    def token(self) -> str | None:
        """See copying.Ledger."""
        with self._stores.catalog.read() as tx:
            self._noted = uploads.latest(tx, self._target, self._key)
        return self._noted

    def note(self, token: str) -> None:
        """See copying.Ledger; one write for each new token, and now and then for an old one."""
        known, now = token == self._noted, time.monotonic()
        if known and now < self._touched + TOUCH_S:
            return
        with self._stores.catalog.write() as tx:
            (uploads.touched if known else uploads.opened)(tx, self._target, self._key, token)
        self._noted, self._touched = token, now

    def close(self) -> None:
        """See copying.Ledger."""
        if self._noted is not None:
            with self._stores.catalog.write() as tx:
                uploads.closed(tx, self._target, self._key, self._noted)


def _other(stores: Stores, file: FileVersion, target: Replica) -> BlobStore:
    """Where to copy from: the origin, unless it is the origin that is to be repaired."""
    origin = file.origin if file.origin != target else next(r for r in REPLICAS if r != target)
    return stores.replicas[origin]


def _sync_bundle(stores: Stores, claim: Claim, fqid: FQID, beat: Beat) -> tuple[Todo, ...]:
    target = flow.replica_of(claim.todo)
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
        purged = purges.among(tx, manifests.KIND, [fqid])
        if row is None and not purged:
            raise NotFound(f"There is no bundle {fqid}.")
        idents = [] if row is None or purged else bundles.file_ids(tx, row.bundle.id)
        seen = file_rows.seen_by_id(tx, target, idents)
    if row is None or purged:
        return purging.taken_back(stores, claim, purged)
    _bring_files(stores, sorted(set(idents) - seen), target, beat)
    data = records.of_bundle(row, manifests.manifest_of(stores, row.bundle))
    key = keys.record(manifests.KIND, fqid)
    same = integrity.place_record(stores, target, key, data)
    with stores.catalog.write() as tx:
        heads.lock(tx, manifests.KIND, [fqid.uuid])
        purged = purges.among(tx, manifests.KIND, [fqid])
        if not purged:
            follow = _reveal_bundle(tx, row, target, same=same)
            todo.finish(tx, claim)
            todo.add(tx, follow, request_id=claim.request_id)
    return purging.taken_back(stores, claim, purged) if purged else follow


def _reveal_bundle(
    tx: Tx, row: bundles.Reserved, target: Replica, *, same: bool
) -> tuple[Todo, ...]:
    if not same:
        visibility.record_seen(tx, manifests.KIND, row.bundle.id, target, diverged=True)
        return ()
    return manifests.reveal(tx, row, target, done="sync")


def _bring_files(stores: Stores, idents: Sequence[int], target: Replica, beat: Beat) -> None:
    """Copy the files that a bundle needs and that have not come on their own yet.

    Two batches at a time: one is looked up or revealed while the other is copied."""
    batches = [idents[start : start + BATCH] for start in range(0, len(idents), BATCH)]
    with ThreadPoolExecutor(stores.copy_parallel) as pool, ThreadPoolExecutor(2) as two:
        bring = partial(_bring_batch, stores, target, beat, pool)
        run_through(two, bring, batches, parallel=2)


def _bring_batch(
    stores: Stores, target: Replica, beat: Beat, pool: Executor, idents: Sequence[int]
) -> None:
    with stores.catalog.read() as tx:
        rows = file_rows.by_ids(tx, idents)
        known = file_rows.blobs_present(tx, target, rows)
        most = file_rows.most_blobs(tx)
    blob_life.revive(stores, target, rows)
    small = (row for row in rows if row.file.size <= copying.INLINE)
    new = {row.blob_id: row for row in small if row.blob_id not in known}
    is_worth_listing = len(new) * LISTED_PER_LOOK >= most
    brought = _copy_in_bulk(stores, target, beat, pool, new) if is_worth_listing else frozenset()

    def copy(row: file_rows.Reserved) -> None:
        _copy_file(stores, target, beat, known, row, brought=brought)
        beat(0)

    run_through(pool, copy, rows, parallel=stores.copy_parallel)
    with stores.catalog.write() as tx:
        purged = _reveal_files(tx, rows, target)
    purging.withdraw(stores, target, files.KIND, purged)


def _copy_in_bulk(
    stores: Stores,
    target: Replica,
    beat: Beat,
    pool: Executor,
    rows: Mapping[int, file_rows.Reserved],
) -> Set[int]:
    """Copy small blobs, and compare all by one listing; those that are there and right."""
    blobs = stores.replicas[target]
    if not isinstance(blobs, BulkTarget) or not rows:
        return frozenset()
    bulk = BulkCopies(stores.replicas[failover.other_replica(target)], blobs, keys.BLOBS)

    def copy(file: FileVersion) -> None:
        key = keys.blob(file.checksums.sha256)
        if not bulk.copy(key, key, size=file.size):
            _copy_blob(stores, file, target, beat, known=False)
        beat(0)

    new = [row.file for row in rows.values()]
    # The first copy shows what the others need to know of the bucket.
    copy(new[0])
    run_through(pool, copy, new[1:], parallel=stores.copy_parallel)
    wrong = {ident for ident, row in rows.items() if not _is_right(bulk, row.file)}
    for ident in wrong:
        file = rows[ident].file
        key = keys.blob(file.checksums.sha256)
        copying.remove_wrong(blobs, key, size=file.size, checksums=file.checksums, beat=beat)
    return rows.keys() - wrong


def _is_right(bulk: BulkCopies, file: FileVersion) -> bool:
    return bulk.is_right(keys.blob(file.checksums.sha256), file.size, file.checksums)


_SYNC: Mapping[str, Callable[[Stores, Claim, FQID, Beat], tuple[Todo, ...]]] = {
    files.KIND: _sync_file,
    manifests.KIND: _sync_bundle,
    collections.KIND: collection_sync.sync,
}
