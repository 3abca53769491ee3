"""Reconciling: a catalog that is older than the buckets takes in what their records tell.

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

from pipelines.collecting import collections
from pipelines.depositing import files, manifests, purging
from pipelines.flow import Step
from pipelines.formats import new_uuid
from pipelines.keeping import copying, readback
from pipelines.keeping.readback import FileRecord
from pipelines.recovering import (
    asking,
    bundle_reconciling,
    collection_reconciling,
    epochs,
    rebuild_journals,
)
from pipelines.recovering.rebuild_reading import Run
from storage import keys
from storage.catalog import (
    Tx,
    bundles,
    documents,
    events,
    heads,
    purges,
    restoring,
    switches,
    todo,
    tombstones,
    versions,
    visibility,
)
from storage.catalog import epochs as epoch_rows
from storage.catalog import files as file_rows
from storage.catalog.purges import Purge
from storage.catalog.tombstones import Tombstone
from storage.errors import Damaged, StoreError, TimedOut, Unavailable
from storage.keys import MarkKey, RecordKey
from storage.model import REPLICAS, Replica, Todo
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH = 500
TAKEN_IN = "Taken in from a bucket; to be indexed again."
Key = TypeVar("Key", RecordKey, MarkKey)


@dataclass(frozen=True, slots=True)
class Merged:
    """What one bucket's listing of a kind told the catalog."""

    kind: str
    replica: Replica
    known: int
    taken: int
    refused: int


def reconcile(stores: Stores) -> list[Merged]:
    """Merge both buckets' listings into the catalog, and begin an epoch of its own. Unavailable,
    by the bucket's name, when one does not answer; Damaged when one has a mark that nobody gave."""
    for replica in REPLICAS:
        epochs.marks(stores, replica)
    done = [
        *(_marks(stores, replica, keys.PURGED, _purge) for replica in REPLICAS),
        *(_marks(stores, replica, keys.TOMBSTONES, _tombstone) for replica in REPLICAS),
        *(_records(stores, kind, replica) for kind in _TAKE for replica in REPLICAS),
        *(_journals(stores, replica) for replica in REPLICAS),
    ]
    epochs.overrule(stores)
    with stores.catalog.write() as tx:
        switches.put(tx, epoch_rows.REBUILDING, None)
    return done


def _journals(stores: Stores, replica: Replica) -> Merged:
    """The numbers that events were given after the catalog was copied: none is given again."""
    run = Run(stores, replica, new_uuid(), floor=0)
    try:
        found = rebuild_journals.journalled(run)
    finally:
        run.end()
    return Merged(found.kind, replica, found.known, found.taken, found.refused)


def _records(stores: Stores, kind: keys.Kind, replica: Replica) -> Merged:
    known, ends = 0, {True: 0, False: 0}
    take = _TAKE[kind]
    listed = asking.listed(stores, replica, keys.records(kind))
    for batch in _batches(keys.parse_record(info.key) for info in listed):
        with stores.catalog.read() as tx:
            held = restoring.held(tx, kind, replica, [key.fqid for key in batch])
        known += len(held)
        for key in batch:
            if key.fqid not in held:
                ends[_taken(partial(take, stores, replica, key), str(key.fqid))] += 1
    return Merged(kind, replica, known, ends[True], ends[False])


def _marks(
    stores: Stores,
    replica: Replica,
    prefix: str,
    take: Callable[[Stores, Replica, MarkKey], None],
) -> Merged:
    known, ends = 0, {True: 0, False: 0}
    parse = keys.parse_purged if prefix == keys.PURGED else keys.parse_tombstone
    listed = asking.listed(stores, replica, prefix)
    for batch in _batches(parse(info.key) for info in listed):
        for key in batch:
            with stores.catalog.read() as tx:
                named = (key.kind, key.uuid, key.version or "")
                there = restoring.mark_known(tx, *named, purged=prefix == keys.PURGED)
            known += there
            if not there:
                ends[_taken(partial(take, stores, replica, key), key.uuid)] += 1
    return Merged(prefix.rstrip("/"), replica, known, ends[True], ends[False])


def _batches(found: Iterator[Key | None]) -> Iterator[list[Key]]:
    rest = (key for key in found if key is not None)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _taken(take: Callable[[], None], name: str) -> bool:
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


def _purge(stores: Stores, replica: Replica, key: MarkKey) -> None:
    object_key = keys.purged(key.kind, key.uuid, key.version)
    found = readback.purge(key, asking.whole(stores, replica, object_key))
    with stores.catalog.write() as tx:
        heads.lock(tx, key.kind, [key.uuid])
        row = purges.add(tx, found)
        restoring.dated(tx, "purge", row.id, found.created_us)
        _gone(tx, found)
        ref = f"{row.kind}:{row.name}"
        todo.add_new(tx, [Todo(Step.MARK, name, ref) for name in REPLICAS])


def _gone(tx: Tx, found: Purge) -> None:
    """What is to be purged is not seen meanwhile."""
    visibility.hide(tx, found.kind, found.uuid, found.version or None)


