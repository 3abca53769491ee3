"""Integrity of one stored object: find damage, and repair it from another replica.

An object is judged by its key alone: a blob by its SHA-256, a record by its digest and by what the
catalog says was written. Everything that looks for damage (verify, scrub, sweep, sync, reads) asks
`find_damage`, and everything that heals calls `repair`, which replaces an object only after its
stored bytes were read again and found wrong, and only by bytes that were verified. If no replica
has such bytes, nothing is overwritten.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Literal

import orjson

from pipelines.keeping import copying, placing, readback, records, repair
from pipelines.keeping.copying import Beat, ignore_progress
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.catalog import bundles, collections, expected, files, link_segments, purges, tombstones
from storage.errors import Damaged, NotFound, SourceChanged
from storage.keys import MarkKey, RecordKey
from storage.model import FQID, REPLICAS, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

Outcome = Literal["intact", "repaired", "lost"]
"""What a repair came to; `lost`: no other replica has a whole copy, nothing was overwritten."""

MISSING = "it is missing"
CHANGED = "its bytes are others than its key says"
REWRITTEN = "its bytes are others than were written"


# Finding -----------------------------------------------------------------------------------


def find_damage(
    stores: Stores, replica: Replica, key: str, beat: Beat = ignore_progress
) -> str | None:
    """Read an object again; return what is wrong with it, or None.

    An absent object is damaged if the catalog expects it there. An object of other, but valid,
    content than the catalog's has diverged: that is alarmed elsewhere, and is no damage.
    """
    try:
        return _defect(stores, replica, key, beat)
    except NotFound:
        return MISSING if is_expected(stores, replica, key) else None


def is_expected(stores: Stores, replica: Replica, key: str) -> bool:
    """Return whether the catalog says that a replica holds an object."""
    with stores.catalog.read() as tx:
        if (sha256 := keys.parse_blob(key)) is not None:
            return expected.has_blob(tx, replica, sha256)
        if (found := keys.parse_record(key)) is not None:
            return expected.has_record(tx, found.kind, replica, found.fqid)
        if (stone := keys.parse_tombstone(key)) is not None:
            return expected.has_tombstone(tx, stone.kind, replica, _marked(stone))
        if (purge := keys.parse_purged(key)) is not None:
            return expected.has_purge(tx, purge.kind, replica, _marked(purge))
    return False


def _marked(key: MarkKey) -> FQID:
    return FQID(key.uuid, key.version or "")


def _defect(stores: Stores, replica: Replica, key: str, beat: Beat) -> str | None:
    """Return what is wrong with an object that is there; NotFound."""
    bucket, sha256 = stores.replicas[replica], keys.parse_blob(key)
    try:
        if sha256 is None:
            return _record_defect(stores, key, placing.whole(bucket, key))
        return None if repair.hash_blob(bucket, key, beat) == sha256 else CHANGED
    except (Damaged, SourceChanged) as error:
        return error.detail


def _record_defect(stores: Stores, key: str, data: bytes) -> str | None:
    """Return what is wrong with a record's bytes. A digest covers content only; the catalog tells
    the rest."""
    parse_record(key, data)
    right = rebuild_record(stores, key)
    if right is None or data == right:
        return None
    same = orjson.loads(data)["digest"] == orjson.loads(right)["digest"]
    return REWRITTEN if same else None


def parse_record(key: str, data: bytes) -> None:
    """Hold a record's bytes to its key and digest; Damaged. What is no record passes."""
    if (found := keys.parse_record(key)) is not None:
        _OF_VERSION[found.kind](found, data)
    elif (stone := keys.parse_tombstone(key)) is not None:
        readback.tombstone(stone, data)
    elif (purge := keys.parse_purged(key)) is not None:
        readback.purge(purge, data)


_OF_VERSION: Mapping[str, Callable[[RecordKey, bytes], object]] = {
    "file": readback.file,
    "bundle": readback.bundle,
    "collection": readback.collection,
}


# What was written --------------------------------------------------------------------------


def rebuild_record(stores: Stores, key: str) -> bytes | None:
    """Make a record anew, byte for byte, from the catalog's rows; None if it is not there."""
    if (found := keys.parse_record(key)) is not None:
        return _rebuild_version(stores, found)
    if (stone := keys.parse_tombstone(key)) is not None:
        return _rebuild_tombstone(stores, stone)
    if (purge := keys.parse_purged(key)) is not None:
        return _rebuild_purge(stores, purge)
    return None


