"""Plan an upload: files, metadata checks, what the store already has, which version to make."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import uuid4

from store_client import content_types
from store_client.checksums import FileChecksums
from store_client.errors import NotFound, name_answer_errors
from store_client.http.session import HttpSession
from store_client.identifiers import create_version, parse_version
from store_client.local_files import LocalFile, list_files
from store_client.transfer.engine import TransferContext
from store_client.transfer.journal import KnownFile, UploadAttempt, UploadJournal
from store_client.transfer.parts import hash_file
from store_client.uploads.options import UploadOptions

_PAGE = 500


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of the directory as it will be in the bundle."""

    file: LocalFile
    content_type: str
    indexed: bool
    prefix: str = ""
    """Of the names of one bundle among many, which are uploaded together."""

    @property
    def name(self) -> str:
        """The name among all files that are uploaded together."""
        return self.file.name

    @property
    def entry_name(self) -> str:
        """The name in the bundle."""
        return self.file.name.removeprefix(self.prefix)


@dataclass(frozen=True, slots=True)
class ExistingBundle:
    """A bundle version in the store, with its entries."""

    uuid: str
    version: str
    creator_uid: int
    files: Sequence[Mapping[str, Any]]


def plan_files(options: UploadOptions) -> list[PlannedFile]:
    """Plan all files of the directory, by name; Misused."""
    return [plan_file(file, options) for file in list_files(options.src_dir)]


def plan_file(file: LocalFile, options: UploadOptions, prefix: str = "") -> PlannedFile:
    """Plan one file; its name in the bundle is without the prefix."""
    name = file.name.removeprefix(prefix)
    indexed = content_types.is_metadata(name, options.indexed)
    kind = content_types.guess_content_type(name, indexed=indexed)
    return PlannedFile(file, kind, indexed, prefix)


def fetch_bundle(
    session: HttpSession, replica: str, uuid: str, version: str | None
) -> ExistingBundle | None:
    """Fetch a bundle version, by default the latest; None if there is none."""
    params = {"replica": replica, "version": version, "per_page": _PAGE}
    path = f"/v1/bundles/{uuid}"
    with name_answer_errors(f"GET {path}"):
        try:
            pages = [page.json()["bundle"] for page in session.pages("GET", path, params=params)]
        except NotFound:
            return None
        first = pages[0]
        files = [entry for page in pages for entry in page["files"]]
        return ExistingBundle(first["uuid"], first["version"], first["creator_uid"], files)


def find_known(
    one: PlannedFile,
    journal: UploadJournal,
    entry: Mapping[str, Any] | None,
    *,
    shared: TransferContext,
) -> KnownFile | None:
    """The record of a file whose content is staged or stored already; else None.

    The file is read again unless its stamp is certain.
    """
    at, before = time.time_ns(), journal.files.get(one.name)
    sums = _known_checksums(one, before, entry, shared)
    if sums is None:
        return None
    if before and before.checksums == sums and before.content_type == one.content_type:
        kept = replace(before, stamp=one.file.stamp, at=at)
    elif entry and _matches_entry(entry, one, sums):
        kept = KnownFile(
            stamp=one.file.stamp,
            at=at,
            content_type=one.content_type,
            checksums=sums,
            uuid=entry["uuid"],
            version=entry["version"],
            stored=True,
        )
    else:
        return None
    if before != kept and not (before and before.matches(one.file.stamp)):
        journal.record_file(one.name, kept)
    return kept


def _known_checksums(
    one: PlannedFile,
    before: KnownFile | None,
    entry: Mapping[str, Any] | None,
    shared: TransferContext,
) -> FileChecksums | None:
    """The checksums of the file; None if its size alone shows that it is new."""
    if before and before.matches(one.file.stamp):
        return before.checksums
    sizes = {before.stamp.size if before else None, entry["size"] if entry else None}
    return hash_file(one.file, shared) if one.file.size in sizes else None


