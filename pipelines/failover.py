"""Failover and read repair: choose the replica that serves a read, and order repairs.

A check before a read costs one HEAD. Engines with checksums of their own guard the bytes
themselves. A blob of a folder bucket is read again; the process that read it trusts it for a while,
unless it changes. A blob too large to be read again is damaged if the catalog lists it as damaged;
if it changed after its last verification, the other replica serves it until it is verified.

The other replica serves only versions that are visible there. If neither replica can serve, the
error is that of the requested one.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from pipelines import integrity, records
from pipelines.copies import INLINE_BYTES
from pipelines.files import FileLocation
from pipelines.flow import Step
from storage import keys
from storage.catalog import integrity as findings
from storage.catalog import jobs, versions
from storage.errors import (
    DamagedObjectError,
    DomainError,
    NotFoundError,
    SourceChanged,
    TimeLimitExceeded,
    Unavailable,
)
from storage.model import FQID, REPLICAS, FileVersion, Job, ManifestEntry, Replica
from storage.protocols import BlobInfo, EtagStore, SearchIndex, SearchPage
from storage.stores import Stores

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 1.0
"""How long a reader waits for the check of an object."""
_CHECKS = {name: ThreadPoolExecutor(8, thread_name_prefix=f"check-{name}") for name in REPLICAS}
"""Threads of each replica: a bucket that hangs must not hold up checks of the other."""
_READS = {name: ThreadPoolExecutor(8, thread_name_prefix=f"read-{name}") for name in REPLICAS}
TRUST_S = 600.0
"""How long a process trusts a blob that it read: disks change bytes without a trace."""
INTACT, DAMAGED = b"\1", b"\0"
"""Values of `Stores.verified_pins`."""
UNVERIFIED = "it changed after it was last verified"
"""Reason of a large blob that may be intact."""


def other_replica(replica: Replica) -> Replica:
    """Return the replica that stands in for this one."""
    return next(name for name in REPLICAS if name != replica)


def order_repair(stores: Stores, replica: Replica, key: str, reason: str) -> None:
    """Enqueue the repair of a damaged object, unless it is enqueued already."""
    job = Job(Step.REPAIR, replica, key)
    try:
        with stores.catalog.read() as tx:
            is_ordered = jobs.exists(tx, job)
        if not is_ordered:
            log.error("%s in %s: %s; a repair is ordered", key, replica, reason)
            with stores.catalog.write() as tx:
                jobs.insert_new(tx, [job])
    except Unavailable as error:
        log.warning("the repair of %s in %s is not ordered: %s", key, replica, error.detail)


def find_intact_replica(
    stores: Stores, replica: Replica, key: str, file: FileVersion | None = None
) -> Replica:
    """Return the replica that serves an object: the other one if only its copy is intact.

    `file` has the size and checksums of a blob. Raise Damaged if no copy is intact.
    """
    reason = check_before_read(stores, replica, key, file)
    if reason is None:
        return replica
    order_repair(stores, replica, key, reason)
    other = other_replica(replica)
    other_reason = check_before_read(stores, other, key, file, required=True)
    if other_reason is None:
        return other
    if other_reason == UNVERIFIED:
        order_repair(stores, other, key, other_reason)
    if reason == UNVERIFIED:
        return replica
    if other_reason == UNVERIFIED:
        return other
    name = f"file {file.fqid}" if file else key
    raise DamagedObjectError(
        f"The stored bytes of {name} are damaged, and no replica has an intact copy"
        f" ({replica}: {reason}; {other}: {other_reason})."
    )


def check_before_read(
    stores: Stores,
    replica: Replica,
    key: str,
    file: FileVersion | None = None,
    *,
    required: bool = False,
) -> str | None:
    """Return what is wrong with an object; None if nothing is, or if its bucket does not answer."""
    check = partial(find_damage, stores, replica, key, file, most=INLINE_BYTES, required=required)
    future = _CHECKS[replica].submit(_run_check, replica, key, check)
    try:
        return future.result(PATIENCE_S)
    except TimeoutError:
        # A check that has not started waits for other readers, not for the bucket.
        if not future.cancel():
            stores.circuit_breaker.record_failure(f"bucket.{replica}")
        return None


def _run_check(replica: Replica, key: str, check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except DomainError as error:
        log.info("%s in %s is not checked: %s", key, replica, error.detail)
        return None


def find_damage(
    stores: Stores,
    replica: Replica,
    key: str,
    file: FileVersion | None = None,
    *,
    most: int | None = None,
    required: bool = False,
) -> str | None:
    """Return what is wrong with an object, or None; raise Unavailable.

    Bytes are read only if the engine keeps no checksum and they are no more than `most`. An absent
    object is missing if it is `required`, or if the catalog expects it.
    """
    try:
        bucket = stores.replicas[replica]
        # One call of some engines compares the file with their own digest.
        if file is not None and isinstance(bucket, EtagStore):
            etag = file.checksums.s3_etag
            if bucket.matches(key, size=file.size, etag=etag):
                return None
        info = bucket.head(key)
        if file is not None and info.size != file.size:
            return f"it has {info.size} bytes instead of {file.size}"
        if file is not None and info.crc32c not in (None, file.checksums.crc32c):
            return integrity.CHANGED
        return _find_reread_damage(stores, replica, info, most)
    except NotFoundError:
        is_missing = required or integrity.is_expected(stores, replica, key)
        return integrity.MISSING if is_missing else None
    except (DamagedObjectError, SourceChanged) as error:
        return error.detail


def _find_reread_damage(
    stores: Stores, replica: Replica, info: BlobInfo, most: int | None
) -> str | None:
    """Read a blob whose engine keeps no checksum, unless these bytes were read recently."""
    engine_checks = info.etag is not None or info.crc32c is not None
    if keys.parse_blob(info.key) is None or engine_checks:
        return None
    seen = stores.verified_pins.get(_cache_key(replica, info))
    if most is not None and info.size > most:
        return _find_listed_damage(stores, replica, info) if seen is None else _describe_state(seen)
    if seen != INTACT:
        is_intact = integrity.find_damage(stores, replica, info.key) is None
        seen = record_read(stores, replica, info, is_intact)
    return _describe_state(seen)


def _describe_state(seen: bytes) -> str | None:
    return integrity.CHANGED if seen == DAMAGED else None


def _find_listed_damage(stores: Stores, replica: Replica, info: BlobInfo) -> str | None:
    """Return what is wrong with a large blob according to the catalog, or None."""
    modified = {} if info.modified_us is None else {info.key: info.modified_us}
    with stores.catalog.read() as tx:
        reason = findings.filter_damaged(tx, replica, [info.key]).get(info.key)
        if reason is None and modified and findings.filter_changed(tx, replica, modified):
            return UNVERIFIED
    return reason


def is_verified(stores: Stores, replica: Replica, info: BlobInfo) -> bool:
    """Return whether this process read these bytes of a blob and found them intact.

    Bytes found damaged are read again, as they may be repaired; raise Damaged if they are not.
    """
    seen = stores.verified_pins.get(_cache_key(replica, info))
    if seen == DAMAGED:
        if (reason := integrity.find_damage(stores, replica, info.key)) is not None:
            raise DamagedObjectError(
                f"The object is damaged, and no replica has an intact copy: {reason}."
            )
        seen = record_read(stores, replica, info, is_intact=True)
    return seen == INTACT


def record_read(stores: Stores, replica: Replica, info: BlobInfo, is_intact: bool) -> bytes:
    """Remember whether these bytes of an object are intact; order a repair if not."""
    state = INTACT if is_intact else DAMAGED
    stores.verified_pins.put(_cache_key(replica, info), state)
    if not is_intact:
        order_repair(stores, replica, info.key, integrity.CHANGED)
    return state


def _cache_key(replica: Replica, info: BlobInfo) -> str:
    """Return a key for these bytes of an object, which changes when the trust ends."""
    return f"{replica} {info.key} {info.pin} {monotonic() // TRUST_S}"


def read_blob(stores: Stores, replica: Replica, sha256: str) -> bytes:
    """Return a small blob's verified bytes, from the other replica if this one's are damaged.

    Raise NotFoundError or Damaged if no replica has them.
    """
    key = keys.blob_key(sha256)
    try:
        return _read_verified(stores, replica, key)
    except (DamagedObjectError, NotFoundError, SourceChanged) as error:
        order_repair(stores, replica, key, error.detail)
        try:
            return _read_verified(stores, other_replica(replica), key)
        except (DamagedObjectError, NotFoundError, SourceChanged):
            raise error from None


def read_blob_soon(stores: Stores, replica: Replica, sha256: str) -> bytes:
    """Do the same, but raise Unavailable if the bucket does not answer within PATIENCE_S."""
    future = _READS[replica].submit(read_blob, stores, replica, sha256)
    try:
        return future.result(PATIENCE_S)
    except TimeoutError:
        # A read that has not started waits for other readers, not for the bucket.
        if not future.cancel():
            stores.circuit_breaker.record_failure(f"bucket.{replica}")
        raise Unavailable(f"The bucket of replica {replica} does not answer.") from None


def _read_verified(stores: Stores, replica: Replica, key: str) -> bytes:
    data = records.read_object(stores.replicas[replica], key)
    if hashlib.sha256(data).hexdigest() != keys.parse_blob(key):
        raise DamagedObjectError(f"{key} in {replica}: {integrity.CHANGED}")
    return data


def choose_replica(stores: Stores, kind: str, replica: Replica, fqid: FQID) -> Replica:
    """Return the replica whose bucket serves a version."""
    return _find_standby_with(stores, kind, replica, fqid) or replica


def choose_file_replica(stores: Stores, replica: Replica, located: FileLocation) -> Replica | None:
    """Return the replica whose bucket serves a file; None while readers have to wait for it."""
    if located.file is None or located.state == "pending":
        return None
    here = replica if located.state == "here" else None
    return _find_standby_with(stores, "file", replica, located.file.fqid) or here


def choose_blob_replica(stores: Stores, served: Replica, file: FileVersion) -> Replica:
    """Return the replica with intact bytes: `served`, or the other one if only that is intact."""
    key = keys.blob_key(file.checksums.sha256)
    return find_intact_replica(stores, served, key, file)


def find_intact_replicas(
    stores: Stores, served: Replica, entries: Sequence[ManifestEntry]
) -> dict[str, Replica]:
    """Return the replica that serves each blob, by SHA-256, according to the catalog.

    It is the other replica for blobs that are damaged in this one only.
    """
    blobs = {entry.checksums.sha256: keys.blob_key(entry.checksums.sha256) for entry in entries}
    other = other_replica(served)
    with stores.catalog.read() as tx:
        damaged = findings.filter_damaged(tx, served, list(blobs.values()))
        also_damaged = findings.filter_damaged(tx, other, list(damaged)) if damaged else {}
        moved = {
            sha256
            for sha256, key in blobs.items()
            if key in damaged
            and key not in also_damaged
            and findings.is_blob_expected(tx, other, sha256)
        }
    return {sha256: other if sha256 in moved else served for sha256 in blobs}


def find_standby(stores: Stores, replica: Replica) -> Replica | None:
    """Return the other replica if the bucket of this one is down and the other's is not."""
    other, is_down = other_replica(replica), stores.circuit_breaker.is_down
    return other if is_down(f"bucket.{replica}") and not is_down(f"bucket.{other}") else None


