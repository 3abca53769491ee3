"""Purging collections: an operator's, of a whole uuid, as its owner's deletion is.

The steps are those of every purge. What a collection links to stays, and so do links that lead to
it from others.
"""

from pipelines.collecting import collections
from pipelines.collecting.collections import KIND
from pipelines.depositing import purging
from storage.catalog import collections as rows
from storage.catalog import heads, purges, todo, tombstones
from storage.errors import Conflict, NotFound
from storage.model import FQID, REPLICAS, Todo
from storage.stores import Stores


def extent(stores: Stores, uuid: str) -> purging.Extent:
    """What would go, without doing anything; NotFound."""
    with stores.catalog.read() as tx:
        versions = rows.versions(tx, uuid)
        if not versions and purges.find(tx, KIND, uuid, "") is None:
            raise _absent(uuid)
        gone = tombstones.find(tx, KIND, uuid, "") is not None
    return purging.Extent(versions, files=0, kept=0, buried=gone)


def _absent(uuid: str) -> NotFound:
    return NotFound(f"There is no collection {uuid}.")


def bury(stores: Stores, uuid: str) -> tuple[Todo, ...]:
    """Delete it, as its owner would; NotFound when it is gone."""
    with stores.catalog.read() as tx:
        owner = rows.owner_of(tx, uuid)
    if owner is None:
        raise _absent(uuid)
    return collections.delete(stores, REPLICAS[0], uuid, owner)


def order(stores: Stores, uuid: str, *, reason: str, author: str) -> tuple[Todo, ...]:
    """Have a uuid with all it ever held removed for good; asked for again, what is unfinished is
    driven on.

    NotFound when it never existed, Conflict (`protected`) when it is not deleted.
    """
    with stores.catalog.write() as tx:
        heads.lock(tx, KIND, [uuid])
        versions = rows.versions(tx, uuid)
        if not versions and purges.find(tx, KIND, uuid, "") is None:
            raise _absent(uuid)
        if tombstones.find(tx, KIND, uuid, "") is None:
            raise Conflict("Only what is under a tombstone is purged.", code="protected")
        follow: set[Todo] = set()
        for fqid in (*versions, FQID(uuid, "")):
            follow |= purging.ordered(tx, KIND, fqid, reason=reason, author=author)
        todo.add(tx, follow)
    return tuple(sorted(follow))
