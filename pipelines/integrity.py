"""Find damage of a stored object, and repair it from another replica.

An object is judged by its key alone: a blob by its SHA-256, a record by its digest and by what the
catalog says was written. Everything that looks for damage (verify, scrub, sweep, sync, reads) calls
`find_damage`, and everything that repairs calls `repair_object`. That replaces an object only after
its stored bytes were read again and found wrong, and only by verified bytes. If no replica has
them, nothing is overwritten.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Literal

import orjson

from pipelines import copies, records
from pipelines.flow import Heartbeat, ignore_progress
from pipelines.limits import SEGMENT_ENTRIES
from storage import keys
from storage.catalog import Tx, bundles, collections, files, integrity, purges, versions
from storage.errors import DamagedObjectError, NotFoundError, SourceChanged
from storage.keys import MarkerKey, RecordKey
from storage.metrics import REPAIRED_BYTES
from storage.model import FQID, REPLICAS, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

RepairOutcome = Literal["intact", "repaired", "lost"]
"""Result of a repair; `lost`: no other replica has an intact copy, nothing was overwritten."""

MISSING = "it is missing"
CHANGED = "its bytes differ from its key"
REWRITTEN = "its bytes differ from those that were written"


# Finding damage -----------------------------------------------------------------------------------


def find_damage(
    stores: Stores, replica: Replica, key: str, heartbeat: Heartbeat = ignore_progress
) -> str | None:
    """Read an object again; return what is wrong with it, or None.

    An absent object is damaged if the catalog expects it there. An object with valid content that
    differs from the catalog's has diverged: that is no damage, and has a separate alarm.
    """
    try:
        return _find_defect(stores, replica, key, heartbeat)
    except NotFoundError:
        return MISSING if is_expected(stores, replica, key) else None


def is_expected(stores: Stores, replica: Replica, key: str) -> bool:
    """Return whether the catalog says that a replica holds an object."""
    with stores.catalog.read() as tx:
        if (sha256 := keys.parse_blob(key)) is not None:
            return integrity.is_blob_expected(tx, replica, sha256)
        if (record := keys.parse_record(key)) is not None:
            return integrity.is_expected(tx, "record", record.kind, replica, record.fqid)
        if (stone := keys.parse_tombstone(key)) is not None:
            return integrity.is_expected(tx, "tombstone", stone.kind, replica, _marker_fqid(stone))
        if (purge := keys.parse_purge_marker(key)) is not None:
            return integrity.is_expected(tx, "purge", purge.kind, replica, _marker_fqid(purge))
    return False


def _marker_fqid(key: MarkerKey) -> FQID:
    return FQID(key.uuid, key.version or "")


def _find_defect(stores: Stores, replica: Replica, key: str, heartbeat: Heartbeat) -> str | None:
    """Return what is wrong with an existing object, or None; raise NotFoundError."""
    bucket, sha256 = stores.replicas[replica], keys.parse_blob(key)
    try:
        if sha256 is None:
            return _find_record_defect(stores, key, records.read_object(bucket, key))
        return None if copies.hash_blob(bucket, key, heartbeat) == sha256 else CHANGED
    except (DamagedObjectError, SourceChanged) as error:
        return error.detail


def _find_record_defect(stores: Stores, key: str, data: bytes) -> str | None:
    """Return what is wrong with a record's bytes, or None."""
    check_record(key, data)
    expected = rebuild_record(stores, key)
    if expected is None or data == expected:
        return None
    # A digest covers the content only; the other members must be the catalog's.
    same_digest = orjson.loads(data)["digest"] == orjson.loads(expected)["digest"]
    return REWRITTEN if same_digest else None


def check_record(key: str, data: bytes) -> None:
    """Raise Damaged if a record's bytes contradict its key or digest; ignore other keys."""
    if (record := keys.parse_record(key)) is not None:
        _RECORD_PARSERS[record.kind](record, data)
    elif (stone := keys.parse_tombstone(key)) is not None:
        records.parse_tombstone_record(stone, data)
    elif (purge := keys.parse_purge_marker(key)) is not None:
        records.parse_purge_record(purge, data)


_RECORD_PARSERS: Mapping[str, Callable[[RecordKey, bytes], object]] = {
    "file": records.parse_file_record,
    "bundle": records.parse_bundle_record,
    "collection": records.parse_collection_record,
}


# What was written --------------------------------------------------------------------------


def rebuild_record(stores: Stores, key: str) -> bytes | None:
    """Return a record, byte for byte, from the catalog's rows; None if there are none."""
    with stores.catalog.read() as tx:
        if (record := keys.parse_record(key)) is not None:
            return _rebuild_version(tx, record)
        if (stone := keys.parse_tombstone(key)) is not None:
            tombstone = versions.find_tombstone(tx, stone.kind, stone.uuid, stone.version or "")
            return None if tombstone is None else records.encode_marker_record(tombstone)
        if (marker := keys.parse_purge_marker(key)) is not None:
            purge = purges.find(tx, marker.kind, marker.uuid, marker.version or "")
            return None if purge is None else records.encode_marker_record(purge)
    return None


