"""The steps MATCH and PERCOLATE: an event meets the stored queries of its replica."""

from pipelines.ingest import Beat
from storage.catalog import todo
from storage.model import Claim, Todo
from storage.stores import Stores


def match(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Record the deliveries of the jmespath subscriptions that an event matches."""
    with stores.catalog.write() as tx:
        todo.finish(tx, claim)
    return ()


def percolate(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """The same for elasticsearch subscriptions, once search can find the bundle."""
    return match(stores, claim, beat)
