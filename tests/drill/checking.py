"""What must hold after a drill, looked at from outside and from inside."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random

from config import Settings
from ops import tokens
from ops.demo.depositing import Deposited
from ops.demo.service import Service
from pipelines import sweeps
from storage.catalog import todo, visibility
from storage.connecting import connect
from storage.model import REPLICAS
from storage.protocols import BlobStore
from storage.stores import Stores

SAMPLE = 25


def faults(service: Service, home: Path, deposited: list[Deposited], rng: Random) -> list[str]:
    """Everything that does not hold, in words."""
    settings = Settings(home=home)
    stores = connect(replace(settings, secret_key=tokens.secret_key(settings)))
    try:
        return [
            *_unreadable(service, rng.sample(deposited, min(SAMPLE, len(deposited)))),
            *_unlike(stores.replicas["aws"], stores.replicas["gcp"]),
            *_swept(stores),
            *_left_over(stores),
        ]
    finally:
        stores.catalog.close()


def _unreadable(service: Service, sample: Iterable[Deposited]) -> Iterator[str]:
    """Bundles whose bytes do not come back from a replica."""
    for one in sample:
        wanted = {item.file.name: item.sha256 for item in one.placed}
        for replica in REPLICAS:
            got = {
                entry["name"]: sha256(
                    service.read(replica, entry["uuid"], entry["version"])
                ).hexdigest()
                for entry in service.manifest(replica, one.fqid)
            }
            if got != wanted:
                yield f"{one.bundle.label} reads otherwise from {replica}"


def _unlike(left: BlobStore, right: BlobStore) -> Iterator[str]:
    """Objects that only one bucket has, and objects of two contents."""
    keys = [{info.key: info for info in bucket.list("")} for bucket in (left, right)]
    yield from (f"{key} is in one bucket only" for key in sorted(keys[0].keys() ^ keys[1].keys()))
    for key in sorted(keys[0].keys() & keys[1].keys()):
        if _content(left, key) != _content(right, key):
            yield f"{key} has two contents"


def _content(bucket: BlobStore, key: str) -> str:
    hashed = sha256()
    for block in bucket.read(key):
        hashed.update(block)
    return hashed.hexdigest()


def _swept(stores: Stores) -> Iterator[str]:
    """What the sweep would have to repair."""
    for swept in sweeps.replication(stores):
        if swept.missing or swept.strange:
            yield f"sweep: {swept}"


def _left_over(stores: Stores) -> Iterator[str]:
    """Work that nobody did."""
    with stores.catalog.read() as tx:
        yield from (f"parked: {row.todo}: {row.reason}" for row in todo.parked(tx))
        yield from (f"open: {count} rows of {step}" for step, count in todo.backlog(tx).items())
        if visibility.count_diverged(tx):
            yield "records diverged"