def _rebuild_version(stores: Stores, key: RecordKey) -> bytes | None:
    if key.kind == "file":
        with stores.catalog.read() as tx:
            file = files.by_fqid(tx, key.fqid)
        return None if file is None else records.of_file(file)
    if key.kind == "bundle":
        return _rebuild_bundle(stores, key.fqid)
    with stores.catalog.read() as tx:
        row = collections.by_fqid(tx, key.fqid)
        runs = [] if row is None else link_segments.of_collection(tx, row.id)
    links = [link for run in runs for link in run.links]
    return None if row is None else records.of_collection(row, links)


def _rebuild_bundle(stores: Stores, fqid: FQID) -> bytes | None:
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
        if row is None:
            return None
        count = row.bundle.file_count
        found = bundles.page(tx, row.bundle.id, start=0, limit=count, span=SEGMENT_ENTRIES)
    manifest = records.manifest(row.bundle.creator_uid, records.stored_json(found))
    return records.of_bundle(row, manifest)


def _rebuild_tombstone(stores: Stores, key: MarkKey) -> bytes | None:
    with stores.catalog.read() as tx:
        row = tombstones.find(tx, key.kind, key.uuid, key.version or "")
    return None if row is None else records.of_tombstone(row)


def _rebuild_purge(stores: Stores, key: MarkKey) -> bytes | None:
    with stores.catalog.read() as tx:
        row = purges.find(tx, key.kind, key.uuid, key.version or "")
    return None if row is None else records.of_purge(row)


# Writing -----------------------------------------------------------------------------------


def place_record(stores: Stores, replica: Replica, key: str, data: bytes) -> bool:
    """Put a record into a bucket, or repair the one that lies there if it is damaged.

    False if other bytes are left there: valid ones, or damaged ones of which no replica has a
    whole copy.
    """
    bucket = stores.replicas[replica]
    try:
        if placing.place(bucket, key, data, content_type=records.CONTENT_TYPE):
            return True
    except Damaged as error:
        log.warning("%s in %s: %s", key, replica, error.detail)
    return repair_object(stores, replica, key) != "lost" and placing.whole(bucket, key) == data


# Repairing ---------------------------------------------------------------------------------


def repair_object(
    stores: Stores, replica: Replica, key: str, beat: Beat = ignore_progress
) -> Outcome:
    """Read an object again, and if it is damaged replace it by another replica's verified bytes.

    Damaged if the object is still damaged afterwards; Unavailable while a bucket is away.
    """
    reason = find_damage(stores, replica, key, beat)
    if reason is None:
        return "intact"
    if not any(_replaced(stores, other, replica, key, beat) for other in _others(replica)):
        log.error("%s in %s: %s, and no other replica has a whole copy", key, replica, reason)
        return "lost"
    if (left := find_damage(stores, replica, key, beat)) is not None:
        raise Damaged(f"{key} in {replica} is still damaged after its repair: {left}")
    log.warning("%s in %s: %s; repaired", key, replica, reason)
    return "repaired"


def _others(replica: Replica) -> list[Replica]:
    return [name for name in REPLICAS if name != replica]


def _replaced(stores: Stores, source: Replica, target: Replica, key: str, beat: Beat) -> bool:
    """Replace an object that was found damaged by the source's; False if that is not whole."""
    here, there = stores.replicas[target], stores.replicas[source]
    try:
        if (sha256 := keys.parse_blob(key)) is not None:
            size = there.head(key).size
            copying.replace(there, here, key, key, size=size, sha256=sha256, beat=beat)
            return True
        data = placing.whole(there, key)
        if not _is_whole(stores, key, data):
            return False
    except (Damaged, NotFound, SourceChanged):
        return False
    here.put(key, data, content_type=records.CONTENT_TYPE, replace=True)
    _withdraw_purged(stores, target, key)
    return True


def _withdraw_purged(stores: Stores, replica: Replica, key: str) -> None:
    """Remove a record that came to a bucket after its purge marker: the purge has been there."""
    found = keys.parse_record(key)
    if found is None:
        return
    with stores.catalog.read() as tx:
        purged = purges.among(tx, found.kind, [found.fqid])
    if purged.get(found.fqid):
        stores.replicas[replica].delete(key)


def _is_whole(stores: Stores, key: str, data: bytes) -> bool:
    """Return whether a record's bytes may take the place of a damaged one; Damaged."""
    parse_record(key, data)
    # One that has diverged is valid, too.
    return rebuild_record(stores, key) in (None, data)
