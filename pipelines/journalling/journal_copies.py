"""Copies of journals: each lies in both buckets, whichever of them lost or damaged it.

JOURNAL_COPY has a bucket hold a journal as it was written, from the other bucket or, when neither
has it, anew from the catalog's events. JOURNAL_DROP removes one that is past. `sweep` finds what a
bucket lacks.
"""

import hashlib
import logging
from collections.abc import Iterator

from pipelines import flow
from pipelines.flow import Step
from pipelines.journalling import journals, lines
from pipelines.journalling.journal_drafts import Kept, remade, sound
from pipelines.keeping import placing
from pipelines.keeping.copying import Beat
from storage import keys
from storage.catalog import feeds, integrity, now_us, todo
from storage.catalog import journals as rows
from storage.catalog.journals import Journal
from storage.errors import Damaged, NotFound, SourceChanged, Unavailable
from storage.model import REPLICAS, Claim, Replica, Todo
from storage.protocols import BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

PAGE = 1_000
"""Journals that a sweep reads at a time."""


def copy(stores: Stores, claim: Claim, beat: Beat) -> tuple[Todo, ...]:
    """Have a journal, `<replica>/<name>`, in this bucket; one that is past is taken from it."""
    key = parsed(claim.todo.ref)
    blobs = stores.replicas[flow.replica_of(claim.todo)]
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    current = one is not None and one.state == "current"
    if one and current and not _held(stores, flow.replica_of(claim.todo), one, beat):
        return journals.written(stores, remade(stores, one, beat), claim)
    if not _copied(stores, claim, key):
        journals.erase_from(blobs, key)
        with stores.catalog.write() as tx:
            todo.finish(tx, claim)
    return ()


def _held(stores: Stores, here: Replica, one: Journal, beat: Beat) -> bool:
    """Whether this bucket has it now; False when no bucket has."""
    blobs = stores.replicas[here]
    kept = sound(stores.replicas[next(name for name in REPLICAS if name != here)], one)
    if kept is None:
        return sound(blobs, one) is not None
    beat(len(kept.data))
    if not _placed(blobs, one, kept):
        # Damaged: a journal's bytes never change.
        journals.erase_from(blobs, one.key)
        if not _placed(blobs, one, kept):
            raise Unavailable(f"The copy of {one.key} holds other bytes.")
    return True


def _placed(blobs: BlobStore, one: Journal, kept: Kept) -> bool:
    try:
        return journals.place(blobs, one, kept.data, kept.manifest)
    except Damaged:
        return False


def damage(stores: Stores, bucket: Replica, key: keys.JournalKey) -> str | None:
    """What is wrong with a current journal in a bucket."""
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    if one is None or one.state != "current" or sound(stores.replicas[bucket], one):
        return None
    # It may be past, and gone, by now.
    with stores.catalog.read() as tx:
        return "its bytes are others than were written" if rows.find(tx, key) == one else None


def sha256_of(stores: Stores, bucket: Replica, key: str) -> str | None:
    """Return the SHA-256 of a manifest as it is stored, or of a journal as its manifest says; None
    if the manifest cannot be read."""
    journal = keys.parse_journal(key)
    name = key if journal is None else keys.journal_manifest(journal)
    try:
        manifest = placing.whole(stores.replicas[bucket], name)
    except (Damaged, NotFound, SourceChanged):
        return None
    return hashlib.sha256(manifest).hexdigest() if journal is None else lines.sha256_of(manifest)


def mend(stores: Stores, bucket: Replica, key: keys.JournalKey) -> None:
    """Have this bucket hold a journal again, now."""
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    if one is not None and one.state == "current" and not _held(stores, bucket, one, _nobody_waits):
        journals.written(stores, remade(stores, one, _nobody_waits), None)


def _nobody_waits(_moved: int) -> None:
    """No claim runs out meanwhile."""


def _copied(stores: Stores, claim: Claim, key: keys.JournalKey) -> bool:
    """Whether the journal is still current, so that its copy may stay."""
    with stores.catalog.write() as tx:
        rows.lock(tx, _replica(key))
        one = rows.find(tx, key)
        if one is None or one.state != "current":
            return False
        todo.finish(tx, claim)
    return True


def parsed(ref: str) -> keys.JournalKey:
    """The journal that a reference, `<replica>/<name>`, names."""
    key = keys.parse_journal(keys.JOURNALS + ref)
    if key is None:
        raise NotFound(f"{ref} is no journal.")
    return key


def _replica(key: keys.JournalKey) -> Replica:
    return next(name for name in REPLICAS if name == key.replica)


def drop(stores: Stores, claim: Claim, _beat: Beat) -> tuple[Todo, ...]:
    """Remove a journal that is past from every bucket, then its row."""
    key = parsed(f"{claim.todo.replica}/{claim.todo.ref}")
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    if one is not None and one.state == "past":
        journals.erase(stores, key)
    with stores.catalog.write() as tx:
        if one is not None:
            rows.forget(tx, one)
        for bucket in REPLICAS:
            for gone in (keys.journal(key), keys.journal_manifest(key)):
                integrity.forget(tx, bucket, gone)
        todo.finish(tx, claim)
    return ()


def known(stores: Stores, replica: Replica, *, settled_us: int) -> Iterator[str]:
    """Every object that the journals of a replica should have, in the order of keys: lines with
    their size, manifests."""
    after = 0
    while True:
        with stores.catalog.read() as tx:
            before_us = now_us(tx) - settled_us
            page = rows.page(tx, replica, after + 1, feeds.END, limit=PAGE)
        for one in page:
            if one.at_us < before_us:
                yield f"{one.key} {one.size}"
                yield keys.journal_manifest(one.key)
        if len(page) < PAGE:
            return
        after = page[-1].last


def listed(stores: Stores, bucket: Replica, replica: Replica) -> Iterator[str]:
    """The same of what lies in a bucket."""
    for info in stores.replicas[bucket].list(keys.journals(replica)):
        lines = keys.parse_journal(info.key) is not None
        yield f"{info.key} {info.size}" if lines else info.key


def bring(stores: Stores, bucket: Replica, names: list[str]) -> None:
    """Have what a bucket lacks of journals put back."""
    found = (name.partition(" ")[0].removeprefix(keys.JOURNALS) for name in names)
    refs = {ref.removesuffix(keys.MANIFEST) for ref in found}
    with stores.catalog.write() as tx:
        todo.add_new(tx, [Todo(Step.JOURNAL_COPY, bucket, ref) for ref in refs])
    log.warning("sweep: %d journals to be brought to %s", len(refs), bucket)
