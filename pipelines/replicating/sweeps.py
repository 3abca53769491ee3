"""Sweeps: scheduled comparisons that enqueue what is missing, and cleaning up after the dead.

Comparing is a merge of two sorted streams; repairing adds the ordinary to-do row.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Protocol

from pipelines.depositing import purging
from pipelines.flow import Step
from pipelines.journalling import journal_copies
from storage import keys
from storage.catalog import Tx, documents, heads, now_us, purges, todo, uploads, visibility
from storage.catalog import bundles as bundle_rows
from storage.catalog import collections as collection_rows
from storage.catalog import files as file_rows
from storage.errors import NotFound
from storage.model import FQID, REPLICAS, Replica, Todo
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH = 1_000
NAMED = 20
"""How many of the missing a comparison names."""
SETTLED_US = 120_000_000
"""Age below which a version is left to its own to-do rows."""
INDEXED_US = 5_000_000
"""The same of what was recorded only once it could be found: a page of the index may be older than
the page of the catalog that it is compared with."""


class Rows(Protocol):
    """What a sweep asks the catalog about one kind."""

    def published_id(self, tx: Tx, fqid: FQID) -> int | None:
        """The id of a published version, seen by readers or not."""

    def published_after(self, tx: Tx, after: FQID, *, before_us: int, limit: int) -> list[FQID]:
        """Versions published before a moment, by uuid, then version, after a given one."""

    def reserved_before(self, tx: Tx, us: int, *, limit: int) -> list[FQID]:
        """Reservations whose writer should have finished by now."""


ROWS: Mapping[keys.Kind, Rows] = {
    "file": file_rows,
    "bundle": bundle_rows,
    "collection": collection_rows,
}


@dataclass(frozen=True, slots=True)
class Swept:
    """What one comparison of a kind in a replica found."""

    kind: str
    replica: Replica
    seen: int
    missing: int
    strange: int
    named: tuple[str, ...] = ()
    """Some of what is missing."""


def differences(left: Iterable[str], right: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Merge two sorted listings: each key with -1 (left only), 1 (right only) or 0 (both)."""
    lefts, rights = iter(left), iter(right)
    mine, other = next(lefts, None), next(rights, None)
    while mine is not None or other is not None:
        if other is None or (mine is not None and mine < other):
            yield mine or "", -1
            mine = next(lefts, None)
        elif mine is None or other < mine:
            yield other, 1
            other = next(rights, None)
        else:
            yield mine, 0
            mine, other = next(lefts, None), next(rights, None)


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


def _compare(stores: Stores, kind: keys.Kind, replica: Replica, *, repair: bool) -> Swept:
    """A record that the catalog knows and the bucket lacks is brought again; one that only the
    bucket has is left alone, unless it was purged; if it stays unknown somebody should look."""
    pairs = differences(_known(stores, kind), _listed(stores, kind, replica))
    mend = partial(_bring, stores, kind, replica) if repair else None
    drop = partial(_withdraw, stores, kind, replica) if repair else None
    swept = _swept(kind, replica, pairs, mend, drop)
    if swept.strange:
        about = "sweep: %d %ss in %s are newer than the sweep or unknown"
        log.info(about, swept.strange, kind, replica)
    return swept


def _swept(
    kind: str,
    replica: Replica,
    pairs: Iterable[tuple[str, int]],
    mend: Callable[[list[str]], None] | None,
    drop: Callable[[list[str]], None] | None = None,
) -> Swept:
    """Count a comparison, and have what is missing mended, and what is too much looked at, a batch
    at a time."""
    sides = {-1: 0, 0: 0, 1: 0}
    named: list[str] = []
    batches: dict[int, list[str]] = {-1: [], 1: []}
    told = {-1: mend, 1: drop}
    for name, side in pairs:
        sides[side] += 1
        if side == -1 and len(named) < NAMED:
            named.append(name)
        if side and told[side]:
            batches[side].append(name)
        if side and len(batches[side]) == BATCH:
            _batch_told(batches[side], told[side])
    for side, batch in batches.items():
        _batch_told(batch, told[side])
    return Swept(kind, replica, sides[0], sides[-1], sides[1], tuple(named))


def _batch_told(batch: list[str], tell: Callable[[list[str]], None] | None) -> None:
    if batch and tell:
        tell(batch[:])
    batch.clear()


def _withdraw(stores: Stores, kind: keys.Kind, replica: Replica, names: list[str]) -> None:
    """Remove records that came after all of their purge: from a writer that slept for so long."""
    with stores.catalog.read() as tx:
        purged = purges.among(tx, kind, [FQID.parse(name) for name in names])
    purging.withdraw(stores, replica, kind, purged)
    if purged:
        log.warning("sweep: %d purged %ss were still in %s", len(purged), kind, replica)


def _compare_blobs(stores: Stores, replica: Replica, *, repair: bool) -> Swept:
    """Bytes that the catalog knows in a bucket and that are gone come back with one of their
    files; bytes that only the bucket has belong to a verification that is going on, or to none."""
    pairs = differences(_known_blobs(stores, replica), _listed_blobs(stores, replica))
    mend = partial(_bring_blobs, stores, replica) if repair else None
    return _swept("blob", replica, pairs, mend)


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
    return _swept("journal", bucket, pairs, mend)


