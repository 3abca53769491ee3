"""Stored objects of a replica: list all that it holds or should hold, find damage, repair one.

Blobs and records are judged and repaired by `keeping/integrity.py`, journals with their manifests
by `journalling/journal_copies.py`, which can also make them anew.
"""

from collections.abc import Callable, Iterator
from functools import partial

from pipelines.journalling import journal_copies
from pipelines.keeping import integrity
from pipelines.keeping.copying import Beat, ignore_progress
from pipelines.keeping.integrity import Outcome
from pipelines.replicating.comparing import BATCH, paged
from storage import keys
from storage.catalog import Tx, expected, journals
from storage.model import FQID, REPLICAS, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

JOURNALS_SETTLED_US = 120_000_000
"""Age below which a journal may still be on its way to a bucket."""

Listing = Callable[..., list[FQID]]
"""`records_after` of the expected objects, or its like for tombstones and purges."""


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


def list_objects(stores: Stores, replica: Replica, after: str = "") -> Iterator[BlobInfo]:
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


def journals_and_purges(stores: Stores, replica: Replica) -> Iterator[str]:
    """Yield keys of journals, their manifests and purge markers that a bucket should hold."""
    for prefix, known in _sections(stores, replica):
        if prefix in (keys.JOURNALS, keys.PURGED):
            yield from known()


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
    def page(tx: Tx, after: str, _before_us: int) -> list[str]:
        return expected.blobs_after(tx, replica, after, limit=BATCH)

    return map(keys.blob, paged(stores, page, "", settled_us=0))


def _records(stores: Stores, replica: Replica, kind: keys.Kind) -> Iterator[str]:
    for fqid in _versions(stores, replica, kind, expected.records_after):
        yield keys.record(kind, fqid)


def _marks(
    stores: Stores,
    replica: Replica,
    key_of: Callable[[keys.Kind, str, str | None], str],
    listed: Listing,
) -> Iterator[str]:
    for kind in sorted(keys.KINDS):
        for fqid in _versions(stores, replica, kind, listed):
            yield key_of(kind, fqid.uuid, fqid.version or None)


def _versions(stores: Stores, replica: Replica, kind: keys.Kind, listed: Listing) -> Iterator[FQID]:
    def page(tx: Tx, after: FQID, _before_us: int) -> list[FQID]:
        return listed(tx, kind, replica, after, limit=BATCH)

    return paged(stores, page, FQID("", ""), settled_us=0)


def _journals(stores: Stores) -> Iterator[str]:
    for replica in sorted(REPLICAS):
        for name in journal_copies.known(stores, replica, settled_us=JOURNALS_SETTLED_US):
            yield name.partition(" ")[0]
