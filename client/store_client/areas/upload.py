"""Upload files into an area: by the best route, resumed, and verified by their checksums.

A file keeps its name. Files of a directory are named by their path in it: `run7/reads/a.fastq`
becomes `reads/a.fastq` when the directory `run7` is given.
"""

import logging
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from store_client.areas import JOBS
from store_client.areas.buckets import AreaBucket, find_bucket
from store_client.checksums import ETAG_CHUNK, FileChecksums, hash_bytes
from store_client.client import Client
from store_client.errors import (
    Conflict,
    Damaged,
    Misused,
    NotAllowed,
    NotFound,
    Refused,
    StoreError,
    TimedOut,
    Unreachable,
    name_answer_errors,
)
from store_client.local_files import OutgoingFile, stat_file, walk_files
from store_client.names import name_fault
from store_client.transfer import api
from store_client.transfer.engine import MemoryBody, RollbackProgress, TransferContext, run_each
from store_client.transfer.journal import FileJournal
from store_client.transfer.parts import (
    FileChanged,
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
class AreaTransfer:
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


def send_file(upload: AreaTransfer, outgoing: OutgoingFile) -> SentFile:
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


def _send_once(upload: AreaTransfer, outgoing: OutgoingFile) -> SentFile:
    progress = RollbackProgress(upload.context.tell)
    try:
        upload.context.stop.check()
        context = upload.context.with_progress(progress)
        with name_answer_errors(f"the upload of {outgoing.name}"):
            return _send_by_route(replace(upload, context=context), outgoing)
    except BaseException:
        progress.roll_back()
        raise


def _send_by_route(upload: AreaTransfer, outgoing: OutgoingFile) -> SentFile:
    """Small files in one request, large ones into the bucket if possible, else in parts."""
    if outgoing.size < LARGE:
        return _send_whole(upload, outgoing)
    bucket = find_bucket(upload.client, upload.area, accelerate=upload.accelerate)
    if bucket is not None:
        return send_direct(upload, outgoing, bucket=bucket)
    if all(name in upload.client.operations for name in PART_OPERATIONS):
        return _send_by_parts(upload, outgoing)
    return _send_whole(upload, outgoing)


def _send_whole(upload: AreaTransfer, outgoing: OutgoingFile) -> SentFile:
    context = upload.context
    with context.memory.hold(outgoing.size):
        data = read_whole(outgoing.local())
        checksums = hash_bytes(data)
        body = MemoryBody(data, context)
        answer = api.put_file(
            upload.client, upload.area, outgoing.name, body, outgoing.content_type
        )
    compare_checksums(outgoing, answer.get("checksums"), checksums)
    return SentFile(str(answer["url"]), outgoing.size, checksums)


def send_direct(upload: AreaTransfer, outgoing: OutgoingFile, *, bucket: AreaBucket) -> SentFile:
    """Upload a file into the area's bucket, and wait until the store has verified it."""
    with _open_journal(upload, outgoing, "cloud") as journal:
        checksums = _fill_bucket(upload, outgoing, bucket=bucket, journal=journal)
        wait_for_checksums(upload, outgoing, checksums)
    return SentFile(bucket.url(outgoing.name), outgoing.size, checksums)


@contextmanager
def _open_journal(upload: AreaTransfer, outgoing: OutgoingFile, way: str) -> Iterator[FileJournal]:
    """The journal of a large file; dropped once the file arrived, or arrived damaged."""
    journal = FileJournal(upload.client.config, upload.area, outgoing=outgoing, way=way)
    try:
        yield journal
    except Damaged:
        journal.drop()
        raise
    journal.drop()


def _fill_bucket(
    upload: AreaTransfer, outgoing: OutgoingFile, *, bucket: AreaBucket, journal: FileJournal
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


def _send_by_parts(upload: AreaTransfer, outgoing: OutgoingFile) -> SentFile:
    """Upload a file through the store in parts, resumed where an earlier run stopped."""
    with _open_journal(upload, outgoing, "parts") as journal:
        checksums, answer = _send_missing_parts(upload, outgoing, journal)
        wait_for_checksums(upload, outgoing, checksums)
    return SentFile(str(answer["url"]), outgoing.size, checksums)


def _send_missing_parts(
    upload: AreaTransfer, outgoing: OutgoingFile, journal: FileJournal
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
    upload: AreaTransfer, outgoing: OutgoingFile, recorded: Mapping[str, Any]
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
    upload: AreaTransfer,
    outgoing: OutgoingFile,
    part: tuple[str, int],
    data: bytes,
    *,
    digest: bytes,
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


def wait_for_checksums(upload: AreaTransfer, outgoing: OutgoingFile, ours: FileChecksums) -> None:
    """Wait until the server has computed its checksums, and compare them; Damaged, TimedOut."""
    until = time.monotonic() + upload.timeout_s
    pause = upload.pause_s
    while True:
        found = api.get_file_state(upload.client, upload.area, outgoing.name)
        if found["status"] == api.CHECKSUMMED:
            return compare_checksums(outgoing, found["checksums"], ours)
        if found["status"] == api.FAILED:
            raise Damaged(f"{outgoing.name} arrived damaged: {found.get('cause') or 'no cause'}")
        if time.monotonic() > until:
            raise TimedOut(
                f"{outgoing.name} was sent, but is not verified after {upload.timeout_s:g} s",
                hint="nothing is sent again when the same command runs later",
            )
        upload.context.stop.pause(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def list_by_name(upload: AreaTransfer) -> AreaListing:
    """The files that are in the area now."""
    return {found["name"]: found for found in api.list_area_files(upload.client, upload.area)}


def find_unchanged(
    upload: AreaTransfer, outgoing: OutgoingFile, *, files: AreaListing
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


def plan_area_files(
    paths: Sequence[Path],
    *,
    kind_of: Callable[[str], str],
    target: str | None = None,
    extension: str | None = None,
) -> tuple[OutgoingFile, ...]:
    """Plan which files are uploaded, and their names; Misused names what cannot be sent.

    `target` names a single file; `extension` selects files of directories.
    """
    _check_paths(paths, target=target, extension=extension)
    found: dict[str, OutgoingFile] = {}
    for path, name in _name_files(paths, extension=extension):
        made = _make_outgoing(path, name if target is None else target, kind_of=kind_of)
        twin = found.setdefault(unicodedata.normalize("NFC", made.name), made)
        if twin.path.absolute() != path.absolute():
            raise Misused(
                f"{twin.path} and {path} would both be called {made.name}",
                hint="send them by two commands, into two areas, or rename one",
            )
    if not found:
        which = f" that end with {_extension(extension)}" if extension else ""
        raise Misused(f"there are no files{which} in {', '.join(map(str, paths))}")
    return tuple(sorted(found.values(), key=lambda one: one.name))


def _check_paths(paths: Sequence[Path], *, target: str | None, extension: str | None) -> None:
    for path in paths:
        if not path.exists():
            raise Misused(f"there is no {path}")
        if extension and not path.is_dir():
            raise Misused(
                f"{path} is not a directory", hint="--file-extension chooses files of directories"
            )
    if target is None:
        return
    if len(paths) != 1 or paths[0].is_dir():
        raise Misused("--target-filename names a single file", hint="give one path, of a file")


def _name_files(paths: Iterable[Path], *, extension: str | None) -> Iterator[tuple[Path, str]]:
    for path in paths:
        if not path.is_dir():
            yield path, path.name
            continue
        for found, name in walk_files(str(path)):
            if extension is None or name.endswith(_extension(extension)):
                yield Path(found), name


def _extension(extension: str) -> str:
    return f".{extension.lstrip('.')}"


def _make_outgoing(path: Path, name: str, *, kind_of: Callable[[str], str]) -> OutgoingFile:
    wrong = name_fault(name)
    if wrong is not None:
        raise Misused(f"an area cannot have a file {name!r}: {wrong}", hint="rename it")
    return OutgoingFile(path, name, kind_of(name), stat_file(str(path)).st_size)


GENERAL_ERRORS = (NotAllowed, NotFound, Conflict, Unreachable)
"""What would befall the files that follow, too."""


@dataclass(frozen=True, slots=True)
class AreaFileResult:
    """The result for one file; `sent` is None if it failed."""

    outgoing: OutgoingFile
    state: Literal["sent", "unchanged", "to send", "failed"]
    sent: SentFile | None = None
    error: StoreError | None = None


def send_files(
    upload: AreaTransfer,
    files: Sequence[OutgoingFile],
    *,
    sync: bool = False,
    dry_run: bool = False,
    jobs: int = JOBS,
) -> Iterator[AreaFileResult]:
    """Upload files in parallel, in no order; with `sync` only those that the area lacks.

    A file that fails leaves the others alone, unless the error concerns all of them: then the
    transfer stops. An iteration that ends early stops it, too.
    """
    listing = list_by_name(upload) if sync else {}
    upload.context.tell.total(len(files), sum(one.size for one in files))

    def send(outgoing: OutgoingFile) -> AreaFileResult:
        return _send_one(upload, outgoing, listing=listing, dry_run=dry_run)

    ended = False
    for _, result in run_each(send, files, jobs=jobs, stop=upload.context.stop):
        if not ended:
            yield result
        if isinstance(result.error, GENERAL_ERRORS):
            ended = True
            upload.context.stop.set()


def _send_one(
    upload: AreaTransfer, outgoing: OutgoingFile, *, listing: AreaListing, dry_run: bool
) -> AreaFileResult:
    try:
        upload.context.stop.check()
        found = find_unchanged(upload, outgoing, files=listing)
        if found is not None:
            upload.context.tell.bytes(outgoing.size)
            upload.context.tell.file()
            return AreaFileResult(outgoing, "unchanged", found)
        if dry_run:
            return AreaFileResult(outgoing, "to send")
        sent = send_file(upload, outgoing)
    except StoreError as error:
        return AreaFileResult(outgoing, "failed", error=error)
    upload.context.tell.file()
    return AreaFileResult(outgoing, "sent", sent)