def _find_standby_with(stores: Stores, kind: str, replica: Replica, fqid: FQID) -> Replica | None:
    """Return the standby of a replica that is down, if the version is visible there."""
    standby = find_standby(stores, replica)
    if standby is None:
        return None
    with stores.catalog.read() as tx:
        ident = versions.find_published(tx, kind, standby, fqid)
    return None if ident is None else standby


MAX_SEARCH_ROUNDS = 4
"""Further searches to fill one page, if the index has many withdrawn bundles."""


class SearchCall(Protocol):
    """One search for at most `size` hits after a page token."""

    def __call__(self, index: SearchIndex, *, size: int, after: str | None) -> SearchPage:
        """Return hits of the index, including withdrawn bundles."""


@dataclass(frozen=True, slots=True)
class SearchPageRequest:
    """A page of `size` hits after `after`; one search returns at most `max_hits`."""

    size: int
    max_hits: int
    after: str | None = None


def search_with_failover(
    stores: Stores, replica: Replica, search: SearchCall, request: SearchPageRequest
) -> tuple[Replica, SearchPage]:
    """Search a replica's index, or the other one's if it is unavailable; return the one used.

    Withdrawn bundles that the index still has are dropped, and later hits take their places. A page
    is the last one if no visible hit follows.
    """
    # One hit more than the page has, so that no page is followed by an empty one.
    size, after = request.size + 1, request.after
    served, first = read_index_with_failover(
        stores, replica, lambda index: search(index, size=size, after=after)
    )
    page = _drop_withdrawn(stores, served, first)
    for _ in range(MAX_SEARCH_ROUNDS):
        if page.after is None or len(page.hits) > request.size:
            break
        try:
            more = search(stores.search[served], size=request.max_hits, after=page.after)
        except (Unavailable, TimeLimitExceeded):
            # Return the hits so far; the next page starts after them.
            break
        visible = _drop_withdrawn(stores, served, more)
        total = page.total - (len(more.hits) - len(visible.hits))
        page = SearchPage([*page.hits, *visible.hits], total, visible.after)
    if len(page.hits) > request.size:
        hits = page.hits[: request.size]
        page = replace(page, hits=hits, after=hits[-1].page_token)
    return served, page


def read_index_with_failover(
    stores: Stores, replica: Replica, read: Callable[[SearchIndex], T]
) -> tuple[Replica, T]:
    """Read a replica's index, or the other one's if it is unavailable; return the one used."""
    first, second = replica, other_replica(replica)
    if stores.circuit_breaker.is_down(f"search.{first}"):
        first, second = second, first
    try:
        return first, read(stores.search[first])
    except Unavailable:
        stores.circuit_breaker.record_failure(f"search.{first}")
        if stores.circuit_breaker.is_down(f"search.{second}"):
            raise
    return second, read(stores.search[second])


def _drop_withdrawn(stores: Stores, replica: Replica, page: SearchPage) -> SearchPage:
    """Drop hits that are no longer visible but still in the index."""
    fqids = [FQID(hit.uuid, hit.version) for hit in page.hits]
    with stores.catalog.read() as tx:
        visible = versions.filter_published(tx, "bundle", replica, fqids)
    hits = [hit for hit, fqid in zip(page.hits, fqids, strict=True) if fqid in visible]
    return replace(page, hits=hits, total=page.total - (len(fqids) - len(hits)))
