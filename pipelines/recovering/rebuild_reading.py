"""Reading a bucket's records to fill a catalog: some at a time, what cannot be read is told.

The bucket is listed, what the catalog knows already is not read again: a rebuild that died goes on
where it was. Memory holds one batch.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipelines.keeping import placing
from storage.catalog import Tx, leases, refilling
from storage.errors import Conflict, Damaged, StoreError, Unavailable
from storage.model import Replica
from storage.protocols import BlobInfo, BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

BATCH, BATCH_BYTES = 500, 32 * 1024 * 1024
"""Objects, and bytes of them, that are read for one unit of work."""
RECORD_BYTES = 512 * 1024 * 1024
"""No record is larger: what is, is something else."""
NAMED = 50
"""Objects that a tally names; the log has all."""
LEASE, LEASE_S = "rebuild", 120.0

Key = TypeVar("Key")
Record = TypeVar("Record")


@dataclass
class Tally:
    """What became of the objects of one kind."""

    kind: str
    replica: Replica
    known: int = 0
    taken: int = 0
    refused: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)
    """Some of what was refused: object and reason."""

    def refuse(self, key: str, reason: str) -> None:
        """It is left where it lies, for a human to see."""
        self.refused += 1
        log.warning("%s in %s is not taken in: %s", key, self.replica, reason)
        if len(self.named) < NAMED:
            self.named.append((key, reason))


@dataclass(frozen=True, slots=True)
class Found(Generic[Key]):
    """An object whose key is one of ours."""

    key: Key
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Run:
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
    def unit(self) -> Iterator[Tx]:
        """A unit of work of the only rebuild there is; Conflict when another has begun."""
        with self.stores.catalog.write() as tx:
            if not leases.hold(tx, LEASE, token=self.token, lease_s=LEASE_S):
                raise Conflict("Another rebuild of this catalog is going on.")
            yield tx

    def end(self) -> None:
        """Let another one begin at once."""
        with self.stores.catalog.write() as tx:
            leases.release(tx, LEASE, token=self.token)


def listed(
    run: Run, prefix: str, parse: Callable[[str], Key | None], tally: Tally
) -> Iterator[list[Found[Key]]]:
    """The objects under a prefix, a batch at a time; what is none of ours is told."""
    batch: list[Found[Key]] = []
    size = 0
    for info in run.bucket.list(prefix):
        key = parse(info.key)
        if key is None or info.size > RECORD_BYTES:
            tally.refuse(info.key, _foreign(info, known=key is not None))
            continue
        if batch and (len(batch) == BATCH or size + info.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(Found(key, info.key, info.size))
        size += info.size
    if batch:
        yield batch


def _foreign(info: BlobInfo, *, known: bool) -> str:
    return "It is too large for a record." if known else "Its name is none that the store gives."


def taken(
    run: Run,
    batch: Sequence[Found[Key]],
    parse: Callable[[Key, bytes], Record],
    keep: Callable[[Run, Tx, Sequence[Record]], None],
    tally: Tally,
) -> None:
    """Read a batch and have the catalog keep it in one unit of work; if anything in it cannot be
    kept, each alone, so that one bad record is refused and not its neighbours."""
    found = _read(run, batch, parse, tally)
    if not found:
        return
    with run.unit() as tx:
        try:
            with refilling.trial(tx):
                keep(run, tx, [record for _, record in found])
            tally.taken += len(found)
            return
        except Damaged:
            pass
        for one, record in found:
            try:
                with refilling.trial(tx):
                    keep(run, tx, [record])
                tally.taken += 1
            except Damaged as error:
                tally.refuse(one.name, error.detail)


def _read(
    run: Run, batch: Sequence[Found[Key]], parse: Callable[[Key, bytes], Record], tally: Tally
) -> list[tuple[Found[Key], Record]]:
    """The records of a batch, several at once; those that cannot be read are told."""

    def one(found: Found[Key]) -> Record | StoreError:
        try:
            return parse(found.key, placing.whole(run.bucket, found.name))
        except Unavailable:
            raise
        except StoreError as error:
            return error

    with ThreadPoolExecutor(run.stores.copy_parallel) as pool:
        done = list(pool.map(one, batch))
    records = []
    for found, record in zip(batch, done, strict=True):
        if isinstance(record, StoreError):
            tally.refuse(found.name, record.detail)
        else:
            records.append((found, record))
    return records
