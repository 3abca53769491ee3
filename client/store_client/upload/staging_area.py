"""Waiting in an upload area of the store: for depositors without a bucket.

The store computes the checksums of what arrives, too, and what it found has to be what left.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any
from urllib.parse import quote

from store_client.checksums import ETAG_CHUNK, MB, Checksums, Hashing
from store_client.errors import Damaged, StoreError
from store_client.transport.session import Session
from store_client.upload.journal import Journal, Unfinished
from store_client.upload.parts import blocks, hashed, whole
from store_client.upload.sharing import Body, Shared
from store_client.upload.staging import Item, Staged

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often a file is sent that arrives as another."""
AT_ONCE = MB
"""Smaller files are one piece."""


class AreaStaging:
    """See Staging; the area is opened when the first file comes."""

    def __init__(self, area: str, session: Session, shared: Shared, journal: Journal) -> None:
        self._area, self._session = area, session
        self._shared, self._journal = shared, journal
        self._opening = Lock()
        self._opened = False

    def stage(self, item: Item) -> Staged:
        """See Staging."""
        self._open()
        send = self._small if item.file.size < ETAG_CHUNK else self._large
        for attempt in range(1, ATTEMPTS + 1):
            sums, told = send(item)
            if told.get("checksums") == _named(sums):
                return Staged(str(told["url"]), sums)
            self._shared.tell.bytes(-item.file.size)
            log.warning("%s arrived as another, attempt %s", item.file.name, attempt)
        raise Damaged(
            f"{item.file.name} arrives at the store as another file",
            hint="what lies between this machine and the store harms it",
        )

    def restate(self, item: Item, staged: Staged) -> bool:
        """See Staging: the store wrote the checksums itself."""
        return False

    def abandon(self, unfinished: Unfinished) -> None:
        """See Staging: the area is cleared as a whole."""

    def clear(self) -> None:
        """The area was made for this upload alone; a store that cannot remove it keeps it."""
        try:
            self._session.ask("DELETE", f"/v1/area/{self._area}")
        except StoreError as error:
            log.debug("the upload area %s stays: %s", self._area, error)

    def _open(self) -> None:
        with self._opening:
            if not self._opened:
                self._session.ask("POST", f"/v1/area/{self._area}", repeatable=True)
                self._opened = True

    def _small(self, item: Item) -> tuple[Checksums, Mapping[str, Any]]:
        with self._shared.room(item.file.size):
            data = whole(item.file)
            sums = hashed(data)
            if len(data) <= AT_ONCE:
                kind = {"Content-Type": item.content_type}
                answer = self._session.ask("PUT", self._path(item), content=data, headers=kind)
                self._shared.tell.bytes(len(data))
                return sums, answer.json()
            return sums, self._streamed(item, Body(data, self._shared).again)

    def _large(self, item: Item) -> tuple[Checksums, Mapping[str, Any]]:
        made: list[Hashing] = []

        def content() -> Iterator[bytes]:
            if made:
                self._shared.tell.bytes(-made[-1].read)
            made.append(Hashing(item.file.size))
            for block in blocks(item.file, made[-1]):
                self._shared.check()
                self._shared.tell.bytes(len(block))
                yield block

        told = self._streamed(item, content)
        return made[-1].result(), told

    def _streamed(self, item: Item, content: Callable[[], Iterator[bytes]]) -> Mapping[str, Any]:
        with self._session.stream(
            "PUT",
            self._path(item),
            content=content,
            size=item.file.size,
            content_type=item.content_type,
        ) as answer:
            answer.read()
            told: Mapping[str, Any] = answer.json()
            return told

    def _path(self, item: Item) -> str:
        return f"/v1/area/{self._area}/files/{quote(item.file.name)}"


def _named(sums: Checksums) -> dict[str, str]:
    return {name: getattr(sums, name) for name in Checksums.__slots__}
