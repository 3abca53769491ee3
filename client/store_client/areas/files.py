"""Upload one file into an area: by the best route, resumed, and verified by its checksums."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from store_client.areas.buckets import AreaBucket, find_bucket
from store_client.checksums import ETAG_CHUNK, FileChecksums
from store_client.client import Client
from store_client.errors import Damaged, NotFound, Refused, TimedOut
from store_client.local_files import OutgoingFile
from store_client.transfer import api
from store_client.transfer.engine import MemoryBody, RollbackProgress, TransferContext
from store_client.transfer.journal import FileJournal
from store_client.transfer.parts import (
    FileChanged,
    hash_bytes,
    hash_file,
    read_whole,
    send_parts,
)

log = logging.getLogger(__name__)

LARGE = ETAG_CHUNK
"""Bytes from which a file is sent in parts."""
ATTEMPTS = 6
"""How often bytes are sent that arrive damaged."""
PART_JOBS = 6
"""Parts sent at once, over all files: at 64 MB each, what bounds their memory."""
LONGEST_PAUSE_S = 5.0
"""Between two requests whether the server has verified a file."""
PART_OPERATIONS = ("post_area_upload", "put_area_part", "post_area_upload_complete")
"""Operations of a store that takes files in parts."""
IDENTIFYING = ("sha256", "crc32c")
"""The checksums that tell whether content is the same."""

AreaListing = Mapping[str, Mapping[str, Any]]
"""The files of an area by name, as the store lists them."""


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that arrived; `url` is its source URL for put_file."""

    url: str
    size: int
    checksums: FileChecksums


@dataclass(frozen=True, slots=True)
class AreaUpload:
    """How files are uploaded into one area."""

    client: Client
    area: str
    context: TransferContext = field(default_factory=lambda: TransferContext(PART_JOBS))
    accelerate: bool = True
    """Use the accelerated address of a bucket that has one."""
    timeout_s: float = 1200.0
    """Time for the server to verify a large file."""
    pause_s: float = 0.2
    """Before the second request whether it is verified; later ones wait longer."""


def send_file(upload: AreaUpload, outgoing: OutgoingFile) -> SentFile:
    """Upload a file into an area, again while it arrives damaged; Damaged if it always does.

    A large file resumes where an earlier run stopped.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _send_once(upload, outgoing)
        except FileChanged:
            raise
        except Damaged as error:
            log.warning("%s; sending it again", error)
    return _send_once(upload, outgoing)


def _send_once(upload: AreaUpload, outgoing: OutgoingFile) -> SentFile:
    progress = RollbackProgress(upload.context.tell)
    try:
        upload.context.check()
        context = upload.context.with_progress(progress)
        return _send_by_route(replace(upload, context=context), outgoing)
    except BaseException:
        progress.roll_back()
        raise


def _send_by_route(upload: AreaUpload, outgoing: OutgoingFile) -> SentFile:
    """Small files in one request, large ones into the bucket if possible, else in parts."""
    if outgoing.size < LARGE:
        return _send_whole(upload, outgoing)
    bucket = find_bucket(upload.client, upload.area, accelerate=upload.accelerate)
    if bucket is not None:
        return send_direct(upload, outgoing, bucket=bucket)
    if all(name in upload.client.operations for name in PART_OPERATIONS):
        return _send_by_parts(upload, outgoing)
    return _send_whole(upload, outgoing)


def _send_whole(upload: AreaUpload, outgoing: OutgoingFile) -> SentFile:
    context = upload.context
    with context.memory(outgoing.size):
        data = read_whole(outgoing.local())
        checksums = hash_bytes(data)
        body = MemoryBody(data, context)
        answer = api.put_file(
            upload.client, upload.area, outgoing.name, body, outgoing.content_type
        )
    compare_checksums(outgoing, answer.get("checksums"), checksums)
    return SentFile(str(answer["url"]), outgoing.size, checksums)


def send_direct(upload: AreaUpload, outgoing: OutgoingFile, *, bucket: AreaBucket) -> SentFile:
    """Upload a file into the area's bucket, and wait until the store has verified it."""
    with _open_journal(upload, outgoing, "cloud") as journal:
        checksums = _fill_bucket(upload, outgoing, bucket=bucket, journal=journal)
        wait_for_checksums(upload, outgoing, checksums)
    return SentFile(bucket.url(outgoing.name), outgoing.size, checksums)


@contextmanager
def _open_journal(upload: AreaUpload, outgoing: OutgoingFile, way: str) -> Iterator[FileJournal]:
    """The journal of a large file; dropped once the file arrived, or arrived damaged."""
    journal = FileJournal(upload.client.config, upload.area, outgoing=outgoing, way=way)
    try:
        yield journal
    except Damaged:
        journal.drop()
        raise
    journal.drop()


def _fill_bucket(
    upload: AreaUpload, outgoing: OutgoingFile, *, bucket: AreaBucket, journal: FileJournal
) -> FileChecksums:
    recorded = journal.read()
    if "checksums" in recorded:
        upload.context.tell.bytes(outgoing.size)
        return FileChecksums(**recorded["checksums"])
    checksums = bucket.send(outgoing, journal, upload.context)
    facts = {
        "content_type": outgoing.content_type,
        "size": outgoing.size,
        "checksums": asdict(checksums),
    }
    api.register_file(upload.client, upload.area, outgoing.name, said=facts)
    journal.write({"checksums": asdict(checksums)})
    return checksums


