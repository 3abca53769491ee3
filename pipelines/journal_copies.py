"""Keep a copy of each journal in both buckets, and drop superseded journals.

JOURNAL_COPY has a bucket hold a journal as it was written, from the other bucket or, when neither
has it, anew from the catalog's events. JOURNAL_DROP removes one that is past. `sweep` finds what a
bucket lacks.
"""

import hashlib
import logging
from collections.abc import Iterator

from pipelines import flow, journal_format, journals, records
from pipelines.copies import Heartbeat
from pipelines.flow import Step
from pipelines.journal_drafts import JournalObjects, read_if_intact, redraft_journal
from storage import keys
from storage.catalog import events, integrity, jobs, now_us
from storage.catalog import journals as rows
from storage.catalog.journals import JournalObject
from storage.errors import DamagedObjectError, NotFound, SourceChanged, Unavailable
from storage.model import REPLICAS, Job, JobClaim, Replica
from storage.protocols import BlobStore
from storage.stores import Stores

log = logging.getLogger(__name__)

JOURNAL_PAGE = 1_000
"""Journals that a sweep reads at a time."""


def copy_journal(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Have a journal, `<replica>/<name>`, in this bucket; one that is past is taken from it."""
    key = parse_journal_ref(claim.job.ref)
    blobs = stores.replicas[flow.job_replica(claim.job)]
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    current = one is not None and one.state == "current"
    if one and current and not _ensure_copy(stores, flow.job_replica(claim.job), one, beat):
        return journals.publish_draft(stores, redraft_journal(stores, one, beat), claim)
    if not _finish_if_current(stores, claim, key):
        journals.erase_from_bucket(blobs, key)
        with stores.catalog.write() as tx:
            jobs.finish(tx, claim)
    return ()


def _ensure_copy(stores: Stores, here: Replica, one: JournalObject, beat: Heartbeat) -> bool:
    """Whether this bucket has it now; False when no bucket has."""
    blobs = stores.replicas[here]
    kept = read_if_intact(stores.replicas[next(name for name in REPLICAS if name != here)], one)
    if kept is None:
        return read_if_intact(blobs, one) is not None
    beat(len(kept.data))
    if not _try_put_journal(blobs, one, kept):
        # Damaged: a journal's bytes never change.
        journals.erase_from_bucket(blobs, one.key)
        if not _try_put_journal(blobs, one, kept):
            raise Unavailable(f"The copy of {one.key} holds other bytes.")
    return True


def _try_put_journal(blobs: BlobStore, one: JournalObject, kept: JournalObjects) -> bool:
    try:
        return journals.put_journal(blobs, one, kept.data, kept.manifest)
    except DamagedObjectError:
        return False


def find_journal_damage(stores: Stores, bucket: Replica, key: keys.JournalKey) -> str | None:
    """What is wrong with a current journal in a bucket."""
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    if one is None or one.state != "current" or read_if_intact(stores.replicas[bucket], one):
        return None
    # It may be past, and gone, by now.
    with stores.catalog.read() as tx:
        return "its bytes are others than were written" if rows.find(tx, key) == one else None


def read_sha256(stores: Stores, bucket: Replica, key: str) -> str | None:
    """Return the SHA-256 of a manifest as it is stored, or of a journal as its manifest says; None
    if the manifest cannot be read."""
    journal = keys.parse_journal(key)
    name = key if journal is None else keys.journal_manifest_key(journal)
    try:
        manifest = records.read_object(stores.replicas[bucket], name)
    except (DamagedObjectError, NotFound, SourceChanged):
        return None
    return (
        hashlib.sha256(manifest).hexdigest()
        if journal is None
        else journal_format.parse_manifest_sha256(manifest)
    )


def repair_journal(stores: Stores, bucket: Replica, key: keys.JournalKey) -> None:
    """Have this bucket hold a journal again, now."""
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    if (
        one is not None
        and one.state == "current"
        and not _ensure_copy(stores, bucket, one, _ignore_progress)
    ):
        journals.publish_draft(stores, redraft_journal(stores, one, _ignore_progress), None)


def _ignore_progress(_moved: int) -> None:
    """No claim runs out meanwhile."""


def _finish_if_current(stores: Stores, claim: JobClaim, key: keys.JournalKey) -> bool:
    """Whether the journal is still current, so that its copy may stay."""
    with stores.catalog.write() as tx:
        rows.lock(tx, next(name for name in REPLICAS if name == key.replica))
        one = rows.find(tx, key)
        if one is None or one.state != "current":
            return False
        jobs.finish(tx, claim)
    return True


def parse_journal_ref(ref: str) -> keys.JournalKey:
    """The journal that a reference, `<replica>/<name>`, names."""
    key = keys.parse_journal(keys.JOURNALS + ref)
    if key is None:
        raise NotFound(f"{ref} is no journal.")
    return key


def drop_journal(stores: Stores, claim: JobClaim, _beat: Heartbeat) -> tuple[Job, ...]:
    """Remove a journal that is past from every bucket, then its row."""
    key = parse_journal_ref(f"{claim.job.replica}/{claim.job.ref}")
    with stores.catalog.read() as tx:
        one = rows.find(tx, key)
    if one is not None and one.state == "past":
        journals.erase_journal(stores, key)
    with stores.catalog.write() as tx:
        if one is not None:
            rows.delete(tx, one)
        for bucket in REPLICAS:
            for gone in (keys.journal_key(key), keys.journal_manifest_key(key)):
                integrity.forget_object(tx, bucket, gone)
        jobs.finish(tx, claim)
    return ()


def list_expected_objects(stores: Stores, replica: Replica, *, settled_us: int) -> Iterator[str]:
    """Every object that the journals of a replica should have, in the order of keys: lines with
    their size, manifests."""
    after = 0
    while True:
        with stores.catalog.read() as tx:
            before_us = now_us(tx) - settled_us
            page = rows.list_range(tx, replica, after + 1, events.MAX_SEQUENCE, limit=JOURNAL_PAGE)
        for one in page:
            if one.at_us < before_us:
                yield f"{one.key} {one.size}"
                yield keys.journal_manifest_key(one.key)
        if len(page) < JOURNAL_PAGE:
            return
        after = page[-1].last


def list_stored_objects(stores: Stores, bucket: Replica, replica: Replica) -> Iterator[str]:
    """The same of what lies in a bucket."""
    for info in stores.replicas[bucket].list(keys.journal_prefix(replica)):
        lines = keys.parse_journal(info.key) is not None
        yield f"{info.key} {info.size}" if lines else info.key


def enqueue_copies(stores: Stores, bucket: Replica, names: list[str]) -> None:
    """Have what a bucket lacks of journals put back."""
    found = (name.partition(" ")[0].removeprefix(keys.JOURNALS) for name in names)
    refs = {ref.removesuffix(keys.MANIFEST_SUFFIX) for ref in found}
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, [Job(Step.JOURNAL_COPY, bucket, ref) for ref in refs])
    log.warning("sweep: %d journals to be brought to %s", len(refs), bucket)
