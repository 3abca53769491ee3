"""Server-Sent Events: streams of bounded number and life, woken by notices, read from the catalog.

A stream holds a thread for as long as it lives, so there are few of them. It ends by itself; the
client comes again with the id of the last message it saw, and misses none.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from flask import Response

from api.concurrency import suspended
from api.slots import Slots
from storage.errors import StoreError
from storage.protocols import Notices

log = logging.getLogger(__name__)

MIMETYPE = "text/event-stream"
RETRY_MS = 1_000
"""After which a client comes again."""
LOOK_S = 2.0
"""Notices may be lost: so often a stream looks by itself."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is told, and the id by which a client says that it has seen it; without data only the
    id is told."""

    place: int
    ident: str
    data: Any

    def __bytes__(self) -> bytes:
        data = b"" if self.data is None else b"data: " + orjson.dumps(self.data) + b"\n"
        return b"id: " + self.ident.encode() + b"\n" + data + b"\n"


Since = Callable[[int], Iterable[Message]]
"""Messages after a place, as many as are told at once."""


@dataclass(frozen=True)
class Streams:
    """The right to stream, shared by the threads of one process."""

    notices: Notices
    slots: Slots
    clock: Callable[[], float] = time.monotonic

    def respond(
        self,
        since: Since,
        *,
        client: str,
        start: Message,
        topic: str,
        life_s: float,
        heartbeat_s: float,
    ) -> Response:
        """The stream of what follows `start`; TooMany or Unavailable while there are as many as
        may be of this client, or of all."""
        release = self.slots.take(client)
        body = self._body(since, start, topic, life_s, heartbeat_s)
        response = Response(body, mimetype=MIMETYPE)
        # Even if nobody ever takes the first byte of the body.
        response.call_on_close(release)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        return response

    def _body(
        self, since: Since, start: Message, topic: str, life_s: float, heartbeat_s: float
    ) -> Iterator[bytes]:
        """Every message once, in order; comments while there is none."""
        end, place = self.clock() + life_s, start.place
        yield b"retry: %d\n" % RETRY_MS + bytes(start)
        try:
            with self.notices.listen(topic) as listening:
                said = self.clock()
                while self.clock() < end:
                    before = place
                    for message in since(place):
                        yield bytes(message)
                        place, said = message.place, self.clock()
                    if place != before:
                        # There may be more than is told at once.
                        continue
                    if self.clock() - said >= heartbeat_s:
                        yield b":\n\n"
                        said = self.clock()
                    beat = said + heartbeat_s - self.clock()
                    with suspended():
                        listening.wait(max(0.0, min(LOOK_S, beat, end - self.clock())))
        except StoreError as error:
            log.warning("a stream of events ended early: %s", error.detail)
