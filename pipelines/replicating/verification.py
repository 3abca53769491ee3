"""Verify stored objects, repair damaged ones, and record the findings in the catalog.

`ops verify` reads a whole bucket, the scrub (`scrub.py`) one object after the other within its
budget, and a repair job (REPAIR, ordered by reads and sweeps) a single one. All call `examine`.
Without an intact copy in the other replica an object stays as it is, listed as damaged.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from pipelines import flow
from pipelines.keeping.copying import Beat, ignore_progress
from pipelines.replicating import stored_objects
from storage.catalog import integrity, todo
from storage.errors import StoreError
from storage.model import Claim, Replica, Todo
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
    """Objects and bytes of one replica that were read again, and those that are damaged."""

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
    for info in stored_objects.list_objects(stores, replica):
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
    reason = stored_objects.find_damage(stores, replica, key, beat)
    if reason is None:
        return None
    with stores.catalog.write() as tx:
        integrity.record_damage(tx, replica, key, reason)
    found = Found(replica, key, reason, repair and _repaired(stores, replica, key, beat))
    log.error("%s in %s: %s%s", key, replica, reason, "; repaired" if found.repaired else "")
    return found


def _repaired(stores: Stores, replica: Replica, key: str, beat: Beat) -> bool:
    try:
        if stored_objects.repair_object(stores, replica, key, beat) == "lost":
            return False
    except StoreError as error:
        log.warning("%s in %s is not repaired: %s", key, replica, error.detail)
        return False
    with stores.catalog.write() as tx:
        integrity.record_verified(tx, replica, [key])
    return True


def run_repair(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Run a repair job: examine one object, and repair it if it is damaged."""
    replica, key = flow.replica_of(claim.todo), claim.todo.ref
    if examine(stores, replica, key, beat, repair=True) is None:
        close_damage(stores, replica, key)
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()


def close_damage(stores: Stores, replica: Replica, key: str) -> None:
    """Take an object off the list of damage: it is intact, or was removed on purpose."""
    is_expected = stored_objects.is_expected(stores, replica, key)
    with stores.catalog.write() as tx:
        if is_expected:
            integrity.record_verified(tx, replica, [key])
        else:
            integrity.forget(tx, replica, key)