def _bring_blobs(stores: Stores, replica: Replica, wanted: list[str]) -> None:
    with stores.catalog.read() as tx:
        found = [file_rows.with_blob(tx, sha256) for sha256 in wanted]
    _bring(stores, "file", replica, [str(fqid) for fqid in found if fqid is not None])


def _known_blobs(stores: Stores, replica: Replica) -> Iterator[str]:
    after = ""
    while True:
        with stores.catalog.read() as tx:
            settled = now_us(tx) - SETTLED_US
            page = file_rows.blobs_after(tx, replica, after, before_us=settled, limit=BATCH)
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1]


def _listed_blobs(stores: Stores, replica: Replica) -> Iterator[str]:
    for info in stores.replicas[replica].list(keys.BLOBS):
        sha256 = keys.parse_blob(info.key)
        if sha256 is not None:
            yield sha256


def _bring(stores: Stores, kind: keys.Kind, replica: Replica, names: list[str]) -> None:
    if not names:
        return
    fqids = [FQID.parse(name) for name in names]
    with stores.catalog.write() as tx:
        heads.lock(tx, kind, [fqid.uuid for fqid in fqids])
        for fqid in fqids:
            ident = ROWS[kind].published_id(tx, fqid)
            if ident is not None:
                visibility.forget_record(tx, kind, ident, replica)
        # A row that is there already is left to its own time.
        wanted = [Todo(Step.SYNC, replica, f"{kind}:{name}") for name in names]
        todo.add_new(tx, wanted)
    log.warning("sweep: %d %ss to be brought to %s", len(names), kind, replica)


def _listed(stores: Stores, kind: keys.Kind, replica: Replica) -> Iterator[str]:
    for info in stores.replicas[replica].list(keys.records(kind)):
        found = keys.parse_record(info.key)
        if found is not None:
            yield str(found.fqid)


def _known(stores: Stores, kind: keys.Kind) -> Iterator[str]:
    """Published versions by uuid, then version: a page at a time, no view held meanwhile."""
    after = FQID("", "")
    while True:
        with stores.catalog.read() as tx:
            settled = now_us(tx) - SETTLED_US
            page = ROWS[kind].published_after(tx, after, before_us=settled, limit=BATCH)
        yield from map(str, page)
        if len(page) < BATCH:
            return
        after = page[-1]


def indexing(stores: Stores, *, repair: bool = True) -> list[Swept]:
    """Compare every replica's index with what the catalog says was indexed there, and enqueue again
    what the engine lost; nobody is told twice of a bundle that is found again."""
    return [_compare_index(stores, replica, repair=repair) for replica in REPLICAS]


def _compare_index(stores: Stores, replica: Replica, *, repair: bool) -> Swept:
    held = map(str, stores.search[replica].held())
    mend = partial(_index_again, stores, replica) if repair else None
    return _swept("document", replica, differences(_indexed(stores, replica), held), mend)


def _index_again(stores: Stores, replica: Replica, wanted: list[str]) -> None:
    with stores.catalog.write() as tx:
        todo.add_new(tx, [Todo(Step.INDEX, replica, name) for name in wanted])
    log.warning("sweep: %d documents to be indexed again in %s", len(wanted), replica)


def _indexed(stores: Stores, replica: Replica) -> Iterator[str]:
    """What was said to be indexed, a page at a time."""
    after = FQID("", "")
    while True:
        with stores.catalog.read() as tx:
            settled = now_us(tx) - INDEXED_US
            page = documents.recorded_after(tx, replica, after, before_us=settled, limit=BATCH)
        yield from map(str, page)
        if len(page) < BATCH:
            return
        after = page[-1]


def reservations(stores: Stores, *, grace_s: float) -> int:
    """Enqueue the completion of reservations whose writer should have been done by now."""
    with stores.catalog.read() as tx:
        before = now_us(tx) - int(grace_s * 1e6)
        rows = [
            (kind, fqid)
            for kind in keys.KINDS
            for fqid in ROWS[kind].reserved_before(tx, before, limit=BATCH)
        ]
    if rows:
        wanted = [Todo(Step.PUBLISH, REPLICAS[0], f"{kind}:{fqid}") for kind, fqid in rows]
        with stores.catalog.write() as tx:
            todo.add_new(tx, wanted)
    return len(rows)


def unfinished_uploads(stores: Stores, *, older_than_s: float) -> int:
    """Abort multipart uploads that nobody can be working on any more."""
    with stores.catalog.read() as tx:
        rows = uploads.older_than(tx, now_us(tx) - int(older_than_s * 1e6))
    for replica, key, token in rows:
        blobs = stores.replicas[next(name for name in REPLICAS if name == replica)]
        try:
            blobs.upload(key, part_size=1, content_type="", token=token).abort()
        except NotFound:
            log.info("upload of %s to %s was gone already", key, replica)
        with stores.catalog.write() as tx:
            uploads.closed(tx, replica, key, token)
    return len(rows)


def temporaries(stores: Stores, *, older_than_s: float, now: float) -> int:
    """Remove what writers that died left in the buckets' working space."""
    buckets = (*stores.replicas.values(), stores.areas, *stores.checkouts.values())
    return sum(bucket.sweep_temporaries(older_than_s, now=now) for bucket in buckets)
