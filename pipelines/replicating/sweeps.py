"""Sweeps: scheduled comparisons of buckets and indexes with the catalog.

Repairing adds the ordinary to-do row.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace as changed_info
from functools import partial
from itertools import chain, islice

from pipelines.depositing import purging
from pipelines.flow import Step
from pipelines.journalling import journal_copies
from pipelines.replicating.comparing import BATCH, Swept, differences, paged, swept
from storage import keys
from storage.catalog import documents, heads, integrity, purges, todo, versions, visibility
from storage.catalog import files as file_rows
from storage.model import FQID, REPLICAS, Replica, Todo
from storage.protocols import BlobInfo
from storage.stores import Stores

log = logging.getLogger(__name__)

SETTLED_US = 120_000_000
"""Age below which a version is left to its own to-do rows."""
BLOBS_SETTLED_US = 5_000_000
"""The same of blobs: a repair looks again, so that nothing comes of a race."""
INDEXED_US = 5_000_000
"""The same of what was recorded only once it could be found: a page of the index may be older than
the page of the catalog that it is compared with."""


def replication(stores: Stores, *, repair: bool = True) -> list[Swept]:
    """Compare every bucket's records and blobs with the catalog; with `repair` what is missing is
    enqueued, without it nothing is written."""
    records = [
        _compare(stores, kind, replica, repair=repair)
        for kind in keys.KINDS
        for replica in REPLICAS
    ]
    blobs = [_compare_blobs(stores, replica, repair=repair) for replica in REPLICAS]
    journals = [_compare_journals(stores, replica, repair=repair) for replica in REPLICAS]
    return [*records, *blobs, *journals]


def indexing(stores: Stores, *, repair: bool = True) -> list[Swept]:
    """Compare every replica's index with what the catalog says was indexed there, and enqueue again
    what the engine lost; nobody is told twice of a bundle that is found again."""
    return [_compare_index(stores, replica, repair=repair) for replica in REPLICAS]


# Records -----------------------------------------------------------------------------------


def _compare(stores: Stores, kind: keys.Kind, replica: Replica, *, repair: bool) -> Swept:
    """A record that the catalog knows and the bucket lacks is brought again; one that only the
    bucket has is left alone, unless it was purged; if it stays unknown somebody should look."""
    damaged: list[str] = []
    pairs = differences(_known(stores, kind), _listed(stores, kind, replica, damaged.append))
    mend = partial(_bring, stores, kind, replica) if repair else None
    drop = partial(_withdraw, stores, kind, replica) if repair else None
    found = swept(kind, replica, pairs, mend, drop)
    if repair:
        _repair(stores, replica, damaged)
    if found.strange:
        about = "sweep: %d %ss in %s are newer than the sweep or unknown"
        log.info(about, found.strange, kind, replica)
    return found


def _known(stores: Stores, kind: keys.Kind) -> Iterator[str]:
    """Published versions by uuid, then version."""
    return map(
        str,
        paged(
            stores,
            lambda tx, after, before_us: versions.published_after(
                tx, kind, after, before_us=before_us, limit=BATCH
            ),
            FQID("", ""),
            settled_us=SETTLED_US,
        ),
    )


def _listed(
    stores: Stores, kind: keys.Kind, replica: Replica, damaged: Callable[[str], object]
) -> Iterator[str]:
    """Every record; `damaged` is told the keys of those that a listing shows to be damaged."""
    for info in _judged(stores, replica, keys.records(kind)):
        found = keys.parse_record(info.key)
        if found is not None:
            if info.damaged:
                damaged(info.key)
            yield str(found.fqid)


def _judged(stores: Stores, replica: Replica, prefix: str) -> Iterator[BlobInfo]:
    """List objects; those that were changed since they were verified count as damaged until they
    are read again."""
    listing = stores.replicas[replica].list(prefix)
    while batch := list(islice(listing, BATCH)):
        modified = {info.key: info.modified_us for info in batch if info.modified_us is not None}
        with stores.catalog.read() as tx:
            changed = integrity.changed_since(tx, replica, modified)
        for info in batch:
            yield changed_info(info, damaged=True) if info.key in changed else info


def _bring(stores: Stores, kind: keys.Kind, replica: Replica, names: list[str]) -> None:
    if not names:
        return
    fqids = [FQID.parse(name) for name in names]
    with stores.catalog.write() as tx:
        heads.lock(tx, kind, [fqid.uuid for fqid in fqids])
        for fqid in fqids:
            ident = versions.published_id(tx, kind, fqid)
            if ident is not None:
                visibility.forget_record(tx, kind, ident, replica)
        # A row that is there already is left to its own time.
        wanted = [Todo(Step.SYNC, replica, f"{kind}:{name}") for name in names]
        todo.add_new(tx, wanted)
    log.warning("sweep: %d %ss to be brought to %s", len(names), kind, replica)


def _withdraw(stores: Stores, kind: keys.Kind, replica: Replica, names: list[str]) -> None:
    """Remove records that came after all of their purge: from a writer that slept for so long."""
    with stores.catalog.read() as tx:
        purged = purges.among(tx, kind, [FQID.parse(name) for name in names])
    purging.withdraw(stores, replica, kind, purged)
    if purged:
        log.warning("sweep: %d purged %ss were still in %s", len(purged), kind, replica)


# Blobs and journals ------------------------------------------------------------------------


def _compare_blobs(stores: Stores, replica: Replica, *, repair: bool) -> Swept:
    """Blobs that are missing, damaged or of another size than the catalog knows are repaired; a
    blob that only the bucket has belongs to a verification that is going on, or to none."""
    known = paged(
        stores,
        lambda tx, after, before_us: file_rows.blobs_after(
            tx, replica, after, before_us=before_us, limit=BATCH
        ),
        ("", 0),
        settled_us=BLOBS_SETTLED_US,
    )
    mend = partial(_repair_blobs, stores, replica) if repair else None
    named = (f"{sha256} {size}" for sha256, size in known)
    return swept("blob", replica, differences(named, _listed_blobs(stores, replica)), mend)


def _listed_blobs(stores: Stores, replica: Replica) -> Iterator[str]:
    for info in _judged(stores, replica, keys.BLOBS):
        sha256 = keys.parse_blob(info.key)
        if sha256 is not None:
            yield f"{sha256} {'damaged' if info.damaged else info.size}"


def _repair_blobs(stores: Stores, replica: Replica, wanted: list[str]) -> None:
    _repair(stores, replica, [keys.blob(name.partition(" ")[0]) for name in wanted])


def _repair(stores: Stores, replica: Replica, wanted: Iterable[str]) -> None:
    """Have objects read again, and replaced if they are damaged."""
    rows = [Todo(Step.REPAIR, replica, key) for key in wanted]
    with stores.catalog.write() as tx:
        todo.add_new(tx, rows)
    if rows:
        log.warning("sweep: %d objects to be repaired in %s", len(rows), replica)


def _compare_journals(stores: Stores, bucket: Replica, *, repair: bool) -> Swept:
    """Journals of both replicas, each object with its size; one that only the bucket has is past,
    or being written."""
    mend = partial(journal_copies.bring, stores, bucket) if repair else None
    pairs = chain.from_iterable(
        differences(
            journal_copies.known(stores, replica, settled_us=SETTLED_US),
            journal_copies.listed(stores, bucket, replica),
        )
        for replica in REPLICAS
    )
    return swept("journal", bucket, pairs, mend)


# Indexes -----------------------------------------------------------------------------------


def _compare_index(stores: Stores, replica: Replica, *, repair: bool) -> Swept:
    """What was said to be indexed, and what the engine has."""
    recorded = paged(
        stores,
        lambda tx, after, before_us: documents.recorded_after(
            tx, replica, after, before_us=before_us, limit=BATCH
        ),
        FQID("", ""),
        settled_us=INDEXED_US,
    )
    held = map(str, stores.search[replica].held())
    mend = partial(_index_again, stores, replica) if repair else None
    return swept("document", replica, differences(map(str, recorded), held), mend)


def _index_again(stores: Stores, replica: Replica, wanted: list[str]) -> None:
    with stores.catalog.write() as tx:
        todo.add_new(tx, [Todo(Step.INDEX, replica, name) for name in wanted])
    log.warning("sweep: %d documents to be indexed again in %s", len(wanted), replica)