def _rebuild_version(tx: Tx, key: RecordKey) -> bytes | None:
    if key.kind == "file":
        file = files.find(tx, key.fqid)
        return None if file is None else records.encode_file_record(file)
    if key.kind == "bundle":
        bundle = bundles.find(tx, key.fqid)
        if bundle is None:
            return None
        count = bundle.file_count
        entries = bundles.list_entries(tx, bundle.id, start=0, limit=count, span=SEGMENT_ENTRIES)
        lines = records.encode_stored_entries(entries)
        manifest = records.encode_manifest(bundle.creator_uid, lines)
        return records.encode_bundle_record(bundle, manifest)
    collection = collections.find(tx, key.fqid)
    if collection is None:
        return None
    runs = collections.list_link_segments(tx, collection.id)
    links = [link for run in runs for link in run.links]
    return records.encode_collection_record(collection, links)


def find_expected_size(stores: Stores, key: str) -> int:
    """Return the size that a blob or record should have; 0 if the catalog has no rows of it."""
    if (sha256 := keys.parse_blob(key)) is not None:
        with stores.catalog.read() as tx:
            return integrity.find_blob_size(tx, sha256) or 0
    return len(rebuild_record(stores, key) or b"")


# Writing -----------------------------------------------------------------------------------


def put_or_repair_record(stores: Stores, replica: Replica, key: str, data: bytes) -> bool:
    """Put a record into a bucket, or repair the existing one if it is damaged.

    Return False if the bucket keeps other bytes: valid ones, or damaged ones without an intact
    copy in another replica.
    """
    bucket = stores.replicas[replica]
    try:
        if records.put_if_absent(bucket, key, data, content_type=records.CONTENT_TYPE):
            return True
    except DamagedObjectError as error:
        log.warning("%s in %s: %s", key, replica, error.detail)
    return (
        repair_object(stores, replica, key) != "lost" and records.read_object(bucket, key) == data
    )


# Repairing ---------------------------------------------------------------------------------


def repair_object(
    stores: Stores, replica: Replica, key: str, heartbeat: Heartbeat = ignore_progress
) -> RepairOutcome:
    """Replace an object, if it is damaged, by another replica's verified bytes.

    Raise Damaged if it is still damaged afterwards, Unavailable while a bucket is unreachable.
    """
    reason = find_damage(stores, replica, key, heartbeat)
    if reason is None:
        return "intact"
    if not any(
        _replace_from(stores, other, replica, key, heartbeat)
        for other in REPLICAS
        if other != replica
    ):
        log.error("%s in %s: %s, and no other replica has an intact copy", key, replica, reason)
        return "lost"
    if (left := find_damage(stores, replica, key, heartbeat)) is not None:
        raise DamagedObjectError(f"{key} in {replica} is still damaged after its repair: {left}")
    log.warning("%s in %s: %s; repaired", key, replica, reason)
    REPAIRED_BYTES.labels(replica).inc(find_expected_size(stores, key))
    return "repaired"


def _replace_from(
    stores: Stores, source: Replica, target: Replica, key: str, heartbeat: Heartbeat
) -> bool:
    """Replace a damaged object by the source's; return False if that is damaged, too."""
    here, there = stores.replicas[target], stores.replicas[source]
    try:
        if (sha256 := keys.parse_blob(key)) is not None:
            size = there.head(key).size
            copies.replace_damaged(
                there, here, key, key, size=size, sha256=sha256, heartbeat=heartbeat
            )
            return True
        data = records.read_object(there, key)
        check_record(key, data)
        if rebuild_record(stores, key) not in (None, data):
            return False
    except (DamagedObjectError, NotFoundError, SourceChanged):
        return False
    here.put(key, data, content_type=records.CONTENT_TYPE, replace=True)
    if (record := keys.parse_record(key)) is not None:
        with stores.catalog.read() as tx:
            purged = purges.filter_purged(tx, record.kind, [record.fqid])
        delete_late_records(stores, target, record.kind, purged)
    return True


def delete_late_records(
    stores: Stores, replica: Replica, kind: keys.Kind, purged: Mapping[FQID, bool]
) -> None:
    """Delete records that were put after the markers of their purges, which do not come again.

    `purged` says of each version whether its marker was written; ERASE deletes the other records.
    """
    for fqid, marked in purged.items():
        if marked:
            stores.replicas[replica].delete(keys.record_key(kind, fqid))
