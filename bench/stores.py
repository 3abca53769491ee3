"""Stores to measure: embedded ones of this process, whole ones, and rows that fill a catalog."""

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import event, func, insert, select

from config import Settings
from ops.local_store import LocalStore, running_store, temporary_home
from storage.catalog import Catalog, Tx, migrate
from storage.catalog.tables.versions import blob_replicas, blobs, bundles, files, presence, visible
from storage.connect import connect
from storage.model import FQID, Replica
from storage.pubsub import MemoryPubSub
from storage.stores import Stores

AUTHOR = "bench@example.org"
VERSION = "2026-01-01T000000.000000Z"
ROWS_A_STATEMENT = 5_000
CREATED_US = 1_767_225_600_000_000
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def embedded_stores() -> Iterator[tuple[Settings, Stores]]:
    """Embedded stores of this process, empty."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = Settings(home=Path(folder), secret_key="a secret for benches only", wait_s=0)
        stores = connect(settings, notices=MemoryPubSub())
        migrate.upgrade(stores.catalog)
        yield settings, stores
        stores.catalog.close()


@contextmanager
def counting(stores: Stores) -> Iterator[Counter[str]]:
    """Count SQL statements, transactions and fsyncs while the block runs."""
    counted: Counter[str] = Counter()
    engine, sync = stores.catalog.engine, os.fsync

    def count_statement(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        counted[text if text.startswith("BEGIN") else "statements"] += 1

    def count_fsync(descriptor: int) -> None:
        counted["syncs"] += 1
        sync(descriptor)

    event.listen(engine, "before_cursor_execute", count_statement)
    os.fsync = count_fsync  # type: ignore[assignment]
    try:
        yield counted
    finally:
        os.fsync = sync
        event.remove(engine, "before_cursor_execute", count_statement)


# Whole stores


@contextmanager
def started_store(root: Path, settings: Mapping[str, str]) -> Iterator[LocalStore]:
    """A store with all its processes, of the code in `root`, on a new home."""
    with (
        temporary_home() as home,
        running_store(home, {"STORE_LOG_LEVEL": "WARNING", **settings}, root) as store,
    ):
        yield store


def list_processes(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(_stat_fields(path)[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def processor_s(pid: int) -> float:
    """Processor time of a process and its descendants, also of those that have ended."""
    total = 0
    for one in list_processes(pid):
        with suppress(OSError):
            # utime, stime, and those of children that were waited for.
            total += sum(map(int, _stat_fields(Path(f"/proc/{one}/stat"))[11:15]))
    return total / TICKS


def memory_mb(pid: int) -> float:
    """Memory of a process and its descendants; what several share counts once (PSS)."""
    total = 0
    for one in list_processes(pid):
        with suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def _stat_fields(path: Path) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold blanks and brackets."""
    return path.read_text().rpartition(")")[2].split()


# Rows of a full store, without bytes


def new_fqids(count: int, *, salt: str) -> list[FQID]:
    """Identities as random as real ones, and the same in every run."""
    seeds = (hashlib.md5(f"{salt}/{number}".encode()).digest() for number in range(count))
    return [FQID(str(UUID(bytes=seed, version=4)), VERSION) for seed in seeds]


def add_files(catalog: Catalog, fqids: Sequence[FQID], replica: Replica = "aws") -> None:
    """Published files with a blob each, complete in one replica."""
    for start in range(0, len(fqids), ROWS_A_STATEMENT):
        batch = fqids[start : start + ROWS_A_STATEMENT]
        with catalog.write() as tx:
            first_blob, first = _next_id(tx, blobs), _next_id(tx, files)
            tx.execute(insert(blobs), [_blob(first_blob + at, f) for at, f in enumerate(batch)])
            rows = [
                _version(first + at, fqid, replica)
                | {"content_type": "application/octet-stream", "blob_id": first_blob + at}
                | {"s3_etag": hashlib.md5(fqid.uuid.encode()).hexdigest()}
                for at, fqid in enumerate(batch)
            ]
            tx.execute(insert(files), rows)
            stored = {"replica": replica, "state": "present", "at_us": CREATED_US}
            tx.execute(
                insert(blob_replicas), [{"blob_id": row["blob_id"], **stored} for row in rows]
            )
            _publish(tx, "file", replica, rows)


def add_bundles(catalog: Catalog, fqids: Sequence[FQID], replica: Replica = "aws") -> None:
    """Published bundles of one replica, without files."""
    for start in range(0, len(fqids), ROWS_A_STATEMENT):
        with catalog.write() as tx:
            first = _next_id(tx, bundles)
            rows = [
                _version(first + at, fqid, replica) | {"file_count": 0}
                for at, fqid in enumerate(fqids[start : start + ROWS_A_STATEMENT])
            ]
            tx.execute(insert(bundles), rows)
            _publish(tx, "bundle", replica, rows)


def _next_id(tx: Tx, table: Any) -> int:
    return int(tx.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()) + 1


def _version(ident: int, fqid: FQID, replica: Replica) -> dict[str, Any]:
    return {
        "id": ident,
        "uuid": fqid.uuid,
        "version": fqid.version,
        "digest": hashlib.sha256(fqid.uuid.encode()).hexdigest(),
        "creator_uid": 1,
        "author": AUTHOR,
        "event_id": fqid.uuid,
        "created_us": CREATED_US,
        "published_us": CREATED_US,
        "origin": replica,
    }


def _blob(ident: int, fqid: FQID) -> dict[str, Any]:
    name = fqid.uuid.encode()
    return {
        "id": ident,
        "sha256": hashlib.sha256(name).hexdigest(),
        "sha1": hashlib.sha1(name).hexdigest(),
        "crc32c": fqid.uuid[:8],
        "s3_etag": hashlib.md5(name).hexdigest(),
        "size": 1_000,
    }


def _publish(tx: Tx, kind: str, replica: Replica, rows: Sequence[dict[str, Any]]) -> None:
    common = {"kind": kind, "replica": replica}
    tx.execute(
        insert(visible),
        [{**common, **{name: row[name] for name in ("uuid", "version", "id")}} for row in rows],
    )
    tx.execute(insert(presence), [{**common, "id": row["id"], "at_us": CREATED_US} for row in rows])
