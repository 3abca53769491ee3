"""Sweeps: scheduled comparisons that enqueue what is missing, and cleaning up after the dead.

Comparing is a merge of two sorted streams; repairing adds the ordinary to-do row.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipelines.flow import Step
from storage import keys
from storage.catalog import bundles as bundle_rows
from storage.catalog import documents, heads, now_us, todo, uploads, visibility
from storage.catalog import files as file_rows
from storage.errors import NotFound
from storage.model import FQID, REPLICAS, Replica, Todo
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH = 1_000
SETTLED_US = 120_000_000
"""Age below which a version is left to its own to-do rows."""
INDEXED_US = 5_000_000
"""The same of what was recorded only once it could be found: a page of the index may be older than
the page of the catalog that it is compared with."""
KINDS: tuple[keys.Kind, ...] = ("file", "bundle")


@dataclass(frozen=True, slots=True)
class Swept:
    """What one comparison of a kind in a replica found."""

    kind: str
    replica: Replica
    seen: int
    missing: int
    strange: int


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


def replication(stores: Stores) -> list[Swept]:
    """Compare every bucket's records with the catalog, and enqueue the repair of what differs."""
    records = [_compare(stores, kind, replica) for kind in KINDS for replica in REPLICAS]
    return records + [_compare_blobs(stores, replica) for replica in REPLICAS]


def _compare(stores: Stores, kind: keys.Kind, replica: Replica) -> Swept:
    """A record that the catalog knows and the bucket lacks is brought again; one that only the
    bucket has is left alone, unless it stays unknown: then somebody should look."""
    both, lacking, strange = 0, 0, 0
    batch: list[str] = []
    for name, side in differences(_known(stores, kind), _listed(stores, kind, replica)):
        both += side == 0
        lacking += side == -1
        strange += side == 1
        if side == -1:
            batch.append(name)
        if len(batch) == BATCH:
            _bring(stores, kind, replica, batch)
            batch = []
    _bring(stores, kind, replica, batch)
    if strange:
        log.info("sweep: %d %ss in %s are newer than the sweep or unknown", strange, kind, replica)
    return Swept(kind, replica, both, lacking, strange)


def _compare_blobs(stores: Stores, replica: Replica) -> Swept:
    """Bytes that the catalog knows in a bucket and that are gone come back with one of their
    files; bytes that only the bucket has belong to a verification that is going on, or to none."""
    both, lacking, strange = 0, 0, 0
    for sha256, side in differences(_known_blobs(stores, replica), _listed_blobs(stores, replica)):
        both += side == 0
        lacking += side == -1
        strange += side == 1
        if side == -1:
            with stores.catalog.read() as tx:
                fqid = file_rows.with_blob(tx, sha256)
            _bring(stores, "file", replica, [] if fqid is None else [str(fqid)])
    return Swept("blob", replica, both, lacking, strange)


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
    rows = file_rows if kind == "file" else bundle_rows
    fqids = [FQID.parse(name) for name in names]
    with stores.catalog.write() as tx:
        heads.lock(tx, kind, [fqid.uuid for fqid in fqids])
        for fqid in fqids:
            ident = rows.published_id(tx, fqid)
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
    rows = file_rows if kind == "file" else bundle_rows
    after = FQID("", "")
    while True:
        with stores.catalog.read() as tx:
            settled = now_us(tx) - SETTLED_US
            page = rows.published_after(tx, after, before_us=settled, limit=BATCH)
        yield from map(str, page)
        if len(page) < BATCH:
            return
        after = page[-1]


def indexing(stores: Stores) -> list[Swept]:
    """Compare every replica's index with what the catalog says was indexed there, and enqueue again
    what the engine lost; nobody is told twice of a bundle that is found again."""
    return [_compare_index(stores, replica) for replica in REPLICAS]


def _compare_index(stores: Stores, replica: Replica) -> Swept:
    both, lacking, strange = 0, 0, 0
    batch: list[Todo] = []
    held = map(str, stores.search[replica].held())
    for name, side in differences(_indexed(stores, replica), held):
        both += side == 0
        lacking += side == -1
        strange += side == 1
        if side == -1:
            batch.append(Todo(Step.INDEX, replica, name))
        if len(batch) == BATCH:
            _index_again(stores, batch)
            batch = []
    _index_again(stores, batch)
    return Swept("document", replica, both, lacking, strange)


def _index_again(stores: Stores, wanted: list[Todo]) -> None:
    if not wanted:
        return
    with stores.catalog.write() as tx:
        todo.add_new(tx, wanted)
    log.warning("sweep: %d documents to be indexed again in %s", len(wanted), wanted[0].replica)


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
            *(("file", fqid) for fqid in file_rows.reserved_before(tx, before, limit=BATCH)),
            *(("bundle", fqid) for fqid in bundle_rows.reserved_before(tx, before, limit=BATCH)),
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
