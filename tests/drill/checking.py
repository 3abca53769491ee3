"""What must hold after a drill, looked at from outside and from inside."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from types import ModuleType

from config import Settings
from ops import tokens
from ops.demo.depositing import Deposited
from ops.demo.service import Service
from storage import keys
from storage.catalog import bundles, files, todo, visibility
from storage.connecting import connect
from storage.model import FQID, REPLICAS
from storage.protocols import BlobStore
from storage.stores import Stores

SAMPLE = 25
LATER = 2**62
"""After everything, in microseconds."""


def faults(service: Service, home: Path, deposited: list[Deposited], rng: Random) -> list[str]:
    """Everything that does not hold, in words."""
    settings = Settings(home=home)
    stores = connect(replace(settings, secret_key=tokens.secret_key(settings)))
    try:
        return [
            *_unreadable(service, rng.sample(deposited, min(SAMPLE, len(deposited)))),
            *_unlike(stores.replicas["aws"], stores.replicas["gcp"]),
            *_uncatalogued(stores),
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


def _uncatalogued(stores: Stores) -> Iterator[str]:
    """Records that the catalog and a bucket do not agree on."""
    kinds: tuple[tuple[keys.Kind, ModuleType], ...] = (("file", files), ("bundle", bundles))
    for kind, rows in kinds:
        with stores.catalog.read() as tx:
            page = rows.published_after(tx, FQID("", ""), before_us=LATER, limit=1_000_000)
        known = set(map(str, page))
        for replica, bucket in stores.replicas.items():
            found = (keys.parse_record(info.key) for info in bucket.list(keys.records(kind)))
            held = {str(one.fqid) for one in found if one is not None}
            yield from (f"{kind} {name} is not in {replica}" for name in sorted(known - held))
            yield from (
                f"{kind} {name} is known to {replica} only" for name in sorted(held - known)
            )


def _left_over(stores: Stores) -> Iterator[str]:
    """Work that nobody did."""
    with stores.catalog.read() as tx:
        yield from (f"parked: {row.todo}: {row.reason}" for row in todo.parked(tx))
        yield from (f"open: {count} rows of {step}" for step, count in todo.backlog(tx).items())
        if visibility.count_diverged(tx):
            yield "records diverged"
