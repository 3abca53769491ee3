"""Keep a copy of each journal in both buckets, and drop superseded journals.

JOURNAL_COPY puts a journal into a bucket: as it was written, from the other bucket, or written
again if no bucket has it. JOURNAL_DROP removes a journal that is past. The sweep finds what a
bucket lacks.
"""

import hashlib
import logging
from collections.abc import Iterator

import orjson

from pipelines import failover, flow, journals, records
from pipelines.flow import Heartbeat, Step, ignore_progress
from pipelines.journals import read_if_intact, redraft_journal
from storage import keys
from storage.catalog import Tx, events, integrity, jobs, now_us
from storage.catalog import journals as rows
from storage.catalog.journals import JournalObject
from storage.errors import DamagedObjectError, NotFoundError, SourceChanged, Unavailable
from storage.model import REPLICAS, Job, JobClaim, Replica
from storage.stores import Stores

log = logging.getLogger(__name__)

JOURNAL_PAGE = 1_000
"""Journals that a sweep reads at a time."""


def copy_journal(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Put a journal, `<replica>/<name>`, into this bucket; remove it if it is not current."""
    key, bucket = parse_journal_ref(claim.job.ref), flow.job_replica(claim.job)
    with stores.catalog.read() as tx:
        one = _find_current(tx, key)
    if one is not None and not _ensure_copy(stores, bucket, one, beat):
        draft = redraft_journal(stores, one, None, beat)
        return journals.publish_draft(stores, draft, claim)
    with stores.catalog.write() as tx:
        rows.lock(tx, next(name for name in REPLICAS if name == key.replica))
        is_current = _find_current(tx, key) is not None
        if is_current:
            jobs.finish(tx, claim)
    if not is_current:
        journals.erase_from_bucket(stores.replicas[bucket], key)
        with stores.catalog.write() as tx:
            jobs.finish(tx, claim)
    return ()


def _find_current(tx: Tx, key: keys.JournalKey) -> JournalObject | None:
    one = rows.find(tx, key)
    return one if one is not None and one.state == "current" else None


def _ensure_copy(stores: Stores, bucket: Replica, one: JournalObject, beat: Heartbeat) -> bool:
    """Put a journal into a bucket from the other one; False if no bucket has it intact."""
    blobs = stores.replicas[bucket]
    objects = read_if_intact(stores.replicas[failover.other_replica(bucket)], one)
    if objects is None:
        return read_if_intact(blobs, one) is not None
    beat(len(objects[0]))
    for is_retry in (False, True):
        try:
            if journals.put_journal(blobs, one, *objects):
                return True
        except DamagedObjectError as error:
            log.warning("%s in %s: %s", one.key, bucket, error.detail)
        if not is_retry:
            # A journal's bytes never change, so others are damaged.
            journals.erase_from_bucket(blobs, one.key)
    raise Unavailable(f"The copy of {one.key} holds other bytes.")


def find_journal_damage(stores: Stores, bucket: Replica, key: keys.JournalKey) -> str | None:
    """Return what is wrong with a current journal in a bucket, or None."""
    with stores.catalog.read() as tx:
        one = _find_current(tx, key)
    if one is None or read_if_intact(stores.replicas[bucket], one):
        return None
    # It may be past, and gone, by now.
    with stores.catalog.read() as tx:
        return "its bytes are others than were written" if rows.find(tx, key) == one else None


def read_sha256(stores: Stores, bucket: Replica, key: str) -> str | None:
    """Return the SHA-256 of a stored manifest, or of a journal according to its manifest.

    None if the manifest cannot be read.
    """
    journal = keys.parse_journal(key)
    name = key if journal is None else keys.journal_manifest_key(journal)
    try:
        manifest = records.read_object(stores.replicas[bucket], name)
    except (DamagedObjectError, NotFoundError, SourceChanged):
        return None
    if journal is None:
        return hashlib.sha256(manifest).hexdigest()
    try:
        return str(orjson.loads(manifest)["sha256"])
    except (KeyError, TypeError, ValueError):
        return None


def repair_journal(stores: Stores, bucket: Replica, key: keys.JournalKey) -> None:
    """Put a current journal into a bucket again, now."""
    with stores.catalog.read() as tx:
        one = _find_current(tx, key)
    if one is not None and not _ensure_copy(stores, bucket, one, ignore_progress):
        draft = redraft_journal(stores, one, None, ignore_progress)
        journals.publish_draft(stores, draft, None)


def parse_journal_ref(ref: str) -> keys.JournalKey:
    """Parse the reference `<replica>/<name>` of a journal."""
    key = keys.parse_journal(keys.JOURNALS + ref)
    if key is None:
        raise NotFoundError(f"{ref} is no journal.")
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
            for name in (keys.journal_key(key), keys.journal_manifest_key(key)):
                integrity.forget_object(tx, bucket, name)
        jobs.finish(tx, claim)
    return ()


def list_expected_objects(stores: Stores, replica: Replica, *, settled_us: int) -> Iterator[str]:
    """Yield the keys of a replica's journals, each with its size, and manifests, in order."""
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
    """Yield the same for what a bucket holds."""
    for info in stores.replicas[bucket].list(keys.journal_prefix(replica)):
        is_journal = keys.parse_journal(info.key) is not None
        yield f"{info.key} {info.size}" if is_journal else info.key


def enqueue_copies(stores: Stores, bucket: Replica, names: list[str]) -> None:
    """Enqueue the copies of journals that a bucket lacks; `names` are those of `list_*_objects`."""
    refs = {
        name.partition(" ")[0].removeprefix(keys.JOURNALS).removesuffix(keys.MANIFEST_SUFFIX)
        for name in names
    }
    with stores.catalog.write() as tx:
        jobs.insert_new(tx, [Job(Step.JOURNAL_COPY, bucket, ref) for ref in refs])
    log.warning("sweep: %d journals to be brought to %s", len(refs), bucket)
