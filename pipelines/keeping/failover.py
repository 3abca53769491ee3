"""Failover and read repair: another replica answers for a damaged object, and a repair is ordered.

A check before a read costs one HEAD. Engines that keep a checksum of their own guard the bytes
themselves. A blob of a folder bucket is read again; the process that read it trusts it for a while,
unless it changes. A blob too large for a reader to wait for is damaged if the catalog lists it; if
it changed after its last verification, the other replica serves it until it is verified.
"""

import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic

from pipelines.flow import Step
from pipelines.keeping import integrity, placing
from pipelines.keeping.copying import INLINE
from storage import keys
from storage.catalog import integrity as findings
from storage.catalog import todo
from storage.errors import Damaged, NotFound, SourceChanged, StoreError, Unavailable
from storage.model import REPLICAS, FileVersion, Replica, Todo
from storage.protocols import BlobInfo, BlobStore, EtagStore
from storage.stores import Stores

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""How long a reader waits for the check of an object."""
_CHECKS = {name: ThreadPoolExecutor(8, thread_name_prefix=f"check-{name}") for name in REPLICAS}
"""Threads of each replica: a bucket that hangs must not hold up checks of the other."""
TRUSTED_S = 600.0
"""How long a process trusts a blob that it read: disks change bytes without a trace."""
INTACT, BROKEN = b"\1", b"\0"
"""What `Stores.seen` says of an object's bytes."""
UNVERIFIED = "it changed after it was last verified"
"""Said of a large blob: it may be intact."""


def other_replica(replica: Replica) -> Replica:
    """Return the replica that stands in for this one."""
    return next(name for name in REPLICAS if name != replica)


def order_repair(stores: Stores, replica: Replica, key: str, reason: str) -> None:
    """Have a damaged object repaired soon; a repair that is ordered already is left as it is."""
    wanted = Todo(Step.REPAIR, replica, key)
    try:
        with stores.catalog.read() as tx:
            ordered = todo.exists(tx, wanted)
        if not ordered:
            log.error("%s in %s: %s; a repair is ordered", key, replica, reason)
            with stores.catalog.write() as tx:
                todo.add_new(tx, [wanted])
    except Unavailable as error:
        log.warning("the repair of %s in %s is not ordered: %s", key, replica, error.detail)


def serving_replica(
    stores: Stores, replica: Replica, key: str, file: FileVersion | None = None
) -> Replica:
    """Return the replica that serves an object: this one, unless the object is damaged here and
    intact in the other one. Damaged if neither has an intact copy.

    `file` tells size and checksums of a blob."""
    reason = check_before_read(stores, replica, key, file)
    if reason is None:
        return replica
    order_repair(stores, replica, key, reason)
    instead = other_replica(replica)
    reason_there = check_before_read(stores, instead, key, file, required=True)
    if reason_there is None:
        return instead
    if reason_there == UNVERIFIED:
        order_repair(stores, instead, key, reason_there)
    for name, found in ((replica, reason), (instead, reason_there)):
        if found == UNVERIFIED:
            return name
    what = f"file {file.fqid}" if file else key
    raise Damaged(
        f"The stored bytes of {what} are damaged, and no replica has an intact copy"
        f" ({replica}: {reason}; {instead}: {reason_there})."
    )


def check_before_read(
    stores: Stores,
    replica: Replica,
    key: str,
    file: FileVersion | None = None,
    *,
    required: bool = False,
) -> str | None:
    """Return what is wrong with an object as far as a reader can wait to know; None while its
    bucket is away or silent."""
    check = partial(find_damage, stores, replica, key, file, most=INLINE, required=required)
    future = _CHECKS[replica].submit(_run_check, replica, key, check)
    try:
        return future.result(PATIENCE_S)
    except TimeoutError:
        # One that has not begun waits for other readers, and says nothing about the bucket.
        if not future.cancel():
            stores.availability.failed(f"bucket.{replica}")
        return None