def _matches_entry(entry: Mapping[str, Any], one: PlannedFile, sums: FileChecksums) -> bool:
    """Whether a bundle entry has the same content and content type."""
    said = entry["size"], entry["sha256"], entry["content-type"]
    return said == (one.file.size, sums.sha256, one.content_type)


def is_same_bundle(
    there: ExistingBundle,
    files: Sequence[PlannedFile],
    known: Mapping[str, KnownFile],
    creator_uid: int,
) -> bool:
    """Whether a bundle has exactly these files under these names."""
    entries = {entry["name"]: entry for entry in there.files}
    return (
        there.creator_uid == creator_uid
        and len(there.files) == len(files)
        and all(
            one.name in known
            and one.name in entries
            and entries[one.name]["indexed"] == one.indexed
            and _matches_entry(entries[one.name], one, known[one.name].checksums)
            for one in files
        )
    )


def find_existing(
    options: UploadOptions, session: HttpSession, journal: UploadJournal
) -> ExistingBundle | None:
    """The bundle version to compare with: the latest of the named bundle, else the last made."""
    if options.bundle:
        return fetch_bundle(session, options.replica, options.bundle, None)
    if (made := journal.attempt) is None:
        return None
    return fetch_bundle(session, options.replica, made.uuid, made.version)


def begin_attempt(
    options: UploadOptions, journal: UploadJournal, there: ExistingBundle | None
) -> UploadAttempt:
    """The bundle version to make; `there` is an existing version with other content."""
    before = journal.attempt
    if before and not before.finished and (there is None or there.version < before.version):
        return before
    version = later_version(there.version) if there and options.bundle else create_version()
    attempt = UploadAttempt(options.bundle or str(uuid4()), version, str(uuid4()))
    journal.record_attempt(attempt)
    return attempt


def later_version(version: str) -> str:
    """A version for now, or just after a version from a clock that is ahead."""
    after = parse_version(version) + timedelta(microseconds=1)
    return create_version(max(after, datetime.now(UTC)))


State = Literal["uploaded", "unchanged", "planned"]


@dataclass(frozen=True, slots=True)
class UploadReport:
    """A bundle version and its entries as the store shows them.

    state: `uploaded`; `unchanged` when the store had all of it; `planned` by a dry run, whose
        entries are what the directory has, without uuids, and `send` says which would be sent.
    sent_files, sent_bytes: what this run brought, or would bring.
    earlier_uuid: the bundle that an earlier run made of this directory, when this is another one:
        of a directory that has changed, and a bundle that was not named.
    """

    bundle_uuid: str | None
    version: str | None
    creator_uid: int
    files: Sequence[Mapping[str, Any]]
    state: State
    sent_files: int
    sent_bytes: int
    earlier_uuid: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As `store upload` prints it."""
        return {
            "bundle_uuid": self.bundle_uuid,
            "version": self.version,
            "state": self.state,
            "sent": {"files": self.sent_files, "bytes": self.sent_bytes},
            "bundle": {
                "uuid": self.bundle_uuid,
                "version": self.version,
                "creator_uid": self.creator_uid,
            },
            "files": [dict(one) for one in self.files],
        }


def unchanged_report(there: ExistingBundle) -> UploadReport:
    """The store has just this."""
    return UploadReport(
        there.uuid, there.version, there.creator_uid, there.files, "unchanged", 0, 0
    )


def planned_report(
    options: UploadOptions, files: Sequence[PlannedFile], missing: Sequence[PlannedFile]
) -> UploadReport:
    """What would be brought."""
    sent = {one.name for one in missing}
    entries = [
        {
            "name": one.name,
            "size": one.file.size,
            "content-type": one.content_type,
            "indexed": one.indexed,
            "send": one.name in sent,
        }
        for one in files
    ]
    return UploadReport(
        bundle_uuid=options.bundle,
        version=None,
        creator_uid=options.creator_uid,
        files=entries,
        state="planned",
        sent_files=len(missing),
        sent_bytes=sum(one.file.size for one in missing),
    )
