"""Journals of uploads: what has arrived, so that another run resumes there.

    <home>/uploads/<digest>.jsonl       UploadJournal: an upload of a directory, as lines
    <home>/uploads/area-<digest>.json   FileJournal: one large file sent into an upload area

Each line of an UploadJournal is JSON with its CRC-32: a line that was cut off or damaged counts as
never written, at the price of some work done again. Requests to the store are written first, so
that another run repeats the same ones.
"""

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from store_client.atomic_files import (
    HOME_HINT,
    PRIVATE_MODE,
    parse_json_object,
    read_json,
    remove_file,
    write_json,
    write_private_bytes,
)
from store_client.checksums import FileChecksums
from store_client.configuration import Configuration
from store_client.errors import Misused, StoreError, name_os_errors
from store_client.local_files import FileStamp, OutgoingFile

SETTLED_NS = 2 * 10**9
"""A file changed so shortly before it was read may change again without a new mtime."""
KEPT_S = 90 * 24 * 3600
"""How long journals of finished uploads are kept."""


@dataclass(frozen=True, slots=True)
class UploadAttempt:
    """The bundle version that is being made, and the upload area of its files."""

    uuid: str
    version: str
    area: str
    finished: bool = False
    content: str = ""
    """The digest of names and contents, of one bundle among many."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file that was read at `at` (ns); `url` is where it is staged."""

    stamp: FileStamp
    at: int
    content_type: str
    checksums: FileChecksums
    uuid: str
    version: str
    url: str = ""
    stored: bool = False

    def matches(self, stamp: FileStamp) -> bool:
        """Whether a file with this stamp certainly has the same content."""
        return self.stamp == stamp and stamp.mtime_ns + SETTLED_NS < self.at


@dataclass(frozen=True, slots=True)
class UnfinishedFile:
    """A large file being staged at `url`; `token` is the upload id or session."""

    stamp: FileStamp
    uuid: str
    version: str
    url: str
    token: str


class UploadJournal:
    """The journal of one upload; threads share it. Nothing is written unless `writing`."""

    def __init__(self, path: Path, *, writing: bool = True) -> None:
        self.attempt: UploadAttempt | None = None
        self.bundles: dict[str, UploadAttempt] = {}
        """The bundle versions of an upload of many, by name."""
        self.files: dict[str, KnownFile] = {}
        self.unfinished: dict[str, UnfinishedFile] = {}
        self._path = path
        self._lock = Lock()
        lines = 0
        for line in _read_lines(path):
            lines += 1
            with contextlib.suppress(KeyError, TypeError):
                # A line of another version of this client may say what this one does not know.
                self._apply(line)
        if writing and lines > 2 * (len(self.files) + len(self.bundles)) + 100:
            self._rewrite()
        self._descriptor = _open_append(path) if writing else None

    def record_attempt(self, attempt: UploadAttempt) -> None:
        """Record the bundle version that is being made."""
        self._write({"what": "attempt", **_attempt_fields(attempt)})

    def record_bundle(self, name: str, attempt: UploadAttempt) -> None:
        """Record one bundle version of many."""
        self._write({"what": "bundle", "name": name, **_attempt_fields(attempt)})

    def change_area(self, area: str) -> None:
        if self.attempt:
            self.record_attempt(replace(self.attempt, area=area))

    def record_file(self, name: str, kept: KnownFile) -> None:
        """Record a file that was read, staged or stored."""
        self._write({"what": "file", "name": name, **_record_fields(kept)})

    def record_unfinished(self, name: str, unfinished: UnfinishedFile) -> None:
        self._write({"what": "unfinished", "name": name, **_record_fields(unfinished)})

    def forget_file(self, name: str) -> None:
        """Discard what was recorded of a file."""
        self._write({"what": "forget", "name": name})

    def close(self) -> None:
        with self._lock:
            # A thread that was left behind may still come, and the number be that of another file.
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _write(self, line: dict[str, Any]) -> None:
        data = _encode_line(line)
        with self._lock:
            self._apply(line)
            if self._descriptor is None:
                return
            with name_os_errors(f"write {self._path}"):
                written = os.write(self._descriptor, data)
            if written < len(data):
                # So it is when a disk gets full. Half a line would spoil the next one, too.
                size = os.fstat(self._descriptor).st_size
                os.ftruncate(self._descriptor, size - written)
                raise StoreError(f"cannot write {self._path}: only a part of a line was taken")

    def _apply(self, line: dict[str, Any]) -> None:
        what, name = line.pop("what"), line.pop("name", "")
        match what:
            case "attempt":
                self.attempt = UploadAttempt(**line)
            case "bundle":
                self.bundles[name] = UploadAttempt(**line)
            case "file":
                sums, stamp = FileChecksums(**line.pop("checksums")), FileStamp(*line.pop("stamp"))
                self.files[name] = KnownFile(stamp=stamp, checksums=sums, **line)
                self.unfinished.pop(name, None)
            case "unfinished":
                self.unfinished[name] = UnfinishedFile(stamp=FileStamp(*line.pop("stamp")), **line)
            case "forget":
                self.files.pop(name, None)
                self.unfinished.pop(name, None)

    def _rewrite(self) -> None:
        """Rewrite the file with what still counts."""
        lines: list[dict[str, Any]] = [
            {"what": what, "name": name, **_record_fields(one)}
            for what, known in (("file", self.files), ("unfinished", self.unfinished))
            for name, one in known.items()
        ]
        lines += [
            {"what": "bundle", "name": name, **_attempt_fields(one)}
            for name, one in self.bundles.items()
        ]
        if self.attempt:
            # Last: that an upload is finished is looked for at the end.
            lines.append({"what": "attempt", **_attempt_fields(self.attempt)})
        write_private_bytes(self._path, b"".join(map(_encode_line, lines)))


