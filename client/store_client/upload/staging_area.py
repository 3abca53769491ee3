"""Waiting in an upload area of the store: for depositors without a bucket.

The store computes the checksums of what arrives, too, and what it found has to be what left. How
large files get into an area, in parts that another run goes on with, is known to areas/.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from store_client.areas import asking, sending
from store_client.areas.reading import Stopped as AreaStopped
from store_client.checksums import ETAG_CHUNK, MB
from store_client.client import Client
from store_client.errors import Conflict, Damaged, StoreError
from store_client.upload.journal import Journal, Unfinished
from store_client.upload.parts import hashed, opened, whole
from store_client.upload.sharing import Body, Shared, Stopped
from store_client.upload.staging import Item, Staged, object_key

log = logging.getLogger(__name__)

ATTEMPTS = 6
"""How often a file is sent that arrives as another."""
LONGEST_NAME = 850
"""Bytes that a name in an area has at most."""
AT_ONCE = MB
"""Smaller files are one piece."""


class AreaStaging:
    """See Staging; the area is opened when the first file comes."""

    def __init__(self, area: str, client: Client, shared: Shared, journal: Journal) -> None:
        self._area, self._client, self._shared = area, client, shared
        self._journal = journal
        self._opening = Lock()
        self._opened = False

    def stage(self, item: Item) -> Staged:
        """See Staging."""
        self._open()
        return self._small(item) if item.file.size < ETAG_CHUNK else self._large(item)

    def restate(self, item: Item, staged: Staged) -> bool:
        """See Staging: the store wrote the checksums itself."""
        return False

    def abandon(self, unfinished: Unfinished) -> None:
        """See Staging: the area is cleared as a whole."""

    def clear(self) -> None:
        """The area was made for this upload alone; a store that cannot remove it keeps it."""
        try:
            self._client.session.ask("DELETE", asking.area_path(self._area))
        except StoreError as error:
            log.debug("the upload area %s stays: %s", self._area, error)

    def _open(self) -> None:
        with self._opening:
            if not self._opened:
                self._open_some()
                self._opened = True

    def _open_some(self) -> None:
        try:
            asking.open_area(self._client, self._area)
        except Conflict as error:
            if error.code != "already_exists":
                raise
            # It was deleted since an earlier run, or is that of whoever was logged in then.
            log.info("%s; the files that are missing go into another one", error)
            self._area = str(uuid4())
            self._journal.move(self._area)
            asking.open_area(self._client, self._area)

    def _small(self, item: Item) -> Staged:
        with self._shared.room(item.file.size):
            data = whole(item.file)
            sums = hashed(data)
            body = Body(data, self._shared)
            for _ in range(ATTEMPTS):
                told = self._put(item, data, body)
                if told.get("checksums") == asdict(sums):
                    return Staged(str(told["url"]), sums)
                body.seek(0)
                log.warning("%s arrived damaged; sending it again", item.file.name)
        raise Damaged(
            f"{item.file.name} always arrives damaged",
            hint="what lies between this machine and the store harms it",
        )

    def _put(self, item: Item, data: bytes, body: Body) -> Mapping[str, Any]:
        """What the store says it has; nothing when that cannot be heard."""
        # A name of this try's own: what a run that was stopped had sent may still be arriving, and
        # would take the place of what the store is told of now.
        path = asking.file_path(self._area, object_key("", item, longest=LONGEST_NAME))
        if len(data) <= AT_ONCE:
            kind = {"Content-Type": item.content_type}
            answer = self._client.session.ask("PUT", path, content=data, headers=kind)
            body.seek(len(data))
            try:
                told: Mapping[str, Any] = answer.json()
            except ValueError:
                return {}
            return told
        try:
            return asking.put(
                self._client,
                path,
                blocks=body.again,
                size=len(data),
                content_type=item.content_type,
            )
        except Damaged as error:
            log.warning("%s", error)
            return {}

    def _large(self, item: Item) -> Staged:
        try:
            with opened(item.file):
                sent = sending.send(
                    self._client,
                    self._area,
                    Path(item.file.path),
                    item.file.name,
                    item.content_type,
                    size=item.file.size,
                    tell=self._shared.tell,
                    stop=self._shared.stopping,
                )
        except AreaStopped as error:
            raise Stopped(str(error)) from error
        return Staged(sent.url, sent.checksums)
