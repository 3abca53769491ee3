"""Scrubbing: stored bytes are read again and held to what the catalog knows of them.

Blobs by their checksums, records by their digest, journals by their manifests. What is damaged is
replaced by the other replica's, if that is right; else it is left as it is, for a human. Journals
can be made anew.
"""

import logging
from dataclasses import dataclass
from random import Random

from pipelines.replicating import repairing
from storage.catalog import switches
from storage.errors import StoreError
from storage.model import REPLICAS, Replica
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
    for info in repairing.objects(stores, replica):
        if share < 1.0 and rng.random() >= share:
            continue
        objects, size = objects + 1, size + info.size
        found = _examined(stores, replica, info.key, repair=repair)
        damaged += [] if found is None else [found]
    return Verified(replica, objects, size, tuple(damaged))


def _examined(stores: Stores, replica: Replica, key: str, *, repair: bool) -> Found | None:
    """Read one object again, and repair it if that is wanted."""
    reason = repairing.find_damage(stores, replica, key)
    if reason is None:
        return None
    found = Found(replica, key, reason, repair and _repaired(stores, replica, key))
    log.error("%s in %s: %s%s", key, replica, reason, "; repaired" if found.repaired else "")
    return found


def _repaired(stores: Stores, replica: Replica, key: str) -> bool:
    try:
        return repairing.repair_object(stores, replica, key) != "lost"
    except StoreError as error:
        log.warning("%s in %s is not repaired: %s", key, replica, error.detail)
        return False


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
    for info in repairing.objects(stores, replica, after):
        found = _examined(stores, replica, info.key, repair=True)
        damaged += [] if found is None else [found]
        budget -= max(info.size, LEAST)
        if budget <= 0:
            place = f"{replica} {info.key}"
            break
    with stores.catalog.write() as tx:
        switches.put(tx, CURSOR, place)
    return damaged
