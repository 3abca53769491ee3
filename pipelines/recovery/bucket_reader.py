"""Read the records of a bucket in batches for rebuild and reconcile.

The bucket is listed, what the catalog knows already is not read again: a rebuild that died goes on
where it was. Memory holds one batch.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipelines import records as pipelines_records
from storage.catalog import Tx, recovery, store_state
from storage.errors import Conflict, DamagedObjectError, StoreError, Unavailable
from storage.model import Replica
from storage.protocols import BlobInfo, BlobStore
from storage.stores import Stores


@contextmanager
def name_failing_bucket(replica: Replica) -> Iterator[None]:
    """Whose bucket it was that did not answer is said: with it away nothing is known of what it
    holds, so that nothing may be concluded."""
    try:
        yield
    except Unavailable as error:
        said = f"Bucket {replica} does not answer: {error.detail}"
        raise Unavailable(said, retry_after_s=error.retry_after_s) from error


def list_bucket(stores: Stores, replica: Replica, prefix: str) -> Iterator[BlobInfo]:
    """What lies under a prefix."""
    with name_failing_bucket(replica):
        yield from stores.replicas[replica].list(prefix)


def read_record(stores: Stores, replica: Replica, key: str) -> bytes:
    """All bytes of a record."""
    with name_failing_bucket(replica):
        return pipelines_records.read_object(stores.replicas[replica], key)


def find_replicas_without(stores: Stores, key: str) -> list[Replica]:
    """Replicas whose bucket has no such record: their subscribers were never told of it either."""
    return [name for name in stores.replicas if not _has_record(stores, name, key)]


def _has_record(stores: Stores, replica: Replica, key: str) -> bool:
    with name_failing_bucket(replica):
        return pipelines_records.has_object(stores.replicas[replica], key)


log = logging.getLogger(__name__)

READ_BATCH, READ_BATCH_BYTES = 500, 32 * 1024 * 1024
"""Objects, and bytes of them, that are read for one unit of work."""
MAX_RECORD_BYTES = 512 * 1024 * 1024
"""No record is larger: what is, is something else."""
MAX_NAMED_OBJECTS = 50
"""Objects that a tally names; the log has all."""
LEASE, LEASE_S = "rebuild", 120.0

Key = TypeVar("Key")
Record = TypeVar("Record")


@dataclass
class RebuildTally:
    """What became of the objects of one kind."""

    kind: str
    replica: Replica
    known: int = 0
    imported: int = 0
    refused: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)
    """Some of what was refused: object and reason."""

    def refuse(self, key: str, reason: str) -> None:
        """It is left where it lies, for a human to see."""
        self.refused += 1
        log.warning("%s in %s is not taken in: %s", key, self.replica, reason)
        if len(self.named) < MAX_NAMED_OBJECTS:
            self.named.append((key, reason))


@dataclass(frozen=True, slots=True)
class ListedRecord(Generic[Key]):
    """An object whose key is one of ours."""

    key: Key
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class RebuildRun:
    """One rebuild from one bucket; `floor` is where counts of changes go on."""

    stores: Stores
    replica: Replica
    token: str
    floor: int

    @property
    def bucket(self) -> BlobStore:
        """Where the records are."""
        return self.stores.replicas[self.replica]

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """A unit of work of the only rebuild there is; Conflict when another has begun."""
        with self.stores.catalog.write() as tx:
            if not store_state.acquire_lease(tx, LEASE, token=self.token, lease_s=LEASE_S):
                raise Conflict("Another rebuild of this catalog is going on.")
            yield tx

    def end(self) -> None:
        """Let another one begin at once."""
        with self.stores.catalog.write() as tx:
            store_state.release_lease(tx, LEASE, token=self.token)


def list_batches(
    run: RebuildRun, prefix: str, parse: Callable[[str], Key | None], tally: RebuildTally
) -> Iterator[list[ListedRecord[Key]]]:
    """Yield batches of the objects under a prefix; count foreign ones."""
    batch: list[ListedRecord[Key]] = []
    size = 0
    for info in run.bucket.list(prefix):
        key = parse(info.key)
        if key is None or info.size > MAX_RECORD_BYTES:
            reason = (
                "Its name is none that the store gives."
                if key is None
                else "It is too large for a record."
            )
            tally.refuse(info.key, reason)
            continue
        if batch and (len(batch) == READ_BATCH or size + info.size > READ_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(ListedRecord(key, info.key, info.size))
        size += info.size
    if batch:
        yield batch


def import_batch(
    run: RebuildRun,
    batch: Sequence[ListedRecord[Key]],
    parse: Callable[[Key, bytes], Record],
    keep: Callable[[RebuildRun, Tx, Sequence[Record]], None],
    tally: RebuildTally,
) -> None:
    """Read a batch and have the catalog keep it in one unit of work; if anything in it cannot be
    kept, each alone, so that one bad record is refused and not its neighbours."""
    found = _read_batch(run, batch, parse, tally)
    if not found:
        return
    with run.transaction() as tx:
        try:
            with recovery.begin_savepoint(tx):
                keep(run, tx, [record for _, record in found])
            tally.imported += len(found)
            return
        except DamagedObjectError:
            pass
        for one, record in found:
            try:
                with recovery.begin_savepoint(tx):
                    keep(run, tx, [record])
                tally.imported += 1
            except DamagedObjectError as error:
                tally.refuse(one.name, error.detail)


def _read_batch(
    run: RebuildRun,
    batch: Sequence[ListedRecord[Key]],
    parse: Callable[[Key, bytes], Record],
    tally: RebuildTally,
) -> list[tuple[ListedRecord[Key], Record]]:
    """Read the records of a batch in parallel; count those that are unreadable."""

    def read_record(found: ListedRecord[Key]) -> Record | StoreError:
        try:
            return parse(found.key, pipelines_records.read_object(run.bucket, found.name))
        except Unavailable:
            raise
        except StoreError as error:
            return error

    with ThreadPoolExecutor(run.stores.copy_parallel) as pool:
        done = list(pool.map(read_record, batch))
    records = []
    for found, record in zip(batch, done, strict=True):
        if isinstance(record, StoreError):
            tally.refuse(found.name, record.detail)
        else:
            records.append((found, record))
    return records
