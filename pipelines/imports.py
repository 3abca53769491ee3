"""Import objects of public buckets: each becomes a file, and each folder a bundle if wanted.

An import is a bulk of file deposits by source URL. A public object declares no checksums, so each
is read once to compute them, compared with what its engine states, and then verified, stored and
published as every deposit is.
"""

import logging
import re
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal
from uuid import NAMESPACE_URL, uuid5

from pipelines import bundles, checksums, formats, ingest
from pipelines.area_files import checksum_metadata
from pipelines.bundles import BundleDraft, NewEntry
from pipelines.ingest import IngestRequest
from pipelines.leases import make_heartbeat
from pipelines.limits import ETAG_CHUNK
from storage.catalog import files as file_rows
from storage.catalog import store_state
from storage.errors import (
    ClaimLost,
    ConflictError,
    DomainError,
    Invalid,
    SourceChanged,
    Unavailable,
    Unprocessable,
)
from storage.model import CHECKSUM_NAMES, FQID, FileVersion, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

log = logging.getLogger(__name__)

THREADS = 8
"""Objects that an import reads concurrently."""
LEASE_S = 120.0
"""Life of a claim without a heartbeat; afterwards a worker takes the file over."""
TASK_POLL_S = 0.2
MAX_FAULTS = 5
"""Most invalid names that the reason of a bundle tells."""
_MD5 = re.compile(r"[0-9a-f]{32}")

Outcome = Literal["imported", "present", "failed"]
State = Literal["new", "present", "unverified", "conflict"]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What to import, for whom; `endpoint` tells equal URLs of several S3 services apart."""

    source_url: str
    replica: Replica
    owner: str
    creator_uid: int
    endpoint: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ImportSource:
    """An object of the bucket, and the file version that it becomes."""

    url: str
    fqid: FQID
    info: BlobInfo


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What became of an object or a folder; `reason` says why it failed."""

    url: str
    fqid: FQID
    outcome: Outcome
    size: int = 0
    reason: str = ""


def list_sources(stores: Stores, request: ImportRequest) -> Iterator[ImportSource]:
    """List the objects to import, without the markers of empty folders.

    The same object has the same uuid and version in every run: they come from its URL, its ETag or
    generation, and its time.
    """
    scheme, _, rest = request.source_url.partition("://")
    root = f"{scheme}://{rest.partition('/')[0]}/"
    infos = (info for info in stores.sources.list(request.source_url) if not info.key.endswith("/"))
    for info in islice(infos, request.limit):
        url = _escape(root + info.key)
        name = f"{request.endpoint}{url}#{info.etag or info.pin}"
        version = formats.version_from_us(info.modified_us or 0)
        yield ImportSource(url, FQID(str(uuid5(NAMESPACE_URL, name)), version), info)


def _escape(text: str) -> str:
    """Escape lone surrogates, which can be neither stored nor printed."""
    return text.encode(errors="backslashreplace").decode()


