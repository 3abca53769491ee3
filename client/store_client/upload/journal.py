"""How far an upload has come, over all its runs: a file of lines that only grows.

Each line is JSON with its own CRC-32: one that was cut off or harmed counts as never written, so a
damaged journal mends itself at the price of some work done again. What is to be told to the store
is written down first: a run that follows tells it the same.
"""

import contextlib
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from store_client.checksums import Checksums
from store_client.errors import StoreError
from store_client.private_files import PRIVATE, WRITABLE, remove, write_private
from store_client.upload.walking import Stamp

SETTLED_NS = 2 * 10**9
"""A file that was changed so shortly before it was read may change again without a new time."""
KEPT_S = 90 * 24 * 3600
"""For how long a finished upload is remembered."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The bundle version that is being made, and the upload area that its files wait in."""

    uuid: str
    version: str
    area: str
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A file as it was read; `at` is when, in ns. `url` is where it waits, `stored` whether the
    store took it."""

    stamp: Stamp
    at: int
    content_type: str
    checksums: Checksums
    uuid: str
    version: str
    url: str = ""
    stored: bool = False

    def is_of(self, stamp: Stamp) -> bool:
        """Whether a file that looks like this surely is what was read."""
        return self.stamp == stamp and stamp.mtime_ns + SETTLED_NS < self.at


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A large file on its way: `token` names what has arrived at `url`."""

    stamp: Stamp
    uuid: str
    version: str
    url: str
    token: str


class Journal:
    """What is known of one upload; threads share it. Without `writing` nothing is remembered."""

    def __init__(self, path: Path, *, writing: bool = True) -> None:
        self.attempt: Attempt | None = None
        self.files: dict[str, Kept] = {}
        self.unfinished: dict[str, Unfinished] = {}
        self._path = path
        self._lock = Lock()
        lines = 0
        for line in _lines(path):
            lines += 1
            with contextlib.suppress(KeyError, TypeError):
                # A line of another version of this client may say what this one does not know.
                self._take(line)
        if writing and lines > 2 * len(self.files) + 100:
            self._rewrite()
        self._descriptor = _opened(path) if writing else None

    def begin(self, attempt: Attempt) -> None:
        """From now on this bundle version is being made."""
        self._write({"what": "attempt", **asdict(attempt)})

    def move(self, area: str) -> None:
        """From now on the files of what is being made wait in this area."""
        if self.attempt:
            self.begin(replace(self.attempt, area=area))

    def keep(self, name: str, kept: Kept) -> None:
        """A file was read, staged or stored."""
        self._write({"what": "file", "name": name, **_kept(kept)})

    def under_way(self, name: str, unfinished: Unfinished) -> None:
        """A large file is on its way."""
        self._write({"what": "unfinished", "name": name, **_kept(unfinished)})

    def forget(self, name: str) -> None:
        """What was known of a file does not hold."""
        self._write({"what": "forget", "name": name})

    def close(self) -> None:
        """Nothing more is written."""
        with self._lock:
            # A thread that was left behind may still come, and the number be that of another file.
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _write(self, line: dict[str, Any]) -> None:
        data = _spelled(line)
        with self._lock:
            self._take(line)
            if self._descriptor is None:
                return
            try:
                written = os.write(self._descriptor, data)
            except OSError as error:
                raise StoreError(f"cannot write {self._path}: {error.strerror}") from error
            if written < len(data):
                # So it is when a disk gets full: half a line is none.
                raise StoreError(f"cannot write {self._path}: only a part of a line was taken")

    def _take(self, line: dict[str, Any]) -> None:
        what, name = line.pop("what"), line.pop("name", "")
        match what:
            case "attempt":
                self.attempt = Attempt(**line)
            case "file":
                sums, stamp = Checksums(**line.pop("checksums")), Stamp(*line.pop("stamp"))
                self.files[name] = Kept(stamp=stamp, checksums=sums, **line)
                self.unfinished.pop(name, None)
            case "unfinished":
                self.unfinished[name] = Unfinished(stamp=Stamp(*line.pop("stamp")), **line)
            case "forget":
                self.files.pop(name, None)
                self.unfinished.pop(name, None)

    def _rewrite(self) -> None:
        """Only what still counts."""
        lines: list[dict[str, Any]] = [
            *({"what": "file", "name": name, **_kept(one)} for name, one in self.files.items()),
            *(
                {"what": "unfinished", "name": name, **_kept(one)}
                for name, one in self.unfinished.items()
            ),
        ]
        if self.attempt:
            # Last: that an upload is finished is looked for at the end.
            lines.append({"what": "attempt", **asdict(self.attempt)})
        write_private(self._path, b"".join(map(_spelled, lines)))


def path_of(folder: Path, *identity: object) -> Path:
    """The journal of one directory, store, replica and bundle."""
    text = json.dumps([str(part) for part in identity])
    return (
        folder / f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.jsonl"
    )


def sweep(folder: Path, *, now: float) -> int:
    """Remove the journals of uploads that were finished long ago; how many there were."""
    old = [path for path in folder.glob("*.jsonl") if _age(path, now) > KEPT_S and _finished(path)]
    for path in old:
        remove(path.with_suffix(".lock"))
    return sum(remove(path) for path in old)


def moment() -> int:
    """Now, as journals note it."""
    return time.time_ns()


def _kept(one: Kept | Unfinished) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if value not in ("", False)}


def _spelled(line: dict[str, Any]) -> bytes:
    text = json.dumps(line, separators=(",", ":")).encode()
    return b"%s\t%08x\n" % (text, zlib.crc32(text))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """What can be read, as it was written."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.split(b"\n"):
        text, _, crc = line.rpartition(b"\t")
        if crc == b"%08x" % zlib.crc32(text):
            yield json.loads(text)


def _opened(path: Path) -> int:
    """To be written at its end, which a run that died may have left inside of a line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        if os.fstat(descriptor).st_size:
            os.write(descriptor, b"\n")
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}",
            hint=WRITABLE,
        ) from error
    return descriptor


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


def _finished(path: Path) -> bool:
    attempts = [line for line in _lines(path) if line.get("what") == "attempt"]
    return bool(attempts) and bool(attempts[-1].get("finished"))
