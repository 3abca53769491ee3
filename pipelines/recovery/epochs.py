"""Epoch marks in buckets and catalog, which reveal that an older backup was restored.

Every start and the scheduler begin a new epoch: it is announced in the catalog, marked in the
buckets, then confirmed. A catalog that is older than a bucket's last mark disagrees with it: the
store is read-only, and deletes nothing, until `reconcile` has imported what the catalog lacks.
"""

import json
import logging

import orjson

from pipelines import records
from pipelines.formats import new_uuid
from pipelines.recovery import bucket_reader
from storage import keys
from storage.catalog import accounts, audit, events, login, recovery, store_state, versions
from storage.catalog.audit import OPERATOR, AuditChange
from storage.errors import DamagedObjectError, Unavailable
from storage.model import REPLICAS, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

MAX_EPOCH = 10**15
"""Higher numbers are forged: one name in a bucket must not use up all that are left."""


def end_all_sessions(stores: Stores, action: str, **details: str) -> None:
    """End all sessions and grants, and record that in the audit log with the action's details."""
    with stores.catalog.write() as tx:
        accounts.lock_all(tx)
        accounts.count_change(tx)
        ended = login.end_all_logins(tx)
        after = json.dumps({**details, "sessions": ended.sessions, "grants": ended.grants})
        audit.append(tx, AuditChange(OPERATOR, action, "catalog", None, after, ""))


def list_marks(stores: Stores, replica: Replica) -> list[str]:
    """List the epochs of a bucket's marks, in order; DamagedObjectError for a forged number."""
    with stores.catalog.read() as tx:
        own = max(_parse_number(name) for name in recovery.read_epochs(tx))
    marks: list[str] = []
    for info in bucket_reader.list_bucket(stores, replica, keys.EPOCHS):
        if (name := keys.parse_epoch(info.key)) is None:
            continue
        if not 0 < _parse_number(name) <= max(own, MAX_EPOCH):
            raise DamagedObjectError(
                f"Bucket {replica} has a mark of an epoch that no store comes to, {info.key}:"
                " see who put it there, and remove it."
            )
        marks.append(name)
    return marks


def _find_disagreement(stores: Stores) -> str | None:
    """Return why the catalog and a reachable bucket are not of one epoch, or None."""
    with stores.catalog.read() as tx:
        known, has_data = recovery.read_epochs(tx), recovery.has_data(tx)
    for replica in REPLICAS:
        try:
            reason = _compare_bucket(stores, replica, known, has_data=has_data)
        except Unavailable as error:
            log.warning("the epoch of %s is not known: %s", replica, error.detail)
            continue
        except DamagedObjectError as error:
            return error.detail
        if reason is not None:
            return f"{reason} Run `python -m ops reconcile`."
    return None


def _compare_bucket(
    stores: Stores, replica: Replica, known: tuple[str | None, str | None], *, has_data: bool
) -> str | None:
    seen = max(list_marks(stores, replica), default=None)
    if seen in known and seen is not None:
        return None
    if seen is not None:
        return f"The catalog is of another epoch than bucket {replica}: was it restored?"
    if known[0] is not None:
        return f"Bucket {replica} has no mark of an epoch: was it replaced?"
    bucket = stores.replicas[replica]
    listed = (info for kind in keys.KINDS for info in bucket.list(keys.record_prefix(kind)))
    if not has_data and next(listed, None):
        return f"The catalog is empty, and bucket {replica} is not."
    return None


def check_epoch(stores: Stores) -> str | None:
    """Compare catalog and buckets; while they disagree, the store is read-only in all processes."""
    # Twice, since a new epoch may begin between two reads.
    reason = _find_disagreement(stores) and _find_disagreement(stores)
    with stores.catalog.read() as tx:
        before = store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY)
    if reason != before:
        with stores.catalog.write() as tx:
            store_state.write_value(tx, store_state.EPOCH_IN_DOUBT_KEY, reason)
        log.warning("epoch: %s", reason or "catalog and buckets agree again")
    return reason


def begin_epoch(stores: Stores) -> str | None:
    """Begin a new epoch if catalog and buckets agree; otherwise return why they do not."""
    reason = check_epoch(stores)
    if reason is None:
        advance_epoch(stores)
    return reason


def advance_epoch(stores: Stores, *, after: int = 0) -> str:
    """Mark the next epoch, with a number above `after`, in all buckets; safe to repeat."""
    with stores.catalog.write() as tx:
        versions.lock_heads(tx, "epoch", ["mark"])
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
        versions.lock_heads(tx, "epoch", ["mark"])
        recovery.confirm_epoch(tx, coming)
    for replica in REPLICAS:
        for name in list_marks(stores, replica):
            if name < coming:
                stores.replicas[replica].delete(keys.epoch_key(name))
    return coming


def is_catalog_restored(stores: Stores) -> bool:
    """Return whether the catalog lacks a bucket's last mark: it was restored or rebuilt."""
    newest, known = _read_newest_marks(stores)
    return any(name not in known for name in newest)


def _read_newest_marks(stores: Stores) -> tuple[list[str], tuple[str | None, str | None]]:
    """Return the last mark of each bucket that has any, and the catalog's epochs."""
    with stores.catalog.read() as tx:
        known = recovery.read_epochs(tx)
    return [max(marks) for name in REPLICAS if (marks := list_marks(stores, name))], known


def _parse_number(name: str | None) -> int:
    return 0 if name is None else int(name.partition("-")[0])


def force_new_epoch(stores: Stores) -> str:
    """Begin an epoch after all marks, which ends the read-only state.

    A restored or rebuilt catalog ends all sessions. Unless only a bucket was replaced, event feeds
    get a new sequence, so that readers expect repeated events.
    """
    newest, known = _read_newest_marks(stores)
    is_restored = any(name not in known for name in newest)
    if is_restored:
        end_all_sessions(stores, "reconcile")
    if is_restored or len(newest) in (0, len(REPLICAS)):
        with stores.catalog.write() as tx:
            events.start_sequence(tx, new_uuid())
    epoch = advance_epoch(stores, after=max(map(_parse_number, newest), default=0))
    check_epoch(stores)
    return epoch
