"""One file, from its bucket into the cache: whole and proved, or not at all under its name."""

import contextlib
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from store_client.download import large, whole
from store_client.download.cache import SHARED_FROM, Cache
from store_client.download.entries import Wanted
from store_client.download.options import Options
from store_client.download.partmap import PART
from store_client.download.quota import Quota, Trouble
from store_client.download.reading import NoRanges, Reader, Source, written_to
from store_client.download.slots import Slots
from store_client.download.stopping import Stop
from store_client.download.wire import Wire
from store_client.errors import Damaged

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetching:
    """What all files of one download share; `url_of` asks for another URL of a file's bytes."""

    cache: Cache
    wire: Wire
    url_of: Callable[[Wanted], str]
    options: Options
    stop: Stop
    slots: Slots
    large_from: int = large.LARGE_FROM
    part: int = PART

    def fetch(self, wanted: Wanted) -> bool:
        """Have the file in the cache; whether anything had to come for it.

        Its error when the failure quota is used up; what has come stays for the next run.
        """
        self.stop.check()
        if self.cache.has(wanted.sha256, wanted.size):
            return False
        with (
            written_to(self.cache.root),
            self.cache.alone(wanted.sha256, wanted.size, self.stop.pause),
        ):
            # Somebody else may have brought it while we waited.
            if self.cache.has(wanted.sha256, wanted.size):
                return False
            self.slots.take()
            try:
                self._bring(wanted)
            finally:
                self.slots.give()
        return True

    def _bring(self, wanted: Wanted) -> None:
        """Attempts until the bytes are those of the digest, or the quota is used up."""
        reader = Reader(self.wire, Source(wanted, self.url_of), self.stop, wanted)
        if wanted.size < SHARED_FROM:
            self._bring_small(reader)
        else:
            self._bring_large(reader)

    def _bring_small(self, reader: Reader) -> None:
        """In memory until all of it is proved: what is stopped leaves nothing behind."""
        wanted, quota = reader.wanted, self._quota()
        while True:
            file = io.BytesIO()
            digest = whole.bring(reader, file, quota, tell=self.options.tell)
            if digest == wanted.sha256:
                self.cache.add(file.getbuffer(), wanted.sha256)
                return
            self._damaged(wanted, digest, quota)

    def _bring_large(self, reader: Reader) -> None:
        """In a file that a later run goes on with."""
        wanted, quota = reader.wanted, self._quota()
        temporary = self.cache.temporary(wanted.sha256)
        try:
            while (digest := self._filled(reader, temporary, quota)) != wanted.sha256:
                temporary.unlink()
                self._damaged(wanted, digest, quota)
            self.cache.adopt(temporary, wanted.sha256)
        finally:
            if temporary.exists() and not temporary.stat().st_size:
                temporary.unlink()

    def _damaged(self, wanted: Wanted, digest: str, quota: Quota) -> None:
        log.warning("%s came damaged, and is fetched anew", wanted.name)
        self.options.tell.bytes(-wanted.size)
        said = f"{wanted.name} came with the SHA-256 {digest}, not {wanted.sha256}"
        quota.failure(Trouble(Damaged(said)))

    def _quota(self) -> Quota:
        return Quota(self.options.num_retries, self.options.min_delay_s, pause=self.stop.pause)

    def _filled(self, reader: Reader, temporary: Path, quota: Quota) -> str:
        """The digest of the file, filled by streams as many as suit it."""
        wanted = reader.wanted
        map_path = self.cache.partial(wanted.sha256, "parts")
        if wanted.size >= self.large_from:
            with contextlib.suppress(NoRanges):
                return self._in_parts(reader, (temporary, map_path))
        if map_path.exists():
            # Of a file that came in parts nobody knows from its length how much is there.
            temporary.unlink(missing_ok=True)
            map_path.unlink()
        with whole.opened(temporary) as file:
            return whole.bring(reader, file, quota, tell=self.options.tell)

    def _in_parts(self, reader: Reader, paths: tuple[Path, Path]) -> str:
        digest = large.bring(
            reader,
            paths,
            quota_of=self._quota,
            tell=self.options.tell,
            slots=self.slots,
            part=self.part,
        )
        paths[1].unlink()
        return digest
