"""Upload many files into an area, several at once.

A file keeps its name. Files of a directory are named by their path in it: `run7/reads/a.fastq`
becomes `reads/a.fastq` when the directory `run7` is given.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from store_client.areas.files import (
    AreaListing,
    AreaUpload,
    SentFile,
    find_unchanged,
    list_by_name,
    send_file,
)
from store_client.errors import Conflict, Misused, NotAllowed, NotFound, StoreError, Unreachable
from store_client.local_files import OutgoingFile, stat_file, walk_files
from store_client.names import name_fault
from store_client.transfer.engine import run_each


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


JOBS = 8
"""Files at once."""
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
    upload: AreaUpload,
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
    for _, result in run_each(send, files, jobs=jobs, stop=upload.context.stop_signal):
        if not ended:
            yield result
        if isinstance(result.error, GENERAL_ERRORS):
            ended = True
            upload.context.stop()


def _send_one(
    upload: AreaUpload, outgoing: OutgoingFile, *, listing: AreaListing, dry_run: bool
) -> AreaFileResult:
    try:
        upload.context.check()
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
