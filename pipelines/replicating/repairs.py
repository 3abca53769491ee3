"""Repairs that reads and sweeps order: one job for each damaged object."""

from pipelines import flow
from pipelines.keeping.copying import Beat
from pipelines.replicating import repairing, scrubbing
from storage.catalog import integrity, todo
from storage.model import Claim, Todo
from storage.stores import Stores


def repair(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Read one object again, and repair it if it is damaged. What no replica can repair stays
    listed as damaged."""
    replica, key = flow.replica_of(claim.todo), claim.todo.ref
    found = scrubbing.examine(stores, replica, key, beat, repair=True)
    kept = found is not None or repairing.is_expected(stores, replica, key)
    with stores.catalog.write() as tx:
        if found is None and kept:
            integrity.record_verified(tx, replica, [key])
        elif not kept:
            integrity.forget(tx, replica, key)
        todo.finish(tx, claim)
    return ()