def journal_path(folder: Path, *identity: object) -> Path:
    """The journal of one directory, store, replica and bundle."""
    text = json.dumps([str(part) for part in identity])
    return (
        folder / f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.jsonl"
    )


def remove_finished(folder: Path, *, now: float) -> int:
    """Remove journals of uploads that finished long ago; how many."""
    old = [
        path
        for path in folder.glob("*.jsonl")
        if _file_age(path, now) > KEPT_S and _is_finished(path)
    ]
    for path in old:
        remove_file(path.with_suffix(".lock"))
    return sum(remove_file(path) for path in old)


def _attempt_fields(attempt: UploadAttempt) -> dict[str, Any]:
    fields = asdict(attempt)
    return fields if attempt.content else {n: v for n, v in fields.items() if n != "content"}


def _record_fields(one: KnownFile | UnfinishedFile) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if value not in ("", False)}


def _encode_line(line: dict[str, Any]) -> bytes:
    text = json.dumps(line, separators=(",", ":")).encode()
    return b"%s\t%08x\n" % (text, zlib.crc32(text))


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the intact lines."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.split(b"\n"):
        text, _, crc = line.rpartition(b"\t")
        if crc == b"%08x" % zlib.crc32(text) and (found := parse_json_object(text)) is not None:
            yield found


def _open_append(path: Path) -> int:
    """Open for appending, on a new line: a killed run may have left half a line."""
    with name_os_errors(f"write {path}", hint=HOME_HINT):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_MODE)
        if os.fstat(descriptor).st_size:
            os.write(descriptor, b"\n")
    return descriptor


def _file_age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


def _is_finished(path: Path) -> bool:
    attempts = [line for line in _read_lines(path) if line.get("what") == "attempt"]
    return bool(attempts) and bool(attempts[-1].get("finished"))


class FileJournal:
    """Progress of one large file into one upload area, by one `way`; a small JSON file.

    It counts only while the local file is what it was.
    """

    def __init__(
        self, config: Configuration, area: str, *, outgoing: OutgoingFile, way: str
    ) -> None:
        said = json.dumps([config.url, area, outgoing.name, way])
        self._path = config.uploads / f"area-{hashlib.sha256(said.encode()).hexdigest()[:32]}.json"
        self._of = _fingerprint(outgoing)

    def read(self) -> dict[str, Any]:
        """What was recorded of this very file; empty when there is nothing."""
        kept = read_json(self._path)
        found = kept.get("kept")
        return found if kept.get("of") == self._of and isinstance(found, dict) else {}

    def write(self, kept: Mapping[str, Any]) -> None:
        """Record this instead."""
        write_json(self._path, {"of": self._of, "kept": dict(kept)})

    def drop(self) -> None:
        """Remove the record: the file arrived, or the record is of no use."""
        remove_file(self._path)


def _fingerprint(outgoing: OutgoingFile) -> dict[str, Any]:
    """What tells that a file is still the same."""
    with name_os_errors(f"read {outgoing.path}", Misused):
        found = Path(outgoing.path).stat()
    return {
        "path": str(Path(outgoing.path).absolute()),
        "size": outgoing.size,
        "modified_ns": found.st_mtime_ns,
        "content_type": outgoing.content_type,
    }