def _send_by_parts(upload: AreaUpload, outgoing: OutgoingFile) -> SentFile:
    """Upload a file through the store in parts, resumed where an earlier run stopped."""
    with _open_journal(upload, outgoing, "parts") as journal:
        checksums, answer = _send_missing_parts(upload, outgoing, journal)
        wait_for_checksums(upload, outgoing, checksums)
    return SentFile(str(answer["url"]), outgoing.size, checksums)


def _send_missing_parts(
    upload: AreaUpload, outgoing: OutgoingFile, journal: FileJournal
) -> tuple[FileChecksums, Mapping[str, Any]]:
    """The checksums of the file, and the store's answer once it has all parts."""
    recorded = journal.read()
    if "answer" in recorded:
        upload.context.tell.bytes(outgoing.size)
        return FileChecksums(**recorded["checksums"]), recorded["answer"]
    begun = _begin_parts(upload, outgoing, recorded)
    stored = frozenset(begun["parts"])
    journal.write({"upload_id": begun["upload_id"]})
    try:
        checksums = send_parts(
            outgoing.local(),
            upload.context,
            lambda number, data, digest: _send_part(
                upload, outgoing, (begun["upload_id"], number), data, digest=digest
            ),
            size=begun["part_size"],
            is_stored=lambda number, digest: number in stored,
        )
        body = {"upload_id": begun["upload_id"], "checksums": asdict(checksums)}
        answer = api.complete_parts(upload.client, upload.area, outgoing.name, body=body)
    except NotFound as error:
        raise Damaged(f"the store no longer has the first parts of {outgoing.name}") from error
    journal.write({"answer": answer, "checksums": asdict(checksums)})
    return checksums, answer


def _begin_parts(
    upload: AreaUpload, outgoing: OutgoingFile, recorded: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The recorded upload if the server still has it, else a new one."""
    body = {"size": outgoing.size, "content_type": outgoing.content_type}
    where = upload.client, upload.area, outgoing.name
    if upload_id := recorded.get("upload_id"):
        try:
            found = api.begin_parts(*where, body={**body, "upload_id": upload_id})
        except Refused as error:
            if error.status not in (400, 404):
                raise
            log.info("%s begins anew: %s", outgoing.name, error)
        else:
            log.info("%s: %d parts are there already", outgoing.name, len(found["parts"]))
            return found
    return api.begin_parts(*where, body=body)


def _send_part(
    upload: AreaUpload, outgoing: OutgoingFile, part: tuple[str, int], data: bytes, *, digest: bytes
) -> None:
    """Upload one part, again while it arrives damaged."""
    body = MemoryBody(data, upload.context)
    params = {"upload_id": part[0], "part": part[1]}
    for _ in range(ATTEMPTS):
        try:
            answer = api.put_part(upload.client, upload.area, outgoing.name, body, params=params)
            if answer.get("md5") == digest.hex():
                return
            log.warning("part %d of %s arrived damaged", part[1], outgoing.name)
        except Damaged as error:
            log.warning("%s; sending the part again", error)
    raise Damaged(f"part {part[1]} of {outgoing.name} always arrives damaged")


def compare_checksums(
    outgoing: OutgoingFile, theirs: Mapping[str, Any] | None, ours: FileChecksums
) -> None:
    """Damaged unless the server stored the bytes that were read here."""
    found = theirs or {}
    wrong = [name for name, value in asdict(ours).items() if found.get(name) != value]
    if wrong:
        raise Damaged(
            f"{outgoing.name} arrived damaged: {', '.join(wrong)} differ",
            hint="the network between this machine and the store corrupts data",
        )


def wait_for_checksums(upload: AreaUpload, outgoing: OutgoingFile, ours: FileChecksums) -> None:
    """Wait until the server has computed its checksums, and compare them; Damaged, TimedOut."""
    until = time.monotonic() + upload.timeout_s
    pause = upload.pause_s
    while True:
        found = api.get_checksum(upload.client, upload.area, outgoing.name)
        if found["status"] == api.CHECKSUMMED:
            return compare_checksums(outgoing, found["checksums"], ours)
        if found["status"] == api.FAILED:
            raise Damaged(f"{outgoing.name} arrived damaged: {found.get('cause') or 'no cause'}")
        if time.monotonic() > until:
            raise TimedOut(
                f"{outgoing.name} was sent, but is not verified after {upload.timeout_s:g} s",
                hint="nothing is sent again when the same command runs later",
            )
        upload.context.pause(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def list_by_name(upload: AreaUpload) -> AreaListing:
    """The files that are in the area now."""
    return {found["name"]: found for found in api.list_area_files(upload.client, upload.area)}


def find_unchanged(
    upload: AreaUpload, outgoing: OutgoingFile, *, files: AreaListing
) -> SentFile | None:
    """The file of that name in the area, if its content is the same; else None.

    The local file is read only when the size is the same.
    """
    found = files.get(outgoing.name)
    if found is None or found["size"] != outgoing.size:
        return None
    status = found["status"]
    if status != api.CHECKSUMMED and status not in api.UNDER_WAY:
        return None
    ours = hash_file(outgoing.local(), upload.context)
    if status == api.CHECKSUMMED:
        mine, theirs = asdict(ours), found["checksums"] or {}
        same = all(theirs.get(name) == mine[name] for name in IDENTIFYING)
    else:
        try:
            wait_for_checksums(upload, outgoing, ours)
            same = True
        except (Damaged, TimedOut):
            same = False
    return SentFile(str(found["url"]), outgoing.size, ours) if same else None
