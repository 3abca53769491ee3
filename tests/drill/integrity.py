"""The drill `python -m tests.drill.integrity`: damaged objects are found and repaired.

First a part of all stored objects is damaged in every way, never both copies of one: the scrub has
to find exactly these and repair them all. Then bytes are corrupted on their way into the store and
from replica to replica: nothing of it may be accepted.
"""

import logging
import secrets
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import click

from config import Settings
from pipelines import areas, checksums, copies, files, ingest, replication
from pipelines.flow import Step
from storage import keys
from storage.catalog import Catalog, integrity, jobs, migrate, versions
from storage.catalog import files as file_rows
from storage.connect import connect
from storage.errors import DomainError
from storage.model import FQID, REPLICAS, Job, JobClaim, Replica
from storage.protocols import BlobStore
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.damage import KINDS, damage, path_of
from tests.scrubs import age, run

AUTHOR = "depositor@example.org"
LARGEST = 4_000
"""Bytes of a file."""
SHOWN = 25

Corrupt = Callable[[Random, bytes], bytes]


@click.command()
@click.option("--seed", type=int, help="To repeat a run.")
@click.option("--objects", default=2_000, show_default=True)
@click.option("--damaged", default=200, show_default=True)
@click.option("--corruptions", default=10_000, show_default=True)
def main(seed: int | None, objects: int, damaged: int, corruptions: int) -> None:
    """Damage, corrupt, and exit with 1 if anything was missed, alarmed wrongly or accepted."""
    warnings.simplefilter("ignore", PendingDeprecationWarning)
    logging.disable(logging.CRITICAL)
    seed = secrets.randbelow(10**9) if seed is None else seed
    click.echo(f"seed {seed}")
    rng = Random(seed)
    faults: list[str] = []
    with opened() as stores:
        faults += heal(stores, rng, objects=objects, damaged=damaged)
    with opened() as stores:
        # Each tenth by all the steps of a deposit or a sync, the rest by what copies the bytes.
        faults += refuse_deposits(stores, rng, corruptions // 10)
        faults += refuse_copies(stores, rng, corruptions // 10, "syncs", synchronized)
        rest = corruptions - corruptions // 10 * 2
        faults += refuse_copies(stores, rng, rest, "copies", copied)
    for fault in faults[:SHOWN]:
        click.echo(f"FAULT {fault}")
    sys.exit(1 if faults else 0)


@contextmanager
def opened() -> Iterator[Stores]:
    """An embedded store of its own."""
    with tempfile.TemporaryDirectory(prefix="integrity-drill-") as folder:
        settings = Settings(home=Path(folder) / "home", secret_key="a secret of the drill")
        settings.home.mkdir()
        catalog = Catalog(settings.catalog)
        migrate.upgrade(catalog)
        catalog.close()
        stores = connect(settings, notices=MemoryPubSub())
        yield stores
        stores.catalog.close()


# Damage -------------------------------------------------------------------------------------


def heal(stores: Stores, rng: Random, *, objects: int, damaged: int) -> list[str]:
    """Damage some of the stored objects and scrub; returns what went wrong."""
    began = time.monotonic()
    for _ in range(objects // 4):
        make_file(stores, rng.randbytes(rng.randrange(LARGEST)), everywhere=True)
    held = contents(stores)
    hurt = {
        (rng.choice(REPLICAS), key): rng.choice(sorted(KINDS))
        for key in rng.sample(sorted({key for _, key in held}), damaged)
    }
    for (replica, key), kind in hurt.items():
        damage(stores, replica, key, kind)
    age(stores, 16)
    turn = run(stores)
    found = {(one.replica, one.key): one.repaired for one in turn.damaged}
    click.echo(
        f"{len(held)} objects, {len(hurt)} damaged ({_counted(hurt.values())}):"
        f" {len(found.keys() & hurt.keys())} found, {sum(found.values())} healed,"
        f" {len(found.keys() - hurt.keys())} false alarms ({time.monotonic() - began:.0f} s)"
    )
    faults = [f"missed: {where} {hurt[where]}" for where in hurt.keys() - found.keys()]
    faults += [f"false alarm: {where}" for where in found.keys() - hurt.keys()]
    faults += [f"not healed: {where}" for where, healed in found.items() if not healed]
    faults += [f"other bytes: {where}" for where in changed(held, contents(stores))]
    if turn.objects != len(held):
        faults.append(f"{turn.objects} objects were read, {len(held)} are stored")
    age(stores, 16)
    faults += [f"damaged again: {one}" for one in run(stores).damaged]
    return faults


def contents(stores: Stores) -> dict[tuple[Replica, str], bytes | None]:
    """What every replica should hold, as it reads; None for what cannot be read."""
    return {
        (replica, one.key): _content(stores.replicas[replica], one.key)
        for replica in REPLICAS
        for page in integrity.iterate_pages(stores.catalog, replica)
        for one in page
    }


def _content(bucket: BlobStore, key: str) -> bytes | None:
    try:
        return b"".join(bucket.read(key))
    except DomainError:
        return None


def changed(before: Mapping[Any, bytes | None], after: Mapping[Any, bytes | None]) -> list[Any]:
    """The objects that do not read as before."""
    return [where for where in before if after.get(where) != before[where]]


def _counted(kinds: Any) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(kinds).items()))


# Corruption ---------------------------------------------------------------------------------


def _flip(rng: Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _zero(rng: Random, data: bytes) -> bytes:
    place, length = rng.randrange(len(data)), rng.randint(1, 64)
    return data[:place] + bytes(len(data[place : place + length])) + data[place + length :]


def _swap(rng: Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    return data[place:] + data[:place]


CORRUPTIONS: Mapping[str, Corrupt] = {
    "bit flipped": _flip,
    "run of zeros": _zero,
    "halves exchanged": _swap,
    "cut": lambda rng, data: data[: rng.randrange(len(data))],
    "extended": lambda rng, data: data + rng.randbytes(rng.randint(1, 64)),
    "other bytes": lambda rng, data: rng.randbytes(len(data)),
    "emptied": lambda _rng, _data: b"",
}


def corrupted(rng: Random, data: bytes) -> bytes:
    """These bytes with one corruption, which is never none."""
    while True:
        made = CORRUPTIONS[rng.choice(sorted(CORRUPTIONS))](rng, data)
        if made != data:
            return made


def refuse_deposits(stores: Stores, rng: Random, count: int) -> list[str]:
    """Deposit files whose bytes are not those that were declared; returns what was accepted."""
    began, faults = time.monotonic(), list[str]()
    area = new_uuid()
    areas.create(stores, area, AUTHOR)
    for number in range(count):
        data = rng.randbytes(rng.randint(2, LARGEST))
        sums = checksums.compute_checksums([data], len(data)).checksums
        declared = {
            "store-sha1": sums.sha1,
            "store-sha256": sums.sha256,
            "store-crc32c": sums.crc32c,
            "store-s3_etag": sums.s3_etag,
        }
        staged = keys.area_file_key(area, f"{number}")
        stores.areas.put(staged, corrupted(rng, data), metadata=declared)
        fqid = FQID(new_uuid(), version())
        source = stores.areas.direct_url(staged)
        accepted = ingest.start_task(stores, ingest.IngestRequest(fqid, "aws", source, 1), AUTHOR)
        assert accepted.task_id is not None
        _work(stores, accepted.jobs[0])
        stores.areas.delete(staged)
        if ingest.get_task(stores, accepted.task_id).state != "FAILED" or seen(stores, "aws", fqid):
            faults.append(f"deposit {number} was accepted")
        if path_of(stores.replicas["aws"], keys.blob_key(sums.sha256)).exists():
            faults.append(f"deposit {number} left bytes")
    click.echo(
        f"{count} corrupted deposits, {len(faults)} accepted ({time.monotonic() - began:.0f} s)"
    )
    return faults


def _work(stores: Stores, row: Job) -> None:
    with stores.catalog.write(durable=False) as tx:
        claim = jobs.claim(tx, row, token="drill", lease_s=60, max_claims=5)
    assert isinstance(claim, JobClaim)
    ingest.verify(stores, claim, lambda _moved: None)


def refuse_copies(
    stores: Stores, rng: Random, count: int, named: str, attempt: Callable[[Stores, FQID], bool]
) -> list[str]:
    """Have the other replica hold files that are corrupted in this one, or on their way from it;
    returns what was accepted."""
    began, faults = time.monotonic(), list[str]()
    passing = replace(stores, replicas={**stores.replicas, "aws": Corrupting(stores, rng)})
    fqid, key = FQID("", ""), ""
    for number in range(count):
        if number % 100 == 0:
            fqid = make_file(stores, rng.randbytes(rng.randint(2, LARGEST)))
            key = blob_of(stores, fqid)
        at_rest = rng.random() < 0.5
        path = path_of(stores.replicas["aws"], key)
        right = path.read_bytes()
        if at_rest:
            path.write_bytes(corrupted(rng, right))
        accepted = attempt(stores if at_rest else passing, fqid)
        path.write_bytes(right)
        if accepted or seen(stores, "gcp", fqid):
            faults.append(f"{named} {number}: accepted")
        if path_of(stores.replicas["gcp"], key).exists():
            faults.append(f"{named} {number}: left bytes")
            stores.replicas["gcp"].delete(key)
    click.echo(
        f"{count} corrupted {named}, {len(faults)} accepted ({time.monotonic() - began:.0f} s)"
    )
    return faults


def synchronized(stores: Stores, fqid: FQID) -> bool:
    """Whether a sync to the other replica says that it is done."""
    claim = JobClaim(Job(Step.SYNC, "gcp", f"{files.KIND}:{fqid}"), "drill", 1, "")
    try:
        replication.sync_version(stores, claim, lambda _moved: None)
    except DomainError:
        return False
    return True


def copied(stores: Stores, fqid: FQID) -> bool:
    """Whether a copy of the bytes to the other replica says that it is done."""
    with stores.catalog.read() as tx:
        row = file_rows.find(tx, fqid)
    assert row is not None
    file, key = row, keys.blob_key(row.checksums.sha256)
    here, there = stores.replicas["aws"], stores.replicas["gcp"]
    try:
        copies.copy_object(here, there, key, key, size=file.size, checksums=file.checksums)
    except DomainError:
        return False
    return True


class Corrupting:
    """A bucket whose bytes are corrupted while they are read."""

    def __init__(self, stores: Stores, rng: Random) -> None:
        self._inner, self._rng = stores.replicas["aws"], rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, key: str, **more: Any) -> Iterator[bytes]:
        """See BlobStore."""
        yield corrupted(self._rng, b"".join(self._inner.read(key, **more)))


def blob_of(stores: Stores, fqid: FQID) -> str:
    """The key of a file's bytes."""
    with stores.catalog.read() as tx:
        row = file_rows.find(tx, fqid)
    assert row is not None
    return keys.blob_key(row.checksums.sha256)


def seen(stores: Stores, replica: Replica, fqid: FQID) -> bool:
    """Whether readers see a file."""
    with stores.catalog.read() as tx:
        return versions.find_published(tx, files.KIND, replica, fqid) is not None


if __name__ == "__main__":
    main()
