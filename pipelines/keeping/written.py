"""The bytes of a record as they were written, made anew from the catalog's rows."""

from pipelines.keeping import records
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.catalog import bundles, collections, files, link_segments, purges, tombstones
from storage.keys import MarkKey, RecordKey
from storage.model import FQID
from storage.stores import Stores


def record(stores: Stores, key: str) -> bytes | None:
    """Return the bytes that should lie under a key; None if the catalog knows no such record."""
    if (found := keys.parse_record(key)) is not None:
        return _of_version(stores, found)
    if (stone := keys.parse_tombstone(key)) is not None:
        return _of_tombstone(stores, stone)
    if (purge := keys.parse_purged(key)) is not None:
        return _of_purge(stores, purge)
    return None


def _of_version(stores: Stores, key: RecordKey) -> bytes | None:
    if key.kind == "file":
        with stores.catalog.read() as tx:
            file = files.by_fqid(tx, key.fqid)
        return None if file is None else records.of_file(file)
    if key.kind == "bundle":
        return _of_bundle(stores, key.fqid)
    with stores.catalog.read() as tx:
        row = collections.by_fqid(tx, key.fqid)
        runs = [] if row is None else link_segments.of_collection(tx, row.id)
    links = [link for run in runs for link in run.links]
    return None if row is None else records.of_collection(row, links)


def _of_bundle(stores: Stores, fqid: FQID) -> bytes | None:
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
        if row is None:
            return None
        count = row.bundle.file_count
        found = bundles.page(tx, row.bundle.id, start=0, limit=count, span=SEGMENT_ENTRIES)
    lines = [records.entry(line) for line in found]
    return records.of_bundle(row, records.manifest(row.bundle.creator_uid, lines))


def _of_tombstone(stores: Stores, key: MarkKey) -> bytes | None:
    with stores.catalog.read() as tx:
        row = tombstones.find(tx, key.kind, key.uuid, key.version or "")
    return None if row is None else records.of_tombstone(row)


def _of_purge(stores: Stores, key: MarkKey) -> bytes | None:
    with stores.catalog.read() as tx:
        row = purges.find(tx, key.kind, key.uuid, key.version or "")
    return None if row is None else records.of_purge(row)
