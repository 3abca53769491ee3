"""Which replica serves a read: the one that was asked for, unless it is down and the other has it.

Nothing is served that readers of the other replica do not see: what is not whole there, or under a
tombstone, stays as it is. When neither serves, the answer is that of the replica asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipelines.depositing.files import Located
from pipelines.keeping import failover
from pipelines.keeping.failover import other_replica as other
from storage import keys
from storage.catalog import expected, integrity, visibility
from storage.errors import TimedOut, Unavailable
from storage.model import FQID, Entry, FileVersion, Replica
from storage.protocols import Hit, SearchIndex, SearchPage
from storage.stores import Stores


def serving(stores: Stores, kind: str, replica: Replica, fqid: FQID) -> Replica:
    """Whose bytes a version's readers are sent to."""
    return _standing_in(stores, kind, replica, fqid) or replica


def serving_file(stores: Stores, replica: Replica, located: Located) -> Replica | None:
    """Whose bytes a file's readers are sent to; None while they have to wait for them."""
    if located.file is None or located.state == "pending":
        return None
    here = replica if located.state == "here" else None
    return _standing_in(stores, "file", replica, located.file.fqid) or here


def serving_bytes(stores: Stores, served: Replica, file: FileVersion) -> Replica:
    """Whose bytes are whole: those of the replica that serves the file, unless they are damaged
    there and not in the other one."""
    key = keys.blob(file.checksums.sha256)
    return failover.serving_replica(stores, served, key, file)


def intact_replicas(stores: Stores, served: Replica, found: Sequence[Entry]) -> dict[str, Replica]:
    """Return the replica of each blob, by SHA-256: the other one for those that are known to be
    damaged in this one, and that the other one holds undamaged."""
    blobs = {entry.checksums.sha256: keys.blob(entry.checksums.sha256) for entry in found}
    instead = other(served)
    with stores.catalog.read() as tx:
        here = integrity.among_damaged(tx, served, list(blobs.values()))
        there = integrity.among_damaged(tx, instead, list(here)) if here else {}
        whole = {
            sha256
            for sha256, key in blobs.items()
            if key in here and key not in there and expected.has_blob(tx, instead, sha256)
        }
    return {sha256: instead if sha256 in whole else served for sha256 in blobs}


def instead_of(stores: Stores, replica: Replica) -> Replica | None:
    """The other replica while the bucket of this one is down, and its own is not."""
    instead, down = other(replica), stores.availability.is_down
    return instead if down(f"bucket.{replica}") and not down(f"bucket.{instead}") else None


def _standing_in(stores: Stores, kind: str, replica: Replica, fqid: FQID) -> Replica | None:
    """The other replica when this one is down, and the other is not and has the version."""
    instead = instead_of(stores, replica)
    if instead is None:
        return None
    with stores.catalog.read() as tx:
        found = visibility.find(tx, kind, instead, fqid)
    return None if found is None else instead


ROUNDS = 4
"""Further looks for one page, where an index has much that was withdrawn."""


class Ask(Protocol):
    """One search, of so many hits from a place on."""

    def __call__(self, index: SearchIndex, *, size: int, after: str | None) -> SearchPage:
        """What the index holds, withdrawn or not."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page of `size` hits behind `after`; one look brings at most `most`."""

    size: int
    most: int
    after: str | None = None


def search(
    stores: Stores, replica: Replica, ask: Ask, wanted: Wanted
) -> tuple[Replica, SearchPage]:
    """Ask a replica's index, or the other one's while it does not answer; says whose it was.

    Without what was withdrawn and is not yet so in the index: its places are filled from behind,
    and a page is the last one if nothing follows that is to be seen.
    """
    # One more than the page has, so that nobody is sent on to an empty page.
    served, first = _asked(stores, replica, ask, wanted.size + 1, wanted.after)
    page = _seen(stores, served, first)
    for _ in range(ROUNDS):
        if page.after is None or len(page.hits) > wanted.size:
            break
        try:
            more = ask(stores.search[served], size=wanted.most, after=page.after)
        except (Unavailable, TimedOut):
            # What was found is shown; the walk goes on behind what was looked at.
            break
        page = _joined(page, more, _seen(stores, served, more))
    return served, _cut(page, wanted.size)


def _asked(
    stores: Stores, replica: Replica, ask: Ask, size: int, after: str | None
) -> tuple[Replica, SearchPage]:
    first, second = replica, other(replica)
    if stores.availability.is_down(f"search.{first}"):
        first, second = second, first
    try:
        return first, ask(stores.search[first], size=size, after=after)
    except Unavailable:
        stores.availability.failed(f"search.{first}")
        if stores.availability.is_down(f"search.{second}"):
            raise
    return second, ask(stores.search[second], size=size, after=after)


def _seen(stores: Stores, replica: Replica, page: SearchPage) -> SearchPage:
    """Without what was withdrawn and is not yet so in the index."""
    named = [FQID(hit.uuid, hit.version) for hit in page.hits]
    with stores.catalog.read() as tx:
        seen = visibility.among(tx, "bundle", replica, named)
    hits = [hit for hit, fqid in zip(page.hits, named, strict=True) if fqid in seen]
    return replace(page, hits=hits, total=page.total - (len(named) - len(hits)))


def _joined(page: SearchPage, more: SearchPage, seen: SearchPage) -> SearchPage:
    hits: list[Hit] = [*page.hits, *seen.hits]
    return SearchPage(hits, page.total - (len(more.hits) - len(seen.hits)), seen.after)


def _cut(page: SearchPage, size: int) -> SearchPage:
    """No more than a page; what is cut off is where the next one begins."""
    if len(page.hits) <= size:
        return page
    return replace(page, hits=page.hits[:size], after=page.hits[size - 1].place)
