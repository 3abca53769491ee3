"""Filling a catalog with what a full store would hold, without the bytes: many rows a statement."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, select

from storage.catalog import Catalog, Tx
from storage.catalog.tables.versions import blob_replicas, blobs, bundles, files, presence, visible
from storage.model import FQID, Replica

AT_ONCE = 5_000
CREATED_US = 1_767_225_600_000_000


def version(number: int) -> str:
    """Versions in order."""
    return f"2026-01-01T{number // 1_000_000:06d}.{number % 1_000_000:06d}Z"


def new_fqids(count: int, *, salt: str) -> list[FQID]:
    """Identities as random as real ones, and the same in every run."""
    seeds = (hashlib.md5(f"{salt}/{number}".encode()).digest() for number in range(count))
    return [FQID(str(UUID(bytes=seed, version=4)), version(0)) for seed in seeds]


def add_files(catalog: Catalog, fqids: Sequence[FQID], replica: Replica = "aws") -> None:
    """Published files with bytes of their own, whole in one replica."""
    for batch in _batches(fqids):
        with catalog.write() as tx:
            first_blob, first = _next(tx, blobs), _next(tx, files)
            tx.execute(insert(blobs), [_blob(first_blob + at, f) for at, f in enumerate(batch)])
            rows = [_file(first + at, first_blob + at, f) for at, f in enumerate(batch)]
            tx.execute(insert(files), [row | {"origin": replica} for row in rows])
            held = {"replica": replica, "state": "present", "at_us": CREATED_US}
            tx.execute(insert(blob_replicas), [{"blob_id": row["blob_id"], **held} for row in rows])
            _show(tx, "file", replica, rows)


def add_bundles(catalog: Catalog, fqids: Sequence[FQID], replica: Replica = "aws") -> None:
    """Published bundles, visible in one replica, that name no file."""
    for batch in _batches(fqids):
        with catalog.write() as tx:
            first = _next(tx, bundles)
            rows = [_versioned(first + at, fqid) for at, fqid in enumerate(batch)]
            tx.execute(
                insert(bundles), [row | {"origin": replica, "file_count": 0} for row in rows]
            )
            _show(tx, "bundle", replica, rows)


def _batches(fqids: Sequence[FQID]) -> Iterator[list[FQID]]:
    rest = iter(fqids)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch


def _next(tx: Tx, table: Any) -> int:
    return int(tx.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()) + 1


def _versioned(ident: int, fqid: FQID) -> dict[str, Any]:
    return {
        "id": ident,
        "uuid": fqid.uuid,
        "version": fqid.version,
        "digest": hashlib.sha256(fqid.uuid.encode()).hexdigest(),
        "creator_uid": 1,
        "author": "bench@example.org",
        "event_id": fqid.uuid,
        "created_us": CREATED_US,
        "published_us": CREATED_US,
    }


def _file(ident: int, blob_id: int, fqid: FQID) -> dict[str, Any]:
    more = {"content_type": "application/octet-stream", "blob_id": blob_id}
    return _versioned(ident, fqid) | more | {"s3_etag": _etag(fqid)}


def _blob(ident: int, fqid: FQID) -> dict[str, Any]:
    name = fqid.uuid.encode()
    return {
        "id": ident,
        "sha256": hashlib.sha256(name).hexdigest(),
        "sha1": hashlib.sha1(name).hexdigest(),
        "crc32c": fqid.uuid[:8],
        "s3_etag": _etag(fqid),
        "size": 1_000,
    }


def _etag(fqid: FQID) -> str:
    return hashlib.md5(fqid.uuid.encode()).hexdigest()


def _show(tx: Tx, kind: str, replica: Replica, rows: Sequence[dict[str, Any]]) -> None:
    named = {"kind": kind, "replica": replica}
    tx.execute(
        insert(visible),
        [{**named, "uuid": r["uuid"], "version": r["version"], "id": r["id"]} for r in rows],
    )
    tx.execute(insert(presence), [{**named, "id": row["id"], "at_us": CREATED_US} for row in rows])
