"""Archives of bundles: ZIP, tar, BagIt and RO-Crate streams with bounded memory.

The bytes of a version's archive are always the same, so its size is known before it is streamed.
Names are made safe to unpack on every system; everything is below one folder. Files are verified
on their way: a damaged one breaks the stream before its last bytes.
"""

import hashlib
import io
import re
import tarfile
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from sys import intern
from typing import Any, Literal, NamedTuple, get_args

from pipelines import bundles, copies, failover
from pipelines.limits import ARCHIVE_FILES_MAX, SEGMENT_ENTRIES
from pipelines.linked_data import CRATE_METADATA, CrateFile, Publisher, describe_crate
from storage import json_codec, keys
from storage.errors import (
    DamagedObjectError,
    DomainError,
    NotFoundError,
    SourceChanged,
    Unprocessable,
)
from storage.model import BundleVersion, Replica
from storage.protocols import BLOCK
from storage.stores import Stores

ArchiveFormat = Literal["zip", "tar", "bagit", "ro-crate"]
ARCHIVE_FORMATS: tuple[ArchiveFormat, ...] = get_args(ArchiveFormat)
CONTENT_TYPES: Mapping[ArchiveFormat, str] = {
    "zip": "application/zip",
    "tar": "application/x-tar",
    "bagit": "application/zip",
    "ro-crate": "application/zip",
}


class ArchiveFile(NamedTuple):
    """One file of a bundle, with its path below the folder of the archive."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive of a bundle version consists of."""

    bundle: BundleVersion
    form: ArchiveFormat
    replica: Replica
    """The replica that serves the files."""
    files: Sequence[ArchiveFile]
    added: Mapping[str, bytes]
    """Files that the format adds before those of the bundle, by path."""
    moved: Mapping[str, Replica]
    """The replicas of blobs that are damaged in the serving one, by SHA-256."""

    @property
    def name(self) -> str:
        """Its file name."""
        suffix = self.form if self.form in ("zip", "tar") else f"{self.form}.zip"
        return f"{self.bundle.fqid}.{suffix}"

    def measure(self) -> int:
        """Return the size of the stream in bytes."""
        members = [(path, len(data)) for path, data in self.added.items()]
        members += [(file.path, file.size) for file in self.files]
        moment = _moment_of(self.bundle)
        return measure_tar(members, moment) if self.form == "tar" else measure_zip(members)


def prepare_archive(
    stores: Stores,
    replica: Replica,
    uuid: str,
    version: str | None,
    form: ArchiveFormat,
    publisher: Publisher,
) -> Archive:
    """Return the archive of a visible version, by default the latest.

    Raise NotFoundError, or Unprocessable (`archive_too_large`) if it has too many files.
    """
    bundle = bundles.find(stores, replica, uuid, version)
    if bundle.file_count > ARCHIVE_FILES_MAX:
        raise Unprocessable(
            f"The bundle has {bundle.file_count} files, and an archive at most"
            f" {ARCHIVE_FILES_MAX}; get it with `store download`.",
            code="archive_too_large",
        )
    served = failover.choose_replica(stores, "bundle", replica, bundle.fqid)
    contents: list[tuple[str, str, int, str]] = []
    moved: dict[str, Replica] = {}
    for start in range(0, bundle.file_count, SEGMENT_ENTRIES):
        entries = bundles.read_entries(stores, bundle, start, SEGMENT_ENTRIES)
        contents += [
            (entry.name, intern(entry.content_type), entry.size, entry.checksums.sha256)
            for entry in entries
        ]
        intact = failover.find_intact_replicas(stores, served, entries)
        moved |= {sha256: name for sha256, name in intact.items() if name != served}
    if len(contents) != bundle.file_count:
        raise NotFoundError(f"The bundle {bundle.fqid} was purged.")
    # No file has the name of a crate's metadata, so that all formats have the same names.
    _, *paths = make_safe_paths([CRATE_METADATA, *(name for name, *_ in contents)])
    folder = f"{bundle.fqid}/data" if form == "bagit" else f"{bundle.fqid}"
    files = [
        ArchiveFile(f"{folder}/{path}", size, sha256)
        for path, (_, _, size, sha256) in zip(paths, contents, strict=True)
    ]
    added: dict[str, bytes] = {}
    if form == "bagit":
        added = _build_bag_tags(bundle, files)
    elif form == "ro-crate":
        crate_files = (CrateFile(path, *entry) for path, entry in zip(paths, contents, strict=True))
        crate = json_codec.encode(describe_crate(bundle, crate_files, publisher))
        added = {f"{folder}/{CRATE_METADATA}": crate}
    return Archive(bundle, form, served, files, added, moved)


