"""Scrubbing: stored bytes are read again and held to what the catalog knows of them.

Blobs by their checksums, records by their digest, journals by their manifests. What is damaged is
replaced by the other replica's, if that is right; else it is left as it is, for a human. Journals
can be made anew.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from pipelines.keeping.copying import Beat
from pipelines.keeping.integrity import ignore_progress
from pipelines.replicating import repairing
from storage.catalog import integrity
from storage.errors import StoreError
from storage.model import Replica
from storage.stores import Stores

BATCH = 100
"""Objects whose verification is recorded in one transaction."""

log = logging.getLogger(__name__)


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
    """Read a share of what a bucket holds again, and record in the catalog what was found."""
    objects = size = 0
    damaged: list[Found] = []
    intact: dict[str, int] = {}
    for info in repairing.objects(stores, replica):
        if share < 1.0 and rng.random() >= share:
            continue
        objects, size = objects + 1, size + info.size
        found = examine(stores, replica, info.key, repair=repair)
        if found is None:
            intact[info.key] = info.size
        else:
            damaged.append(found)
        if len(intact) >= BATCH:
            record_intact(stores, replica, intact)
            intact = {}
    record_intact(stores, replica, intact)
    return Verified(replica, objects, size, tuple(damaged))


def record_intact(stores: Stores, replica: Replica, sizes: Mapping[str, int]) -> None:
    """Record that objects were read just now, so many bytes each, and were right."""
    if sizes:
        with stores.catalog.write(durable=False) as tx:
            integrity.record_verified(tx, replica, sizes, size=sum(sizes.values()))


def examine(
    stores: Stores,
    replica: Replica,
    key: str,
    beat: Beat = ignore_progress,
    *,
    repair: bool,
) -> Found | None:
    """Read one object again. Damage is recorded, and repaired if that is wanted."""
    reason = repairing.find_damage(stores, replica, key, beat)
    if reason is None:
        return None
    with stores.catalog.write() as tx:
        integrity.record_damage(tx, replica, key, reason)
    found = Found(replica, key, reason, repair and _repaired(stores, replica, key, beat))
    log.error("%s in %s: %s%s", key, replica, reason, "; repaired" if found.repaired else "")
    return found


def _repaired(stores: Stores, replica: Replica, key: str, beat: Beat) -> bool:
    try:
        if repairing.repair_object(stores, replica, key, beat) == "lost":
            return False
    except StoreError as error:
        log.warning("%s in %s is not repaired: %s", key, replica, error.detail)
        return False
    with stores.catalog.write() as tx:
        integrity.record_verified(tx, replica, [key])
    return True
