"""A small store with every kind of object, whose catalog is lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pipelines import bundles, collections, purges
from pipelines.bundles import BundleDraft, BundlePatch, NewEntry
from pipelines.collections import CollectionDraft
from pipelines.flow import Step
from storage.catalog import Catalog, jobs, recovery
from storage.catalog.recovery import FingerprintPart
from storage.model import FQID, CollectionLink, Job, Replica
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.catalogs import Spares
from tests.pipelines.bundle_events import Silent, tend
from tests.pipelines.purge_runs import finish
from workers.actors import BATCH_FUNCTIONS, STEP_FUNCTIONS
from workers.claims import WorkerContext, run_job

AUTHOR = "writer@example.org"
OWNER = "curator@example.org"

Drain = Callable[[], int]


class Filled(NamedTuple):
    """What is in the store."""

    seen: FQID
    patched: FQID
    buried: FQID
    purged: FQID
    collection: FQID


def write(stores: Stores, *files: FQID, replica: Replica = "aws") -> FQID:
    fqid = FQID(new_uuid(), version())
    named = [NewEntry(f"{place}.json", file, True) for place, file in enumerate(files)]
    bundles.put(stores, BundleDraft(fqid, replica, 1, named), AUTHOR)
    return fqid


def fill(stores: Stores, drain: Drain) -> Filled:
    """Deposit, patch, bury, purge, collect; everything is done and journalled in the end."""
    one = make_file(
        stores, b'{"describedBy": "x/a", "a": 1}', content_type="application/json", everywhere=True
    )
    two = make_file(stores, b"two", origin="gcp", everywhere=True)
    own = make_file(stores, b"only in what is purged", everywhere=True)
    drain()
    seen, purged = write(stores, one, two), write(stores, own, one, replica="gcp")
    buried = write(stores, two, replica="gcp")
    drain()
    patched = _patched(stores, seen, two)
    drain()
    collection = _collected(stores, drain, seen, one)
    bundles.delete(stores, "gcp", buried.uuid, None, reason="wrong", author=AUTHOR)
    bundles.delete(stores, "aws", *purged, reason="to go", author=AUTHOR)
    drain()
    tend(stores)
    purges.order_purge(stores, *purged, reason="gone", author=AUTHOR)
    finish(stores, drain)
    tend(stores)
    drain()
    tend(stores)
    return Filled(seen, patched, buried, purged, collection)


def _patched(stores: Stores, fqid: FQID, file: FQID) -> FQID:
    added = (NewEntry("added.txt", file, False),)
    return bundles.patch_bundle(stores, BundlePatch(fqid, "aws", added, ()), AUTHOR).fqid


def _collected(stores: Stores, drain: Drain, bundle: FQID, file: FQID) -> FQID:
    """One that stays, and one that is deleted."""
    made = []
    for name in ("kept", "dropped"):
        fqid = FQID(new_uuid(), version())
        links = [
            CollectionLink("bundle", bundle),
            CollectionLink("file", file),
            CollectionLink("x", file, "/a"),
        ]
        new = CollectionDraft(fqid, "aws", name, "all", {"n": 1}, links)
        collections.put(stores, new, OWNER)
        made.append(fqid)
    drain()
    collections.delete(stores, "aws", made[1].uuid, OWNER)
    drain()
    return made[0]


def do_all(stores: Stores) -> int:
    """Whatever is due, on stores other than the fixture's; how many rows."""
    done = 0
    job_queue: Any = Silent()
    working = WorkerContext(stores, job_queue, STEP_FUNCTIONS, 5, Random(0), BATCH_FUNCTIONS)
    while rows := _due(stores):
        for row in rows:
            done += run_job(working, row)
    return done


def _due(stores: Stores) -> list[Job]:
    with stores.catalog.write() as tx:
        return [row for step in Step for row, *_ in jobs.take_due(tx, step, limit=100, resend=True)]


def parts(stores: Stores, replica: Replica) -> dict[str, FingerprintPart]:
    with stores.catalog.read() as tx:
        return {part.name: part for part in recovery.compute_fingerprint(tx, replica)}


@contextmanager
def lost(
    stores: Stores, spares: Spares, folder: Path, *, engine: str | None = None
) -> Iterator[Stores]:
    """The same store with an empty catalog, of the same engine unless another is named."""
    folder.mkdir(exist_ok=True)
    engine = engine or ("sqlite" if stores.catalog.sqlite else "postgresql")
    with spares.lend(engine, folder) as url:
        fresh = replace(stores, catalog=Catalog(url))
        try:
            yield fresh
        finally:
            fresh.catalog.close()
