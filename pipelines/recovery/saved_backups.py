"""Make backups in a folder or bucket: named by time, read again, and removed when they are old."""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from pipelines.recovery import backups, epochs
from storage.catalog import now_us, store_state
from storage.errors import DamagedObjectError, Unavailable
from storage.protocols import BackupTarget
from storage.stores import Stores

log = logging.getLogger(__name__)

LEASE = "backup"
RETRY_S = 3_600.0
"""Longest time between two attempts; one attempt takes less."""


@dataclass(frozen=True)
class BackupSchedule:
    """Where backups go, how often, and how many are kept; `key` is that of their headers."""

    target: BackupTarget
    key: str
    every_s: int
    keep: int

    @property
    def retry_s(self) -> float:
        """The time from a failed attempt to the next."""
        return min(self.every_s, RETRY_S)


def run_backup_schedule(stores: Stores, schedule: BackupSchedule) -> str | None:
    """Make a backup if one is due, and remove old ones; return its name.

    Of several processes one makes it.
    """
    with stores.catalog.write() as tx:
        last, now = store_state.find_last_backup_us(tx), now_us(tx)
        if last is not None and now < last + schedule.every_s * 1_000_000:
            return None
        # Never released: it also keeps attempts apart.
        if not store_state.acquire_lease(tx, LEASE, token=uuid4().hex, lease_s=schedule.retry_s):
            return None
    name = make_backup_name(now)
    save_backup(stores, schedule.target, name, key=schedule.key)
    begin_backup_epoch(stores)
    remove_old_backups(schedule.target, keep=schedule.keep)
    return name


def make_backup_name(at_us: int) -> str:
    """Return the name of a backup of this time; names sort by time."""
    at = datetime.fromtimestamp(at_us / 1e6, UTC)
    return f"store-{at:%Y%m%dT%H%M%S%f}Z.backup"


def save_backup(stores: Stores, target: BackupTarget, name: str, *, key: str) -> dict[str, int]:
    """Write, store and check a backup, and record its time; return the rows of each table.

    It has its name only once it is complete. AlreadyExists if the name is taken, OSError if it
    cannot be written, DamagedObjectError if what was stored is not what was written.
    """
    draft = target.staging_folder / f".{name}.{os.getpid()}"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            counts = backups.write_backup(stores, file, key=key)
            file.flush()
            os.fsync(file.fileno())
        target.store(draft, name)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    try:
        with target.open(name) as stored:
            backups.check_backup(stored, key=key)
    except DamagedObjectError:
        target.delete(name)
        raise
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.LAST_BACKUP_KEY, str(now_us(tx)))
    return counts


def begin_backup_epoch(stores: Stores) -> None:
    """Begin an epoch after a backup, so that the store notices if an older dump is restored."""
    with stores.catalog.read() as tx:
        if store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY) is not None:
            return
    try:
        epochs.advance_epoch(stores)
    except Unavailable as error:
        log.warning("No epoch begins now: %s", error.detail)


def remove_old_backups(target: BackupTarget, *, keep: int) -> list[str]:
    """Delete all backups but the latest `keep`; return their names."""
    old = target.list_names()[:-keep]
    for name in old:
        target.delete(name)
    return old
