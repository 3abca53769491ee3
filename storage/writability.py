"""Write probes: check that each disk and the catalog accept writes.

Reads do not show a full disk, so each probe writes and syncs. A result is valid for a second, and
one thread at a time probes.
"""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from storage.errors import DomainError, Unavailable
from storage.protocols import BlobStore

log = logging.getLogger(__name__)

FRESH_S: Final = 1.0
"""How long a result is valid."""
PROBE_TIMEOUT_S: Final = 10.0
"""A probe that takes longer has failed."""
FIRST_WAIT_S: Final = 2.0
"""How long a caller waits for a result when there is none yet."""
PROBE_BYTES: Final = os.urandom(64 * 1024)
"""Random bytes, which no file system compresses."""

PROBE_PREFIX: Final = "probe/"
"""A prefix without objects."""

WriteProbe = Callable[[], None]


def write_file(folder: Path) -> None:
    """Write, sync and remove a small file in a folder; OSError names the disk."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".probe-", buffering=0) as file:
            written = file.write(PROBE_BYTES)
            if written < len(PROBE_BYTES):
                file.write(PROBE_BYTES[written:])
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, f"disk {mount_point(folder)}: {error.strerror}") from error


def write_scratch() -> None:
    """Probe the folder of temporary files, resolved at each call."""
    write_file(Path(tempfile.gettempdir()))


def probe_bucket(blobs: BlobStore) -> None:
    """List nothing.

    A HEAD of an absent key also succeeds in an unmounted folder. Buckets are probed before any
    failure, since URLs into a bucket that is down can still be signed.
    """
    next(iter(blobs.list(PROBE_PREFIX)), None)


def mount_point(path: Path) -> Path:
    """Return the mount point of a path."""
    found = path.absolute()
    while not os.path.ismount(found) and found != found.parent:
        found = found.parent
    return found


class WriteProbes:
    """The probes of one process by the names of their places."""

    def __init__(
        self,
        probes: Mapping[str, WriteProbe] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probes = dict(probes or {})
        self._clock = clock
        self._lock = threading.Condition()
        self._failures: dict[str, str] | None = None
        self._probed_at = float("-inf")
        self._began_at: float | None = None
        self._now = ""

    def failures(self) -> dict[str, str]:
        """Return the places that reject writes, each with the reason; at most a second old."""
        with self._lock:
            if self._began_at is None and self._clock() - self._probed_at >= FRESH_S:
                self._began_at = self._clock()
                threading.Thread(target=self._run, name="write probes", daemon=True).start()
            began = self._began_at
            if began is not None:
                self._lock.wait_for(lambda: self._began_at != began, FIRST_WAIT_S)
            if self._began_at is not None and self._clock() - self._began_at >= PROBE_TIMEOUT_S:
                return {**(self._failures or {}), self._now: "a write hangs"}
            return dict(self._failures or {})

    def check(self, bucket: BlobStore | None = None) -> None:
        """Probe now, in this thread; Unavailable names the first place that rejects a write.

        The bucket is read only, since a cloud bucket has no write probe.
        """
        for name, probe in self._probes.items():
            if reason := _probe_failure(probe):
                raise Unavailable(f"This store takes no writes: {name}: {reason}")
        if bucket is not None:
            probe_bucket(bucket)

    def _run(self) -> None:
        found: dict[str, str] = {}
        for name, probe in self._probes.items():
            self._now = name
            reason = _probe_failure(probe)
            if reason is not None:
                found[name] = reason
        with self._lock:
            for name in found.keys() ^ (self._failures or {}).keys():
                log.warning("%s: %s", name, found.get(name, "accepts writes again"))
            self._failures, self._probed_at, self._began_at = found, self._clock(), None
            self._lock.notify_all()


def _probe_failure(probe: WriteProbe) -> str | None:
    try:
        probe()
    except OSError as error:
        return error.strerror or str(error)
    except DomainError as error:
        return error.detail
    except Exception as error:
        log.exception("a write probe failed")
        return f"{type(error).__name__}; see the log"
    return None
