"""Rebuilding a replica's search index while it is searched and written to.

A rebuild only adds INDEX rows for all that readers see; that step writes to the generation that is
searched and to the one that is built, and the new one is searched when no row is left. How far it
is stands in the catalog: whoever begins it again goes on.
"""

from dataclasses import asdict, dataclass, replace

import orjson

from pipelines.depositing import manifests
from pipelines.flow import Step
from storage.catalog import Tx, heads, now_us, switches, todo, visibility
from storage.errors import Conflict
from storage.model import FQID, Replica, Todo
from storage.stores import Stores

BATCH = 500
ROOM = 2_000
"""Rows that wait at a time: what is deposited meanwhile does not queue behind all of them."""
STATE = "reindexing/"
"""Row of `meta`, by replica."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The generation that is built; rows were added up to `after`, and for all at `asked_us`."""

    generation: str
    after: str = ""
    asked: int = 0
    asked_us: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """`asked` documents are to be written again (`all` of them when nothing is left to ask for),
    `waiting` of them still are, `parked` failed too often; `done` once the new generation is
    searched."""

    asked: int
    waiting: int
    parked: int
    all: bool = False
    done: bool = False


def begin(stores: Stores, replica: Replica) -> str:
    """Open a generation, or go on with the one that is being built. Conflict while catalog and
    buckets disagree: no work is started then."""
    with stores.catalog.read() as tx:
        doubt = switches.value(tx, switches.IN_DOUBT)
    if doubt is not None:
        raise Conflict(doubt, code="read_only")
    generation = stores.search[replica].begin_rebuild()
    with stores.catalog.write() as tx:
        before = _standing(tx, replica)
        if before is None or before.generation != generation:
            _put(tx, replica, Standing(generation))
    return generation


def advance(
    stores: Stores, replica: Replica, *, force: bool = False, batch: int = BATCH
) -> Progress:
    """Add rows while there is room; search the new generation once all are done, with `force`
    without those that are parked."""
    with stores.catalog.write() as tx:
        heads.lock(tx, "reindex", [replica])
        standing = _standing(tx, replica)
        if standing is None:
            return Progress(0, 0, 0, all=True, done=True)
        waiting, parked = todo.open_until(
            tx, Step.INDEX, replica, now_us(tx) if standing.asked_us is None else standing.asked_us
        )
        if standing.asked_us is None and waiting < ROOM:
            _put(tx, replica, _asked(tx, replica, standing, batch))
            return Progress(standing.asked, waiting, parked)
    if standing.asked_us is None or waiting or (parked and not force):
        return Progress(standing.asked, waiting, parked, all=standing.asked_us is not None)
    stores.search[replica].finish_rebuild(standing.generation)
    with stores.catalog.write() as tx:
        _put(tx, replica, None)
    return Progress(standing.asked, 0, parked, all=True, done=True)


def _asked(tx: Tx, replica: Replica, standing: Standing, batch: int) -> Standing:
    """A few more rows. Whoever works on one of them may have written to the old generation alone:
    the claim is void, and it is done once more."""
    after = FQID.parse(standing.after) if standing.after else None
    page = visibility.listing(tx, manifests.KIND, replica, prefix="", after=after, limit=batch)
    todo.add(tx, [Todo(Step.INDEX, replica, str(fqid)) for fqid in page], sent=False)
    after_text = str(page[-1]) if page else standing.after
    asked_us = now_us(tx) if len(page) < batch else None
    asked = standing.asked + len(page)
    return replace(standing, after=after_text, asked=asked, asked_us=asked_us)


def _standing(tx: Tx, replica: Replica) -> Standing | None:
    told = switches.value(tx, STATE + replica)
    return None if told is None else Standing(**orjson.loads(told))


def _put(tx: Tx, replica: Replica, standing: Standing | None) -> None:
    text = None if standing is None else orjson.dumps(asdict(standing)).decode()
    switches.put(tx, STATE + replica, text)
