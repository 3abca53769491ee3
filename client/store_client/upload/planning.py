"""What of a directory the store has already, and what is still to be brought."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from store_client import kinds
from store_client.checksums import Checksums
from store_client.errors import NotFound
from store_client.transport.session import Session
from store_client.upload.journal import Journal, Kept, moment
from store_client.upload.options import UploadOptions
from store_client.upload.parts import read_only
from store_client.upload.sharing import Shared
from store_client.upload.walking import Local, walk

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file of the directory as the bundle is to have it."""

    file: Local
    content_type: str
    indexed: bool

    @property
    def name(self) -> str:
        """In the bundle."""
        return self.file.name


@dataclass(frozen=True, slots=True)
class Existing:
    """A bundle version that the store has, with its entries as it shows them."""

    uuid: str
    version: str
    creator_uid: int
    files: Sequence[Mapping[str, Any]]


def wanted(options: UploadOptions) -> list[Wanted]:
    """All files of the directory, by name; Misused."""
    return list(_described(walk(options.src_dir), options.indexed))


def _described(files: Sequence[Local], patterns: Sequence[str]) -> Iterator[Wanted]:
    for file in files:
        indexed = kinds.is_metadata(file.name, patterns)
        yield Wanted(file, kinds.content_type(file.name, indexed=indexed), indexed)


def existing(session: Session, replica: str, uuid: str, version: str | None) -> Existing | None:
    """A version of a bundle, the latest if none is named; None when there is none."""
    params = {"replica": replica, "version": version, "per_page": _PAGE}
    try:
        pages = [
            page.json()["bundle"]
            for page in session.pages("GET", f"/v1/bundles/{uuid}", params=params)
        ]
    except NotFound:
        return None
    first = pages[0]
    files = [entry for page in pages for entry in page["files"]]
    return Existing(first["uuid"], first["version"], first["creator_uid"], files)


def settled(
    one: Wanted, journal: Journal, entry: Mapping[str, Any] | None, *, shared: Shared
) -> Kept | None:
    """What is known of a file that is still the same: staged, or a file version of the store's.

    It is read again unless it surely is what was read before.
    """
    at, before = moment(), journal.files.get(one.name)
    sums = _checksums(one, before, entry, shared)
    if sums is None:
        return None
    if before and before.checksums == sums and before.content_type == one.content_type:
        kept = replace(before, stamp=one.file.stamp, at=at)
    elif entry and _is(entry, one, sums):
        kept = _of_entry(one, entry, sums, at)
    else:
        return None
    if before != kept and not (before and before.is_of(one.file.stamp)):
        journal.keep(one.name, kept)
    return kept


def _checksums(
    one: Wanted, before: Kept | None, entry: Mapping[str, Any] | None, shared: Shared
) -> Checksums | None:
    """Of the file as it is; None when it need not be read to know that it is new."""
    if before and before.is_of(one.file.stamp):
        return before.checksums
    sizes = {before.stamp.size if before else None, entry["size"] if entry else None}
    return read_only(one.file, shared) if one.file.size in sizes else None


def _is(entry: Mapping[str, Any], one: Wanted, sums: Checksums) -> bool:
    """Whether an entry of a bundle has this content, and says the same of it."""
    said = entry["size"], entry["sha256"], entry["content-type"]
    return said == (one.file.size, sums.sha256, one.content_type)


def _of_entry(one: Wanted, entry: Mapping[str, Any], sums: Checksums, at: int) -> Kept:
    return Kept(
        stamp=one.file.stamp,
        at=at,
        content_type=one.content_type,
        checksums=sums,
        uuid=entry["uuid"],
        version=entry["version"],
        stored=True,
    )


def same(
    there: Existing, files: Sequence[Wanted], known: Mapping[str, Kept], creator_uid: int
) -> bool:
    """Whether a bundle is just these files, under these names."""
    entries = {entry["name"]: entry for entry in there.files}
    return (
        there.creator_uid == creator_uid
        and len(there.files) == len(files)
        and all(
            one.name in known
            and one.name in entries
            and entries[one.name]["indexed"] == one.indexed
            and _is(entries[one.name], one, known[one.name].checksums)
            for one in files
        )
    )
