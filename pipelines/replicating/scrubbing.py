"""Scrubbing: stored bytes are read again and held to what the catalog knows of them.

Blobs by their checksums, records by their digest, journals by their manifests. What is damaged is
replaced by the other replica's, if that is right; else it is left as it is, for a human. Journals
can be made anew.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from pipelines.journalling import journal_copies
from pipelines.keeping import copying, placing, readback
from storage import keys
from storage.catalog import files as file_rows
from storage.catalog import switches
from storage.errors import Damaged, NotFound, StoreError
from storage.model import REPLICAS, Checksums, Replica
from storage.protocols import BlobInfo, BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

CURSOR = "scrub"
LEAST = 4096
"""Bytes that an object counts at least: asking for it costs something too."""


@dataclass(frozen=True, slots=True)
class Found:
    """One object that is not what it should be; `repaired` says what became of it."""

    replica: Replica
    key: str
    reason: str
    repaired: bool


@dataclass(frozen=True, slots=True)
class Verified:
    """What a scrub of one replica read."""

    replica: Replica
    objects: int
    size: int
    damaged: tuple[Found, ...]


def verify(
    stores: Stores, replica: Replica, *, rng: Random, share: float = 1.0, repair: bool = False
) -> Verified:
    """Read a share of what a bucket holds again."""
    objects = size = 0
    damaged: list[Found] = []
    for info in _objects(stores, replica, ""):
        if share < 1.0 and rng.random() >= share:
            continue
        objects, size = objects + 1, size + info.size
        reason = _wrong(stores, replica, info)
        if reason is not None:
            mended = repair and _repaired(stores, replica, info)
            damaged.append(Found(replica, info.key, reason, mended))
            log.error("%s in %s: %s%s", info.key, replica, reason, "; repaired" if mended else "")
    return Verified(replica, objects, size, tuple(damaged))


def turn(stores: Stores, budget: int) -> list[Found]:
    """Go on where the last turn ended, for about so many bytes; begin anew at the end. What is
    damaged is repaired at once."""
    damaged: list[Found] = []
    if budget <= 0:
        return damaged
    with stores.catalog.read() as tx:
        place = switches.value(tx, CURSOR) or REPLICAS[0]
    name, _, after = place.partition(" ")
    replica = next(one for one in REPLICAS if one == name)
    following = REPLICAS[(REPLICAS.index(replica) + 1) % len(REPLICAS)]
    place = following
    for info in _objects(stores, replica, after):
        if (reason := _wrong(stores, replica, info)) is not None:
            damaged.append(Found(replica, info.key, reason, _repaired(stores, replica, info)))
            log.error("scrub: %s", damaged[-1])
        budget -= max(info.size, LEAST)
        if budget <= 0:
            place = f"{replica} {info.key}"
            break
    with stores.catalog.write() as tx:
        switches.put(tx, CURSOR, place)
    return damaged


def _objects(stores: Stores, replica: Replica, after: str) -> Iterator[BlobInfo]:
    for prefix in (keys.BLOBS, *sorted(map(keys.records, keys.KINDS)), keys.JOURNALS):
        if after < prefix + "~":
            yield from stores.replicas[replica].list(prefix, after=max(after, prefix))


def _wrong(stores: Stores, replica: Replica, info: BlobInfo) -> str | None:
    """Why an object is not what its key says, None if it is, or is gone since."""
    bucket = stores.replicas[replica]
    with suppress(NotFound):
        sha256 = keys.parse_blob(info.key)
        if sha256 is not None:
            return _blob(bucket, info, sha256)
        if info.key.startswith(keys.JOURNALS):
            return _journal(stores, replica, info.key)
        try:
            _record(info.key, placing.whole(bucket, info.key))
        except Damaged as error:
            return error.detail
    return None


def _blob(bucket: BlobStore, info: BlobInfo, sha256: str) -> str | None:
    digest = hashlib.sha256()
    try:
        for block in bucket.read(info.key):
            digest.update(block)
    except Damaged as error:
        return error.detail
    return None if digest.hexdigest() == sha256 else "its bytes are others than its key says"


def _journal(stores: Stores, replica: Replica, key: str) -> str | None:
    """Looked at with its manifest, once."""
    found = keys.parse_journal(key)
    return None if found is None else journal_copies.damage(stores, replica, found)


def _record(key: str, data: bytes) -> None:
    found = keys.parse_record(key)
    if found is None:
        return
    if found.kind == "file":
        readback.file(found, data)
    elif found.kind == "bundle":
        readback.bundle(found, data)
    else:
        readback.collection(found, data)


def _repaired(stores: Stores, replica: Replica, info: BlobInfo) -> bool:
    """Replace it by the other replica's, which is looked at first; have a journal put back."""
    if (journal := keys.parse_journal(info.key)) is not None:
        journal_copies.mend(stores, replica, journal)
        return True
    for name in REPLICAS:
        if name == replica:
            continue
        try:
            return _replaced(stores, name, replica, info)
        except (StoreError, NotFound) as error:
            log.warning("%s in %s is not repaired: %s", info.key, replica, error.detail)
    return False


def _replaced(stores: Stores, source: Replica, target: Replica, info: BlobInfo) -> bool:
    other = stores.replicas[source].head(info.key)
    if _wrong(stores, source, other) is not None:
        return False
    sha256 = keys.parse_blob(info.key)
    if sha256 is None:
        data = placing.whole(stores.replicas[source], info.key)
        stores.replicas[target].delete(info.key, pin=info.pin)
        return placing.place(
            stores.replicas[target], info.key, data, content_type="application/json"
        )
    sums = _checksums(stores, sha256)
    if sums is None:
        return False
    stores.replicas[target].delete(info.key, pin=info.pin)
    copying.copy(
        stores.replicas[source],
        stores.replicas[target],
        info.key,
        info.key,
        size=other.size,
        checksums=sums,
    )
    return True


def _checksums(stores: Stores, sha256: str) -> Checksums | None:
    with stores.catalog.read() as tx:
        return file_rows.checksums_of(tx, sha256)
