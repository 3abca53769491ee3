"""Epoch marks in buckets and catalog, which reveal that an older backup was restored.

A new mark is made at every start and by the clock, first announced in the catalog, then put into
the buckets, then settled. A catalog that is older than the last mark disagrees with the buckets:
nothing is written, and nothing deleted, until `reconcile` has taken in what the catalog lacks.
"""

import json
import logging

import orjson

from pipelines import records
from pipelines.formats import new_uuid
from pipelines.recovery import bucket_reader
from storage import keys
from storage.catalog import accounts, audit, events, heads, login, recovery, store_state
from storage.catalog.audit import OPERATOR, AuditChange
from storage.errors import DamagedObjectError, Unavailable
from storage.model import REPLICAS, Replica
from storage.stores import Stores


def end_all_sessions(stores: Stores, what: str, **of: str) -> None:
    """End them, have everything be decided anew, and say so in the audit log: what was done, and
    with what."""
    with stores.catalog.write() as tx:
        accounts.lock_all(tx)
        accounts.count_change(tx)
        ended = login.end_all_logins(tx)
        after = json.dumps({**of, "sessions": ended.sessions, "grants": ended.grants})
        audit.append(tx, AuditChange(OPERATOR, what, "catalog", None, after, ""))


log = logging.getLogger(__name__)

MAX_EPOCH = 10**15
"""No store came to this number of epochs. One name in a bucket must not use the numbers up that are
left."""
_LOCK_NAME = ("epoch", "mark")


def list_marks(stores: Stores, replica: Replica) -> list[str]:
    """The epochs that a bucket has marks of, the last one last; Damaged when one of them has a
    number that no store gives: nothing is begun after it."""
    with stores.catalog.read() as tx:
        own = max(_parse_number(name) for name in recovery.read_epochs(tx))
    listed = (
        keys.parse_epoch(info.key)
        for info in bucket_reader.list_bucket(stores, replica, keys.EPOCHS)
    )
    found = [name for name in listed if name is not None]
    for name in found:
        if not 0 < _parse_number(name) <= max(own, MAX_EPOCH):
            raise DamagedObjectError(
                f"Bucket {replica} has a mark of an epoch that no store comes to,"
                f" {keys.epoch_key(name)}: see who put it there, and remove it."
            )
    return found


def find_disagreement(stores: Stores) -> str | None:
    """Why the catalog and a bucket are not of one epoch; a bucket that is away says nothing."""
    found = _compare_buckets(stores)
    # A new epoch may have come between the two looks.
    return found if found is None else _compare_buckets(stores)


def _compare_buckets(stores: Stores) -> str | None:
    with stores.catalog.read() as tx:
        known, data = recovery.read_epochs(tx), recovery.has_data(tx)
    for replica in REPLICAS:
        try:
            reason = _compare_bucket(stores, replica, known, data=data)
        except Unavailable as error:
            log.warning("the epoch of %s is not known: %s", replica, error.detail)
            continue
        except DamagedObjectError as error:
            return error.detail
        if reason is not None:
            return f"{reason} Run `python -m ops reconcile`."
    return None


def _compare_bucket(
    stores: Stores, replica: Replica, known: tuple[str | None, str | None], *, data: bool
) -> str | None:
    seen = next(iter(list_marks(stores, replica)[-1:]), None)
    if seen in known and seen is not None:
        return None
    if seen is not None:
        return f"The catalog is of another epoch than bucket {replica}: was it restored?"
    if known[0] is not None:
        return f"Bucket {replica} has no mark of an epoch: was it replaced?"
    if not data and _has_records(stores, replica):
        return f"The catalog is empty, and bucket {replica} is not."
    return None


def _has_records(stores: Stores, replica: Replica) -> bool:
    bucket = stores.replicas[replica]
    return any(next(iter(bucket.list(keys.record_prefix(kind))), None) for kind in keys.KINDS)


def check_epoch(stores: Stores) -> str | None:
    """Compare, and let every process know: while they disagree the store is read-only."""
    reason = find_disagreement(stores)
    with stores.catalog.read() as tx:
        before = store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY)
    if reason != before:
        with stores.catalog.write() as tx:
            store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, reason)
        log.warning("epoch: %s", reason or "catalog and buckets agree again")
    return reason


def begin_epoch(stores: Stores) -> str | None:
    """Compare, and begin a new epoch if they agree; else why they do not."""
    reason = check_epoch(stores)
    if reason is None:
        advance_epoch(stores)
    return reason


def advance_epoch(stores: Stores, *, after: int = 0) -> str:
    """Put the next mark everywhere, with a number beyond `after` too; done again after a death."""
    with stores.catalog.write() as tx:
        heads.lock(tx, _LOCK_NAME[0], [_LOCK_NAME[1]])
        current, coming = recovery.read_epochs(tx)
        if coming is None or _parse_number(coming) <= after:
            number = max(_parse_number(current), _parse_number(coming), after) + 1
            coming = f"{number:020d}-{new_uuid()}"
            recovery.announce_epoch(tx, coming)
    data = orjson.dumps({"format": "store-epoch/1", "epoch": coming})
    for replica, blobs in stores.replicas.items():
        with bucket_reader.name_failing_bucket(replica):
            records.put_if_absent(
                blobs, keys.epoch_key(coming), data, content_type="application/json"
            )
    with stores.catalog.write() as tx:
        heads.lock(tx, _LOCK_NAME[0], [_LOCK_NAME[1]])
        recovery.confirm_epoch(tx, coming)
    _delete_old_marks(stores, coming)
    return coming


def _is_only_bucket_replaced(stores: Stores) -> bool:
    """Whether what marks there are in the buckets are those of the catalog."""
    there, known = _read_newest_marks(stores)
    return 0 < len(there) < len(REPLICAS) and all(name in known for name in there)


def is_catalog_restored(stores: Stores) -> bool:
    """Return whether the catalog lacks a bucket's last mark: it was restored or rebuilt."""
    there, known = _read_newest_marks(stores)
    return any(name not in known for name in there)


def _read_newest_marks(stores: Stores) -> tuple[list[str], tuple[str | None, str | None]]:
    """The last mark of each bucket that has any, and those that the catalog knows."""
    with stores.catalog.read() as tx:
        known = recovery.read_epochs(tx)
    newest = [next(iter(list_marks(stores, replica)[-1:]), None) for replica in REPLICAS]
    return [name for name in newest if name is not None], known


def _parse_number(name: str | None) -> int:
    return 0 if name is None else int(name.partition("-")[0])


def _delete_old_marks(stores: Stores, newest: str) -> None:
    for replica in REPLICAS:
        for name in list_marks(stores, replica):
            if name < newest:
                stores.replicas[replica].delete(keys.epoch_key(name))


def force_new_epoch(stores: Stores) -> str:
    """Begin an epoch that is later than any mark, and let writers in again. Unless only a bucket
    was replaced, readers of feeds are told that what the catalog forgot may come again. Logins of a
    catalog of another time end."""
    if is_catalog_restored(stores):
        end_all_sessions(stores, "reconcile")
    if not _is_only_bucket_replaced(stores):
        with stores.catalog.write() as tx:
            events.start_sequence(tx, new_uuid())
    last = max(
        (_parse_number(name) for replica in REPLICAS for name in list_marks(stores, replica)),
        default=0,
    )
    name = advance_epoch(stores, after=last)
    check_epoch(stores)
    return name