def stream_archive(stores: Stores, archive: Archive) -> Iterator[bytes]:
    """Yield the bytes of an archive; raise DomainError where a file cannot be read intact."""
    moment = _moment_of(archive.bundle)
    encode = encode_tar if archive.form == "tar" else encode_zip
    return _join_blocks(encode(_read_members(stores, archive), moment))


def _read_members(stores: Stores, archive: Archive) -> Iterator["Member"]:
    for path, data in archive.added.items():
        yield Member(path, len(data), [data])
    for file in archive.files:
        replica = archive.moved.get(file.sha256, archive.replica)
        yield Member(file.path, file.size, _read_file(stores, replica, file))


def _read_file(stores: Stores, replica: Replica, file: ArchiveFile) -> Iterator[bytes]:
    """Yield a file's verified bytes, from the other replica if this one's are damaged."""
    if file.size <= copies.INLINE_BYTES:
        yield failover.read_blob(stores, replica, file.sha256)
        return
    key = keys.blob_key(file.sha256)
    served = failover.find_intact_replica(stores, replica, key)
    try:
        yield from read_large_blob(stores, served, file.size, file.sha256)
    except (DamagedObjectError, SourceChanged):
        # The next reader gets the other replica's bytes.
        with suppress(DomainError):
            damaged = stores.replicas[served].head(key)
            failover.record_read(stores, served, damaged, is_intact=False)
        raise


def read_large_blob(stores: Stores, replica: Replica, size: int, sha256: str) -> Iterator[bytes]:
    """Yield a blob's bytes; raise SourceChanged before the last block if they are damaged."""
    source, key = stores.replicas[replica], keys.blob_key(sha256)
    verified = copies.read_verified(source, key, size=size, sha256=sha256)
    last = next(verified, b"")
    left = size - len(last)
    for block in verified:
        left -= len(block)
        if left < 0:
            raise SourceChanged(f"The blob {sha256} has more than {size} bytes.")
        yield last
        last = block
    yield last


def _join_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Join small blocks, so that small files do not become a packet each."""
    pending: list[bytes] = []
    size = 0
    for block in blocks:
        pending.append(block)
        size += len(block)
        if size >= BLOCK:
            yield b"".join(pending)
            pending.clear()
            size = 0
    yield b"".join(pending)


# Formats -----------------------------------------------------------------------------------


class Member(NamedTuple):
    """One file of an archive, whose bytes are read once."""

    path: str
    size: int
    blocks: Iterable[bytes]


def _moment_of(bundle: BundleVersion) -> datetime:
    return datetime.fromisoformat(bundle.fqid.version)


_MODE = 0o644
_ZIP_DATES = ((1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58))
"""The first and the last date of a ZIP archive."""


class _Pipe(io.RawIOBase):
    """A file that cannot seek; what is written is taken out again."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def write(self, data: Any, /) -> int:
        """Keep the bytes until they are taken."""
        self._blocks.append(bytes(data))
        return len(self._blocks[-1])

    def take(self) -> bytes:
        """Return what was written since the last call."""
        data = b"".join(self._blocks)
        self._blocks.clear()
        return data


def encode_zip(members: Iterable[Member], moment: datetime) -> Iterator[bytes]:
    """Yield a ZIP archive with stored files."""
    pipe = _Pipe()
    date = min(max(_ZIP_DATES[0], moment.timetuple()[:6]), _ZIP_DATES[1])
    with zipfile.ZipFile(pipe, "w") as archive:
        for path, size, blocks in members:
            info = zipfile.ZipInfo(path, date)
            info.external_attr = _MODE << 16
            with archive.open(info, "w", force_zip64=_is_zip64(size)) as target:
                for block in blocks:
                    target.write(block)
                    yield pipe.take()
    yield pipe.take()


def _is_zip64(size: int) -> bool:
    return size > zipfile.ZIP64_LIMIT // 2


def measure_zip(members: Sequence[tuple[str, int]]) -> int:
    """Return the size that `encode_zip` makes of paths and sizes (APPNOTE.TXT 4.3)."""
    lengths = [len(path.encode()) for path, _ in members]
    spans = [
        30 + length + size + (20 + 24 if _is_zip64(size) else 16)
        for length, (_, size) in zip(lengths, members, strict=True)
    ]
    *starts, end = accumulate(spans, initial=0)
    directory = 0
    for length, (_, size), start in zip(lengths, members, starts, strict=True):
        large = 2 * (size > zipfile.ZIP64_LIMIT) + (start > zipfile.ZIP64_LIMIT)
        directory += 46 + length + (4 + 8 * large if large else 0)
    is_zip64 = len(members) > 0xFFFF or max(end, directory) > zipfile.ZIP64_LIMIT
    return end + directory + 22 + (56 + 20 if is_zip64 else 0)


_TAR_SIZE_END = 8**11
"""Sizes from here need an extended header."""


