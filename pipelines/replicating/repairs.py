"""Repairs that reads and sweeps order: one job for each damaged object."""

from pipelines import flow
from pipelines.keeping.copying import Beat
from pipelines.replicating import scrubbing
from storage.catalog import todo
from storage.model import Claim, Todo
from storage.stores import Stores


def repair(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Read one object again, and repair it if it is damaged; what no replica can repair is left to
    the next sweep."""
    scrubbing.examine(stores, flow.replica_of(claim.todo), claim.todo.ref, beat, repair=True)
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()
