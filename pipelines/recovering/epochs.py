"""Epochs: marks in every bucket and in the catalog, by which a restored backup is found out.

A new mark is made at every start and by the clock, first announced in the catalog, then put into
the buckets, then settled. A catalog that is older than the last mark disagrees with the buckets:
nothing is written, and nothing deleted, until `reconcile` has taken in what the catalog lacks.
"""

import logging

import orjson

from pipelines.formats import new_uuid
from pipelines.keeping import placing
from pipelines.recovering import asking, logins
from storage import keys
from storage.catalog import epochs, feeds, heads, switches
from storage.errors import Damaged, Unavailable
from storage.model import REPLICAS, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

BELIEVED = 10**15
"""No store came to this number of epochs. One name in a bucket must not use the numbers up that are
left."""
_HEAD = ("epoch", "mark")


def marks(stores: Stores, replica: Replica) -> list[str]:
    """The epochs that a bucket has marks of, the last one last; Damaged when one of them has a
    number that no store gives: nothing is begun after it."""
    with stores.catalog.read() as tx:
        own = max(_number(name) for name in epochs.read(tx))
    listed = (keys.parse_epoch(info.key) for info in asking.listed(stores, replica, keys.EPOCHS))
    found = [name for name in listed if name is not None]
    for name in found:
        if not 0 < _number(name) <= max(own, BELIEVED):
            raise Damaged(
                f"Bucket {replica} has a mark of an epoch that no store comes to,"
                f" {keys.epoch(name)}: see who put it there, and remove it."
            )
    return found


def disagreement(stores: Stores) -> str | None:
    """Why the catalog and a bucket are not of one epoch; a bucket that is away says nothing."""
    found = _disagreement(stores)
    # A new epoch may have come between the two looks.
    return found if found is None else _disagreement(stores)


def _disagreement(stores: Stores) -> str | None:
    with stores.catalog.read() as tx:
        known, data = epochs.read(tx), epochs.holds_data(tx)
    for replica in REPLICAS:
        try:
            reason = _compared(stores, replica, known, data=data)
        except Unavailable as error:
            log.warning("the epoch of %s is not known: %s", replica, error.detail)
            continue
        except Damaged as error:
            return error.detail
        if reason is not None:
            return f"{reason} Run `python -m ops reconcile`."
    return None


def _compared(
    stores: Stores, replica: Replica, known: tuple[str | None, str | None], *, data: bool
) -> str | None:
    seen = next(iter(marks(stores, replica)[-1:]), None)
    if seen in known and seen is not None:
        return None
    if seen is not None:
        return f"The catalog is of another epoch than bucket {replica}: was it restored?"
    if known[0] is not None:
        return f"Bucket {replica} has no mark of an epoch: was it replaced?"
    if not data and _holds_records(stores, replica):
        return f"The catalog is empty, and bucket {replica} is not."
    return None


def _holds_records(stores: Stores, replica: Replica) -> bool:
    bucket = stores.replicas[replica]
    return any(next(iter(bucket.list(keys.records(kind))), None) for kind in keys.KINDS)


def judge(stores: Stores) -> str | None:
    """Compare, and let every process know: while they disagree the store is read-only."""
    reason = disagreement(stores)
    with stores.catalog.read() as tx:
        before = switches.value(tx, switches.IN_DOUBT)
    if reason != before:
        with stores.catalog.write() as tx:
            switches.put(tx, switches.IN_DOUBT, reason)
        log.warning("epoch: %s", reason or "catalog and buckets agree again")
    return reason


def begin(stores: Stores) -> str | None:
    """Compare, and begin a new epoch if they agree; else why they do not."""
    reason = judge(stores)
    if reason is None:
        advance(stores)
    return reason


def advance(stores: Stores, *, after: int = 0) -> str:
    """Put the next mark everywhere, with a number beyond `after` too; done again after a death."""
    with stores.catalog.write() as tx:
        heads.lock(tx, _HEAD[0], [_HEAD[1]])
        current, coming = epochs.read(tx)
        if coming is None or _number(coming) <= after:
            number = max(_number(current), _number(coming), after) + 1
            coming = f"{number:020d}-{new_uuid()}"
            epochs.announce(tx, coming)
    data = orjson.dumps({"format": "store-epoch/1", "epoch": coming})
    for replica, blobs in stores.replicas.items():
        with asking.bucket(replica):
            placing.place(blobs, keys.epoch(coming), data, content_type="application/json")
    with stores.catalog.write() as tx:
        heads.lock(tx, _HEAD[0], [_HEAD[1]])
        epochs.settle(tx, coming)
    _tidy(stores, coming)
    return coming


def _only_a_bucket_is_new(stores: Stores) -> bool:
    """Whether what marks there are in the buckets are those of the catalog."""
    there, known = _newest(stores)
    return 0 < len(there) < len(REPLICAS) and all(name in known for name in there)


def is_of_another_time(stores: Stores) -> bool:
    """Whether a bucket's last mark is none of the catalog's: it was restored, or rebuilt."""
    there, known = _newest(stores)
    return any(name not in known for name in there)


def _newest(stores: Stores) -> tuple[list[str], tuple[str | None, str | None]]:
    """The last mark of each bucket that has any, and those that the catalog knows."""
    with stores.catalog.read() as tx:
        known = epochs.read(tx)
    newest = [next(iter(marks(stores, replica)[-1:]), None) for replica in REPLICAS]
    return [name for name in newest if name is not None], known


def _number(name: str | None) -> int:
    return 0 if name is None else int(name.partition("-")[0])


def _tidy(stores: Stores, newest: str) -> None:
    for replica in REPLICAS:
        for name in marks(stores, replica):
            if name < newest:
                stores.replicas[replica].delete(keys.epoch(name))


def overrule(stores: Stores) -> str:
    """Begin an epoch that is later than any mark, and let writers in again. Unless only a bucket
    was replaced, readers of feeds are told that what the catalog forgot may come again. Logins of a
    catalog of another time end."""
    if is_of_another_time(stores):
        logins.end(stores, "reconcile")
    if not _only_a_bucket_is_new(stores):
        with stores.catalog.write() as tx:
            feeds.renumber(tx, new_uuid())
    last = max(
        (_number(name) for replica in REPLICAS for name in marks(stores, replica)), default=0
    )
    name = advance(stores, after=last)
    judge(stores)
    return name
