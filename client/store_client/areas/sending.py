"""Bring one file into an upload area, whole and compared with what the server says arrived.

A small file goes in one request; which way a large one goes is decided here, how in parts.py.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any

from store_client.areas.asking import file_path
from store_client.areas.reading import Changed, Outgoing, read
from store_client.checksums import Checksums, Hashing
from store_client.client import Client
from store_client.errors import Damaged
from store_client.telling import SILENCE, Tell

log = logging.getLogger(__name__)

ATTEMPTS = 6
"""How often a file is sent whose bytes arrive other than they are."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A file that arrived; `url` is what put_file takes as its source."""

    url: str
    size: int
    checksums: Checksums


@dataclass(frozen=True, slots=True)
class Sending:
    """How files are sent into one area."""

    client: Client
    area: str
    tell: Tell = SILENCE
    stop: Event = field(default_factory=Event)
    attempts: int = ATTEMPTS


def send(
    client: Client,
    area_uuid: str,
    path: Path,
    name: str,
    content_type: str,
    *,
    size: int,
    tell: Tell = SILENCE,
    stop: Event | None = None,
) -> Sent:
    """Send a file, again while it arrives damaged; Damaged when it always does.

    `tell` hears of bytes only: whoever sends many says how many, and which are done.
    Setting `stop` from another thread ends it soon, by Stopped.
    """
    sending = Sending(client, area_uuid, tell, stop or Event())
    return send_file(sending, Outgoing(path, name, content_type, size))


def send_file(sending: Sending, outgoing: Outgoing) -> Sent:
    """The same for one of several files that go into one area."""
    for _ in range(sending.attempts - 1):
        try:
            return _put(sending, outgoing)
        except Changed:
            raise
        except Damaged as error:
            log.warning("%s; sending it again", error)
    return _put(sending, outgoing)


def compare(outgoing: Outgoing, said: Mapping[str, Any] | None, ours: Checksums) -> None:
    """Damaged unless the server has the bytes that were read here."""
    theirs = said or {}
    wrong = [name for name, value in asdict(ours).items() if theirs.get(name) != value]
    if wrong:
        raise Damaged(f"{outgoing.name} arrived damaged: its {', '.join(wrong)} differ")


def _put(sending: Sending, outgoing: Outgoing) -> Sent:
    """In one request, hashed on the way."""
    with (
        _Body(sending, outgoing) as body,
        sending.client.session.stream(
            "PUT",
            file_path(sending.area, outgoing.name),
            content=body.blocks,
            size=outgoing.size,
            content_type=outgoing.content_type,
            repeatable=True,
        ) as response,
    ):
        response.read()
        answer = response.json()
        ours = body.hashing.result()
        compare(outgoing, answer.get("checksums"), ours)
        return Sent(str(answer["url"]), outgoing.size, ours)


class _Body:
    """The bytes of one request, made anew when it is repeated; what is told of it is true."""

    def __init__(self, sending: Sending, outgoing: Outgoing) -> None:
        self._sending, self._outgoing = sending, outgoing
        self._told = 0
        self.hashing = Hashing(outgoing.size)

    def __enter__(self) -> "_Body":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._take_back()

    def blocks(self) -> Iterator[bytes]:
        self._take_back()
        self.hashing = Hashing(self._outgoing.size)
        found = read(self._outgoing.path, self._outgoing.size, stop=self._sending.stop)
        for block in self.hashing.over(found):
            yield block
            self._told += len(block)
            self._sending.tell.bytes(len(block))

    def _take_back(self) -> None:
        if self._told:
            self._sending.tell.bytes(-self._told)
        self._told = 0
