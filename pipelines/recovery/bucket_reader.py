"""Read the records of a bucket in batches, for rebuild and reconcile.

Objects that the catalog knows are not read again, so an interrupted rebuild continues. Memory holds
one batch.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from pipelines import records
from storage.catalog import Tx, recovery, store_state
from storage.errors import ConflictError, DamagedObjectError, DomainError, Unavailable
from storage.model import Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

log = logging.getLogger(__name__)

READ_BATCH, READ_BATCH_BYTES = 500, 32 * 1024 * 1024
"""Objects, and bytes of them, that are read for one transaction."""
MAX_RECORD_BYTES = 512 * 1024 * 1024
"""Larger objects are no records."""
MAX_NAMED_OBJECTS = 50
"""Refused objects that a tally names; the log has all."""
LEASE, LEASE_S = "rebuild", 120.0
FOREIGN_NAME = "Its name is not one that the store gives."

Key = TypeVar("Key")
Record = TypeVar("Record")


@contextmanager
def name_failing_bucket(replica: Replica) -> Iterator[None]:
    """Name the bucket in errors of unavailability: nothing is known of what it holds."""
    try:
        yield
    except Unavailable as error:
        detail = f"Bucket {replica} does not answer: {error.detail}"
        raise Unavailable(detail, retry_after_s=error.retry_after_s) from error


def list_bucket(stores: Stores, replica: Replica, prefix: str) -> Iterator[BlobInfo]:
    """Yield the objects under a prefix."""
    with name_failing_bucket(replica):
        yield from stores.replicas[replica].list(prefix)


def read_record(stores: Stores, replica: Replica, key: str) -> bytes:
    """Return all bytes of a record."""
    with name_failing_bucket(replica):
        return records.read_object(stores.replicas[replica], key)


def find_replicas_without(stores: Stores, key: str) -> list[Replica]:
    """Return the replicas whose bucket lacks a record."""
    lacking: list[Replica] = []
    for replica, bucket in stores.replicas.items():
        with name_failing_bucket(replica):
            if not records.has_object(bucket, key):
                lacking.append(replica)
    return lacking


@dataclass
class RebuildTally:
    """Objects of one kind in one bucket: known before, imported, refused."""

    kind: str
    replica: Replica
    known: int = 0
    imported: int = 0
    refused: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)
    """The first refused objects, with reasons."""

    def refuse(self, key: str, reason: str) -> None:
        """Count an object that is not imported and stays in the bucket, for the operator."""
        self.refused += 1
        log.warning("%s in %s is not imported: %s", key, self.replica, reason)
        if len(self.named) < MAX_NAMED_OBJECTS:
            self.named.append((key, reason))


@dataclass(frozen=True, slots=True)
class RebuildRun:
    """One rebuild from one bucket; `floor` is the lowest new change count."""

    stores: Stores
    replica: Replica
    token: str
    floor: int

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """Open a transaction under the lease; ConflictError if another rebuild has it."""
        with self.stores.catalog.write() as tx:
            if not store_state.acquire_lease(tx, LEASE, token=self.token, lease_s=LEASE_S):
                raise ConflictError("Another rebuild of this catalog is running.")
            yield tx

    def end(self) -> None:
        """Release the lease."""
        with self.stores.catalog.write() as tx:
            store_state.release_lease(tx, LEASE, token=self.token)


def list_batches(
    run: RebuildRun, prefix: str, parse: Callable[[str], Key | None], tally: RebuildTally
) -> Iterator[list[tuple[Key, str]]]:
    """Yield batches of parsed and plain keys under a prefix; refuse foreign objects."""
    batch: list[tuple[Key, str]] = []
    size = 0
    for info in run.stores.replicas[run.replica].list(prefix):
        key = parse(info.key)
        if key is None or info.size > MAX_RECORD_BYTES:
            tally.refuse(info.key, FOREIGN_NAME if key is None else "It is too large for a record.")
            continue
        if batch and (len(batch) == READ_BATCH or size + info.size > READ_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((key, info.key))
        size += info.size
    if batch:
        yield batch


def import_batch(
    run: RebuildRun,
    batch: Sequence[tuple[Key, str]],
    parse: Callable[[Key, bytes], Record],
    save: Callable[[RebuildRun, Tx, Sequence[Record]], None],
    tally: RebuildTally,
) -> None:
    """Read a batch and save it in one transaction.

    If a record cannot be saved, each is saved by itself, so that only bad ones are refused.
    """
    parsed = _read_batch(run, batch, parse, tally)
    if not parsed:
        return
    with run.transaction() as tx:
        try:
            with recovery.begin_savepoint(tx):
                save(run, tx, [record for _, record in parsed])
            tally.imported += len(parsed)
            return
        except DamagedObjectError:
            pass
        for name, record in parsed:
            try:
                with recovery.begin_savepoint(tx):
                    save(run, tx, [record])
                tally.imported += 1
            except DamagedObjectError as error:
                tally.refuse(name, error.detail)


def _read_batch(
    run: RebuildRun,
    batch: Sequence[tuple[Key, str]],
    parse: Callable[[Key, bytes], Record],
    tally: RebuildTally,
) -> list[tuple[str, Record]]:
    """Read the records of a batch in parallel; refuse those that are unreadable."""

    def read(listed: tuple[Key, str]) -> Record | DomainError:
        key, name = listed
        try:
            return parse(key, records.read_object(run.stores.replicas[run.replica], name))
        except Unavailable:
            raise
        except DomainError as error:
            return error

    with ThreadPoolExecutor(run.stores.copy_parallel) as pool:
        results = list(pool.map(read, batch))
    parsed = []
    for (_, name), record in zip(batch, results, strict=True):
        if isinstance(record, DomainError):
            tally.refuse(name, record.detail)
        else:
            parsed.append((name, record))
    return parsed