def encode_tar(members: Iterable[Member], moment: datetime) -> Iterator[bytes]:
    """Yield a tar archive (POSIX.1-2001)."""
    written = 0
    for path, size, blocks in members:
        header = _tar_header(path, size, moment)
        yield header
        yield from blocks
        padding = bytes(-size % tarfile.BLOCKSIZE)
        yield padding
        written += len(header) + size + len(padding)
    yield _tar_end(written)


def measure_tar(members: Iterable[tuple[str, int]], moment: datetime) -> int:
    """Return the size that `encode_tar` makes of paths and sizes."""
    plain = len(_tar_header("", 0, moment))
    written = 0
    for path, size in members:
        # To make all headers twice would take as long as to read small files.
        is_plain = len(path) <= tarfile.LENGTH_NAME and path.isascii() and size < _TAR_SIZE_END
        header = plain if is_plain else len(_tar_header(path, size, moment))
        written += header + size + -size % tarfile.BLOCKSIZE
    return written + len(_tar_end(written))


def _tar_header(path: str, size: int, moment: datetime) -> bytes:
    info = tarfile.TarInfo(path)
    info.size, info.mode, info.mtime = size, _MODE, max(0, int(moment.timestamp()))
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8")


def _tar_end(written: int) -> bytes:
    end = 2 * tarfile.BLOCKSIZE
    return bytes(end + -(written + end) % tarfile.RECORDSIZE)


def _build_bag_tags(bundle: BundleVersion, files: Sequence[ArchiveFile]) -> dict[str, bytes]:
    """Return the tag files of a bag (RFC 8493)."""
    folder = f"{bundle.fqid}/"
    total = sum(file.size for file in files)
    info = {
        "External-Identifier": str(bundle.fqid),
        "Bagging-Date": bundle.fqid.version[:10],
        "Payload-Oxum": f"{total}.{len(files)}",
    }
    tags = {
        "bagit.txt": "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "bag-info.txt": "".join(f"{label}: {value}\n" for label, value in info.items()),
        "manifest-sha256.txt": "".join(
            f"{file.sha256}  {file.path.removeprefix(folder)}\n" for file in files
        ),
    }
    encoded = {name: text.encode() for name, text in tags.items()}
    encoded["tagmanifest-sha256.txt"] = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in encoded.items()
    ).encode()
    return {folder + name: data for name, data in encoded.items()}


# Names -------------------------------------------------------------------------------------

_SEGMENT_BYTES = 255
_UNSAFE = re.compile(
    # Control characters, what Windows or BagIt reserve, and controls of the direction of text.
    r'[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029<>:"\\|?*%'
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_DOTS_AT_END = re.compile(r"[. ]+$")
"""Windows drops them; so `.` and `..` are no names either."""
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\.|$)", re.IGNORECASE)
"""Names of devices on Windows, with any extension."""


def make_safe_paths(names: Iterable[str]) -> list[str]:
    """Return relative paths for names, each different from the others on every file system.

    Most names stay as they are. Of names that some file system takes for one, the later get a
    number.
    """
    paths = ["/".join(map(_make_safe_segment, name.split("/"))) for name in names]
    folders = _list_folders(paths)
    taken: dict[str, int] = {}
    safe: list[str] = []
    for path in paths:
        first = key = _fold(path)
        found = path
        while key in taken or key in folders:
            taken[first] = number = taken.get(first, 1) + 1
            found = _add_number(path, number)
            key = _fold(found)
        taken[key] = 1
        safe.append(found)
    return safe


def _list_folders(paths: Iterable[str]) -> set[str]:
    """Return the folders of all paths, folded."""
    found: set[str] = set()
    for folder in {path.rpartition("/")[0] for path in paths}:
        rest = _fold(folder)
        while rest and rest not in found:
            found.add(rest)
            rest = rest.rpartition("/")[0]
    return found


def _make_safe_segment(segment: str) -> str:
    safe = _UNSAFE.sub("_", segment)
    safe = _DOTS_AT_END.sub(lambda match: "_" * len(match[0]), safe)
    safe = "_" + safe if not safe or _DEVICE.match(safe) else safe
    return _cut_segment(safe)


def _cut_segment(segment: str, end: str = "") -> str:
    """Return a segment with `end` before its extension, cut to the bytes that systems allow."""
    stem, dot, extension = segment.rpartition(".")
    if not stem or len(extension.encode()) > _SEGMENT_BYTES // 4:
        stem, dot, extension = segment, "", ""
    tail = f"{end}{dot}{extension}"
    room = _SEGMENT_BYTES - len(tail.encode())
    return stem.encode()[:room].decode(errors="ignore") + tail


def _add_number(path: str, number: int) -> str:
    folder, slash, name = path.rpartition("/")
    return folder + slash + _cut_segment(name, f"~{number}")


def _fold(path: str) -> str:
    """Return what paths that some file system takes for one have in common."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
