"""Repair of any object of a replica's bucket, journals included; the objects that it should hold.

Blobs and records are judged and repaired by `keeping/integrity.py`, journals with their manifests
by `journalling/journal_copies.py`, which can also make them anew.
"""

from collections.abc import Callable, Iterator
from functools import partial

from pipelines.journalling import journal_copies
from pipelines.keeping import integrity
from pipelines.keeping.copying import Beat
from pipelines.keeping.integrity import Outcome, ignore_progress
from pipelines.replicating.comparing import BATCH
from storage import keys
from storage.catalog import Tx, expected, journals
from storage.model import FQID, REPLICAS, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

JOURNALS_SETTLED_US = 120_000_000
"""Age below which a journal may still be on its way to a bucket."""

Page = Callable[[Tx, FQID], list[FQID]]


def find_damage(
    stores: Stores, replica: Replica, key: str, beat: Beat = ignore_progress
) -> str | None:
    """Return what is wrong with an object, or None; a manifest is judged with its journal."""
    if (journal := keys.parse_journal(key)) is not None:
        return journal_copies.damage(stores, replica, journal)
    if keys.parse_journal_manifest(key) is not None:
        return None
    return integrity.find_damage(stores, replica, key, beat)


def is_expected(stores: Stores, replica: Replica, key: str) -> bool:
    """Return whether the catalog says that a replica holds an object."""
    journal = keys.parse_journal(key) or keys.parse_journal_manifest(key)
    if journal is None:
        return integrity.is_expected(stores, replica, key)
    with stores.catalog.read() as tx:
        found = journals.find(tx, journal)
    return found is not None and found.state == "current"


def repair_object(
    stores: Stores, replica: Replica, key: str, beat: Beat = ignore_progress
) -> Outcome:
    """Repair an object if it is damaged; see `integrity.repair_object`."""
    journal = keys.parse_journal(key) or keys.parse_journal_manifest(key)
    if journal is None:
        return integrity.repair_object(stores, replica, key, beat)
    if journal_copies.damage(stores, replica, journal) is None:
        return "intact"
    journal_copies.mend(stores, replica, journal)
    return "repaired"


def objects(stores: Stores, replica: Replica, after: str = "") -> Iterator[BlobInfo]:
    """Yield what a bucket holds or should hold, in order of keys from a key on.

    A missing object has no pin and no size.
    """
    for prefix, known in _sections(stores, replica):
        if after < prefix + "~":
            listing = stores.replicas[replica].list(prefix, after=max(after, prefix))
            yield from _merged(listing, (key for key in known() if key > after))


def _sections(stores: Stores, replica: Replica) -> list[tuple[str, Callable[[], Iterator[str]]]]:
    """Prefixes in order, each with the keys that the catalog expects below it."""
    sections: dict[str, Callable[[], Iterator[str]]] = {
        keys.BLOBS: partial(_blobs, stores, replica),
        keys.JOURNALS: partial(_journals, stores),
        keys.PURGED: partial(_marks, stores, replica, keys.purged, expected.purges_after),
        keys.TOMBSTONES: partial(
            _marks, stores, replica, keys.tombstone, expected.tombstones_after
        ),
    }
    for kind in keys.KINDS:
        sections[keys.records(kind)] = partial(_records, stores, replica, kind)
    return sorted(sections.items())


def _merged(listing: Iterator[BlobInfo], known: Iterator[str]) -> Iterator[BlobInfo]:
    """Yield what is listed, and what is not listed but known, in order of keys."""
    wanted = next(known, None)
    for info in listing:
        while wanted is not None and wanted < info.key:
            yield BlobInfo(wanted, 0, "")
            wanted = next(known, None)
        if wanted == info.key:
            wanted = next(known, None)
        yield info
    while wanted is not None:
        yield BlobInfo(wanted, 0, "")
        wanted = next(known, None)


def _blobs(stores: Stores, replica: Replica) -> Iterator[str]:
    after = ""
    while True:
        with stores.catalog.read() as tx:
            page = expected.blobs_after(tx, replica, after, limit=BATCH)
        yield from map(keys.blob, page)
        if len(page) < BATCH:
            return
        after = page[-1]


def _records(stores: Stores, replica: Replica, kind: keys.Kind) -> Iterator[str]:
    for fqid in _paged(
        stores, lambda tx, after: expected.records_after(tx, kind, replica, after, limit=BATCH)
    ):
        yield keys.record(kind, fqid)


def _marks(
    stores: Stores,
    replica: Replica,
    key_of: Callable[[keys.Kind, str, str | None], str],
    listed: Callable[..., list[FQID]],
) -> Iterator[str]:
    for kind in sorted(keys.KINDS):
        page = partial(_marks_after, listed, kind, replica)
        for fqid in _paged(stores, page):
            yield key_of(kind, fqid.uuid, fqid.version or None)


def _marks_after(
    listed: Callable[..., list[FQID]], kind: str, replica: Replica, tx: Tx, after: FQID
) -> list[FQID]:
    return listed(tx, kind, replica, after, limit=BATCH)


def _paged(stores: Stores, page_after: Page) -> Iterator[FQID]:
    after = FQID("", "")
    while True:
        with stores.catalog.read() as tx:
            page = page_after(tx, after)
        yield from page
        if len(page) < BATCH:
            return
        after = page[-1]


def _journals(stores: Stores) -> Iterator[str]:
    for replica in sorted(REPLICAS):
        for name in journal_copies.known(stores, replica, settled_us=JOURNALS_SETTLED_US):
            yield name.partition(" ")[0]
