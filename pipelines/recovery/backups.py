"""Make, check and restore backups of the catalog data that no bucket holds.

A backup is compressed lines of JSON: a header, one line per row, and a trailer with the number of
rows and their checksum. A restore checks the whole file first, and adds only what is missing. In a
folder or bucket backups are named by time, read again, and removed when they are old.
"""

import base64
import gzip
import hashlib
import logging
import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import Any, BinaryIO
from uuid import uuid4

import orjson

from pipelines.formats import version_from_us
from pipelines.recovery import epochs
from storage.catalog import Catalog, backups, now_us, recovery, revisions, store_state
from storage.errors import ConflictError, DamagedObjectError, Invalid, Unavailable
from storage.protocols import BackupTarget
from storage.stores import Stores

log = logging.getLogger(__name__)

FORMAT = "store-backup/1"
BYTES_MEMBER = "base64"
MAX_LINE_BYTES = 64 * 1024 * 1024
"""The longest row."""


@dataclass(frozen=True, slots=True)
class BackupHeader:
    """Time, schema revision and key id of a backup."""

    made: str
    revision: str
    key: str


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """Rows of a table in the backup, and how many of them were missing in the catalog."""

    table: str
    rows: int
    added: int


def write_backup(stores: Stores, target: BinaryIO, *, key: str) -> dict[str, int]:
    """Write a backup from one snapshot; return the number of rows of each table.

    `key` identifies the store's secret without revealing it.
    """
    revision = revisions.read_current_revision(stores.catalog)
    counts: dict[str, int] = {}
    digest = hashlib.sha256()
    with gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as packed, stores.catalog.read() as tx:
        head = {
            "format": FORMAT,
            "made": version_from_us(now_us(tx)),
            "revision": revision,
            "key": key,
        }
        _write_line(packed, digest, head)
        for table, row in backups.read_rows(tx):
            _write_line(packed, digest, [table, row])
            counts[table] = counts.get(table, 0) + 1
        last = {"rows": sum(counts.values()), "sha256": digest.hexdigest()}
        packed.write(orjson.dumps(last) + b"\n")
    return counts


def _write_line(packed: gzip.GzipFile, digest: Any, value: Any) -> None:
    line = orjson.dumps(value, default=_encode_bytes) + b"\n"
    digest.update(line)
    packed.write(line)


def _encode_bytes(value: Any) -> dict[str, str]:
    if not isinstance(value, bytes | memoryview):
        raise TypeError(type(value).__name__)
    return {BYTES_MEMBER: base64.b64encode(value).decode()}


def check_backup(source: BinaryIO, *, key: str, former: Collection[str] = ()) -> BackupHeader:
    """Check a whole backup, from its beginning.

    Invalid or DamagedObjectError for a file that is no complete backup, ConflictError for one of
    another secret or of a later version.
    """
    digest, count, header = hashlib.sha256(), 0, None
    source.seek(0)
    last: Any = None
    with _open_lines(source) as lines:
        for line in lines:
            if header is None:
                header = _parse_header(line, {key, *former})
            elif last is None and line.startswith(b"["):
                _parse_row(line)
                count += 1
            elif last is None:
                last = orjson.loads(line)
                continue
            else:
                raise DamagedObjectError("The backup has lines after its trailer.")
            digest.update(line)
    if header is None or last != {"rows": count, "sha256": digest.hexdigest()}:
        raise DamagedObjectError("The backup is truncated or damaged: its checksum differs.")
    return header


@contextmanager
def _open_lines(source: BinaryIO) -> Iterator[Iterator[bytes]]:
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as packed:
            yield iter(lambda: packed.readline(MAX_LINE_BYTES), b"")
    except (EOFError, zlib.error, orjson.JSONDecodeError, OSError) as error:
        raise DamagedObjectError("The file is no backup, or is truncated or damaged.") from error


def _parse_header(line: bytes, keys: Collection[str]) -> BackupHeader:
    header = orjson.loads(line)
    if not isinstance(header, dict) or "format" not in header:
        raise Invalid("The file is no backup of a store.")
    if header["format"] != FORMAT:
        raise ConflictError(f"This version reads {FORMAT}, not {header['format']}.")
    if not all(isinstance(header.get(name), str) for name in ("made", "revision", "key")):
        raise DamagedObjectError("The header of the backup lacks a member.")
    if header["key"] not in keys:
        raise ConflictError("The backup was made with another STORE_SECRET_KEY: set that one.")
    if header["revision"] > revisions.expected_revision():
        raise ConflictError("The backup was made by a later version of the store.")
    return BackupHeader(header["made"], header["revision"], header["key"])


def restore_backup(
    catalog: Catalog, source: BinaryIO, *, key: str, former: Collection[str] = ()
) -> Iterator[RestoredTable]:
    """Check a backup, then add missing rows in batches of one transaction each; idempotent."""
    check_backup(source, key=key, former=former)
    source.seek(0)
    with _open_lines(source) as lines:
        next(lines)
        rows = (value for value in map(_parse_row, lines) if value is not None)
        tables = {table.name: table for table in backups.BACKUP_TABLES}
        for name, group in groupby(rows, lambda row: row[0]):
            if name not in tables:
                raise ConflictError(
                    f"The backup has rows of '{name}', a table that this version lacks."
                )
            yield _restore_table(catalog, tables[name], (row for _, row in group))


def _parse_row(line: bytes) -> tuple[str, Mapping[str, Any]] | None:
    value = orjson.loads(line)
    if not isinstance(value, list):
        return None
    try:
        table, row = value
        members = {
            name: base64.b64decode(column[BYTES_MEMBER], validate=True)
            if isinstance(column, dict)
            else column
            for name, column in row.items()
        }
        return str(table), members
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedObjectError("The backup has a malformed row.") from error


def _restore_table(
    catalog: Catalog, table: backups.BackupTable, rows: Iterator[Mapping[str, Any]]
) -> RestoredTable:
    count = added = 0
    while batch := list(islice(rows, backups.ROWS_PER_PAGE)):
        unknown = sorted({name for row in batch for name in row} - table.columns)
        if unknown:
            raise ConflictError(f"The backup's {table.name} have unknown columns: {unknown}.")
        try:
            with catalog.write() as tx, recovery.begin_savepoint(tx):
                added += table.restore(tx, batch)
        except (KeyError, TypeError) as error:
            raise DamagedObjectError(
                f"A row of the backup's {table.name} lacks a required column."
            ) from error
        count += len(batch)
    return RestoredTable(table.name, count, added)


# Backups in a folder or bucket -------------------------------------------------------------


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
            counts = write_backup(stores, file, key=key)
            file.flush()
            os.fsync(file.fileno())
        target.store(draft, name)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    try:
        with target.open(name) as stored:
            check_backup(stored, key=key)
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