def import_files(
    stores: Stores, request: ImportRequest, sources: Iterator[ImportSource]
) -> Iterator[tuple[ImportSource, ImportResult]]:
    """Import objects concurrently and yield their results in order; one that fails stops none."""
    with stores.catalog.read() as tx:
        store_state.check_writable(tx)
    running: deque[tuple[ImportSource, Future[ImportResult]]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for source in sources:
            running.append((source, pool.submit(_import_file, stores, request, source)))
            if len(running) >= 2 * THREADS:
                done, result = running.popleft()
                yield done, result.result()
        for done, result in running:
            yield done, result.result()


def find_state(stores: Stores, request: ImportRequest, source: ImportSource) -> State:
    """Return whether an object is stored, as far as its listing and the catalog tell.

    `unverified` is a file of another depositor: its name can be predicted, so only the object's
    bytes show whether it is the same.
    """
    row = _find_row(stores, source)
    if row is None:
        return "new"
    etag = _get_md5(source.info)
    if row.size != source.info.size or (etag and row.checksums.s3_etag != etag):
        return "conflict"
    return "present" if row.author == request.owner else "unverified"


def _find_row(stores: Stores, source: ImportSource) -> FileVersion | None:
    with stores.catalog.read() as tx:
        row = file_rows.find(tx, source.fqid)
    return row if row and row.published else None


def _get_md5(info: BlobInfo) -> str | None:
    """Return the MD5 of an object if its ETag is one, and if the store's ETag of it is, too."""
    is_md5 = info.etag is not None and _MD5.fullmatch(info.etag) and info.size < ETAG_CHUNK
    return info.etag if is_md5 else None


def _import_file(stores: Stores, request: ImportRequest, source: ImportSource) -> ImportResult:
    size = source.info.size
    try:
        outcome = _deposit_source(stores, request, source)
    except Exception as error:
        return ImportResult(source.url, source.fqid, "failed", size, _explain(error))
    return ImportResult(source.url, source.fqid, outcome, size)


def _deposit_source(stores: Stores, request: ImportRequest, source: ImportSource) -> Outcome:
    """Deposit an object unless it is stored; ConflictError if its version has other content."""
    if _escape(source.info.key) != source.info.key:
        raise Invalid("its key is not valid Unicode")
    state = find_state(stores, request, source)
    if state == "present":
        return "present"
    conflict = ConflictError(f"File {source.fqid} exists with other content.")
    if state == "conflict":
        raise conflict
    declared = _declare(stores, source)
    if row := _find_row(stores, source):
        if declared.metadata != checksum_metadata(row.checksums):
            raise conflict
        return "present"
    new = IngestRequest(source.fqid, request.replica, source.url, request.creator_uid)
    deposit_file(stores, new, declared, request.owner)
    return "imported"


def _explain(error: Exception) -> str:
    """Return why an object or a bundle failed, with the class of an unexpected error."""
    if isinstance(error, DomainError):
        return error.detail
    log.exception("unexpected error during an import", exc_info=error)
    return _escape(f"{type(error).__name__}: {error}")


def deposit_file(stores: Stores, new: IngestRequest, info: BlobInfo, owner: str) -> None:
    """Verify, store and publish a file in this process; `info` declares the checksums.

    If another process takes the task over meanwhile, wait for its result. Raise Unprocessable if
    the bytes differ, else errors as in `ingest.start_task`.
    """
    claim = ingest.claim_task(stores, new, info, owner, lease_s=LEASE_S)
    if claim is None:
        return
    with suppress(ClaimLost):
        ingest.verify(stores, claim, make_heartbeat(stores, [claim], LEASE_S))
    while (task := ingest.get_task(stores, claim.job.ref)).state == "RUNNING":
        time.sleep(TASK_POLL_S)
    if task.cause:
        raise Unprocessable(str(task.cause["detail"]), code=str(task.cause["code"]))
    if task.state == "PENDING":
        raise Unavailable("Another process began to import this object, and stopped: try again.")


def _declare(stores: Stores, source: ImportSource) -> BlobInfo:
    """Read every byte of an object, and return its info with the checksums as its metadata.

    Raise Unprocessable if they contradict what its engine or its metadata state.
    """
    opened = stores.sources.open(source.url)
    info = opened.head()
    if (info.size, info.etag if source.info.etag else info.pin) != (
        source.info.size,
        source.info.etag or source.info.pin,
    ):
        raise SourceChanged("The object changed while it was imported.")
    computed = checksums.compute_checksums(opened.read(info.pin), info.size)
    sums = computed.checksums
    stated = {
        "ETag": (_get_md5(info), sums.s3_etag),
        "CRC-32C": (info.crc32c, sums.crc32c),
        **{
            f"metadata {checksums.METADATA_PREFIX}{field}": (
                info.metadata.get(checksums.METADATA_PREFIX + field, "").lower(),
                getattr(sums, field),
            )
            for field in CHECKSUM_NAMES
        },
    }
    for name, (value, actual) in stated.items():
        if value and value not in (actual, computed.alternate_etag):
            raise Unprocessable(
                f"its {name} is stated as {value}, but its bytes have {actual}",
                code="checksum_mismatch",
            )
    return replace(info, metadata=checksum_metadata(sums))


class FolderCollector:
    """Collects the files of each folder until all are imported, and writes them as bundles."""

    def __init__(self) -> None:
        self._folders: dict[str, list[ImportSource]] = defaultdict(list)
        self._failed: dict[str, int] = defaultdict(int)

    def add(self, source: ImportSource, outcome: Outcome) -> None:
        """Add an object to its folder."""
        folder = source.url.rpartition("/")[0] + "/"
        self._folders[folder].append(source)
        self._failed[folder] += outcome == "failed"

    def write_bundles(self, stores: Stores, request: ImportRequest) -> Iterator[ImportResult]:
        """Write the bundle of each folder whose files are all here.

        Its uuid comes from the folder's URL, its version is that of the latest file.
        """
        for folder, sources in self._folders.items():
            version = max(source.fqid.version for source in sources)
            fqid = FQID(str(uuid5(NAMESPACE_URL, request.endpoint + folder)), version)
            if failed := self._failed[folder]:
                reason = f"{failed} of its {len(sources)} files were not imported"
                yield ImportResult(folder, fqid, "failed", reason=reason)
                continue
            yield _write_bundle(stores, request, folder, fqid, sources)


def _write_bundle(
    stores: Stores, request: ImportRequest, folder: str, fqid: FQID, sources: Sequence[ImportSource]
) -> ImportResult:
    names = [(source.url.removeprefix(folder), source.fqid) for source in sources]
    entries = [NewEntry(name, file, name.lower().endswith(".json")) for name, file in names]
    draft = BundleDraft(fqid, request.replica, request.creator_uid, entries)
    try:
        formats.check_file_names([name for name, _ in names], pointer=lambda at: names[at][0])
    except Invalid as error:
        faults = [f"{name}: {' '.join(texts)}" for name, texts in error.errors.items()]
        reason = " ".join([error.detail, *faults[:MAX_FAULTS]])
        return ImportResult(folder, fqid, "failed", reason=reason)
    try:
        written = bundles.put(stores, draft, request.owner, request_id="import")
    except Exception as error:
        return ImportResult(folder, fqid, "failed", reason=_explain(error))
    return ImportResult(folder, fqid, "imported" if written.created else "present")