def _run_check(replica: Replica, key: str, check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except StoreError as error:
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
    """Return what is wrong with an object, or None. Its bytes are read only where that is needed,
    and only if they are no more than `most`; Unavailable. An absent object is missing if it is
    `required`, or if the catalog expects it."""
    try:
        if file is not None and _has_etag(stores.replicas[replica], key, file):
            return None
        info = stores.replicas[replica].head(key)
        if file is not None and info.size != file.size:
            return f"it has {info.size} bytes instead of {file.size}"
        if file is not None and info.crc32c not in (None, file.checksums.crc32c):
            return integrity.CHANGED
        return _reread(stores, replica, info, most)
    except NotFound:
        is_missing = required or integrity.is_expected(stores, replica, key)
        return integrity.MISSING if is_missing else None
    except (Damaged, SourceChanged) as error:
        return error.detail


def _has_etag(blobs: BlobStore, key: str, file: FileVersion) -> bool:
    """Whether an engine's own digest shows the file's bytes, where that takes one cheap call."""
    etag = file.checksums.s3_etag
    return isinstance(blobs, EtagStore) and blobs.matches(key, size=file.size, etag=etag)


def _reread(stores: Stores, replica: Replica, info: BlobInfo, most: int | None) -> str | None:
    """Read a blob whose engine keeps no checksum, unless these bytes were read a while ago."""
    engine_checks = info.etag is not None or info.crc32c is not None
    if keys.parse_blob(info.key) is None or engine_checks:
        return None
    seen = stores.seen.get(_bytes_of(replica, info))
    if most is not None and info.size > most:
        return _listed_damage(stores, replica, info) if seen is None else _said(seen)
    if seen != INTACT:
        right = integrity.find_damage(stores, replica, info.key) is None
        seen = note_read(stores, replica, info, right)
    return _said(seen)


def _said(seen: bytes) -> str | None:
    return integrity.CHANGED if seen == BROKEN else None


def _listed_damage(stores: Stores, replica: Replica, info: BlobInfo) -> str | None:
    """Return what the catalog says is wrong with a large blob."""
    modified = {} if info.modified_us is None else {info.key: info.modified_us}
    with stores.catalog.read() as tx:
        reason = findings.among_damaged(tx, replica, [info.key]).get(info.key)
        if reason is None and modified and findings.changed_since(tx, replica, modified):
            return UNVERIFIED
    return reason


def is_verified(stores: Stores, replica: Replica, info: BlobInfo) -> bool:
    """Return whether this process read these bytes of a blob and found them right.

    Bytes that it found damaged are read again, as they may be right now; Damaged if they are not.
    """
    seen = stores.seen.get(_bytes_of(replica, info))
    if seen == BROKEN:
        if (reason := integrity.find_damage(stores, replica, info.key)) is not None:
            raise Damaged(f"The object is damaged, and no replica has a whole copy: {reason}.")
        seen = note_read(stores, replica, info, right=True)
    return seen == INTACT


def note_read(stores: Stores, replica: Replica, info: BlobInfo, right: bool) -> bytes:
    """Remember whether these bytes of an object were right; if not, have them repaired."""
    verdict = INTACT if right else BROKEN
    stores.seen.put(_bytes_of(replica, info), verdict)
    if not right:
        order_repair(stores, replica, info.key, integrity.CHANGED)
    return verdict


def _bytes_of(replica: Replica, info: BlobInfo) -> str:
    """Return the name of exactly these bytes of an object, for as long as they are trusted."""
    return f"{replica} {info.key} {info.pin} {monotonic() // TRUSTED_S}"


def read_blob(stores: Stores, replica: Replica, sha256: str) -> bytes:
    """Return a small blob's verified bytes, from the other replica if they are damaged in this one.

    NotFound or Damaged if neither has them.
    """
    key = keys.blob(sha256)
    try:
        return _verified(stores, replica, key)
    except (Damaged, NotFound, SourceChanged) as error:
        order_repair(stores, replica, key, error.detail)
        try:
            return _verified(stores, other_replica(replica), key)
        except (Damaged, NotFound, SourceChanged):
            raise error from None


def _verified(stores: Stores, replica: Replica, key: str) -> bytes:
    data = placing.whole(stores.replicas[replica], key)
    if hashlib.sha256(data).hexdigest() != keys.parse_blob(key):
        raise Damaged(f"{key} in {replica}: {integrity.CHANGED}")
    return data