def _tombstone(stores: Stores, replica: Replica, key: MarkKey) -> None:
    object_key = keys.tombstone(key.kind, key.uuid, key.version)
    found = readback.tombstone(key, asking.whole(stores, replica, object_key))
    with stores.catalog.write() as tx:
        heads.lock(tx, key.kind, [key.uuid])
        stone = tombstones.add(tx, found)
        restoring.dated(tx, "tombstone", stone.id, found.created_us)
        todo.add_new(tx, _hidden(tx, stone))


def _hidden(tx: Tx, stone: Tombstone) -> set[Todo]:
    """Its events are recorded, but nobody is told of them again."""
    grave = f"{stone.uuid}.{stone.version}" if stone.version else stone.uuid
    if stone.kind == collections.KIND:
        collections.hide(tx, stone.uuid)
        return set(collections.graves(stone.uuid))
    gone = visibility.hide(tx, stone.kind, stone.uuid, stone.version or None)
    if stone.kind != manifests.KIND:
        return set()
    follow = {Todo(Step.BURY, replica, grave) for replica in REPLICAS}
    for replica, fqid, ident in gone:
        heads.change(tx, stone.kind, stone.uuid)
        events.append(tx, "TOMBSTONE", replica, fqid, ident)
        follow.add(Todo(Step.INDEX, replica, str(fqid)))
    return follow


def _file(stores: Stores, replica: Replica, key: RecordKey) -> None:
    record = keys.record(key.kind, key.fqid)
    found = readback.file(key, asking.whole(stores, replica, record))
    with asking.bucket(replica):
        blob = keys.blob(found.checksums.sha256)
        whole = copying.holds(stores.replicas[replica], blob, found.size)
    lacking = [*asking.lacking(stores, record), *([] if whole else [replica])]
    with stores.catalog.write() as tx:
        heads.lock(tx, files.KIND, [key.fqid.uuid])
        purged = purges.among(tx, files.KIND, [key.fqid])
        if not purged:
            row = _file_row(tx, found)
            if whole:
                file_rows.reveal(tx, [row], replica)
            ref = f"{files.KIND}:{key.fqid}"
            todo.add_new(tx, [Todo(Step.SYNC, name, ref) for name in lacking])
    with asking.bucket(replica):
        purging.withdraw(stores, replica, files.KIND, purged)


def _file_row(tx: Tx, found: FileRecord) -> file_rows.Reserved:
    before = file_rows.by_fqid(tx, found.fqid)
    if before is not None and before.digest != found.digest:
        raise Damaged(f"The catalog knows file {found.fqid} with other content.")
    row = before or file_rows.reserve(tx, readback.file_row(found))
    if before is None:
        restoring.dated(tx, "file", row.file.id, found.created_us)
    versions.publish(tx, files.KIND, row.file.fqid)
    return row


def _bundle(stores: Stores, replica: Replica, key: RecordKey) -> None:
    record = keys.record(key.kind, key.fqid)
    found = readback.bundle(key, asking.whole(stores, replica, record))
    ref = f"{manifests.KIND}:{key.fqid}"
    lacking = asking.lacking(stores, record)
    with stores.catalog.write() as tx:
        heads.lock(tx, manifests.KIND, [key.fqid.uuid])
        purged = purges.among(tx, manifests.KIND, [key.fqid])
        if not purged:
            idents = restoring.file_ids(tx, {file for _, file, _ in found.entries})
            row = bundle_reconciling.row(tx, found, idents)
            # What would make it visible as something new, and tell of it.
            todo.remove(tx, Todo(Step.SYNC, replica, ref))
            todo.add_new(tx, _seen(tx, row, replica, lacking))
    with asking.bucket(replica):
        purging.withdraw(stores, replica, manifests.KIND, purged)


def _seen(
    tx: Tx, row: bundles.Reserved, replica: Replica, lacking: Sequence[Replica]
) -> list[Todo]:
    """Readers of a replica see it, unless it is buried; it is indexed, and nobody is told."""
    bundle = row.bundle
    visibility.record_seen(tx, manifests.KIND, bundle.id, replica)
    ref = f"{manifests.KIND}:{bundle.fqid}"
    follow = [Todo(Step.SYNC, name, ref) for name in lacking]
    if tombstones.over(tx, manifests.KIND, *bundle.fqid):
        return follow
    visibility.show(tx, manifests.KIND, replica, bundle.fqid, bundle.id)
    change = heads.change(tx, manifests.KIND, bundle.fqid.uuid)
    events.append(tx, "CREATE", replica, bundle.fqid, bundle.id)
    if documents.state(tx, replica, bundle.id) is None:
        # A document that was there before is no news to stored queries.
        documents.record(
            tx, replica, bundle.id, state="unindexed", shape="", change=change, reason=TAKEN_IN
        )
    return [*follow, Todo(Step.INDEX, replica, str(bundle.fqid))]


_TAKE: Mapping[keys.Kind, Callable[[Stores, Replica, RecordKey], None]] = {
    # In this order: what is taken in names what came before it.
    files.KIND: _file,
    manifests.KIND: _bundle,
    collections.KIND: collection_reconciling.take,
}
