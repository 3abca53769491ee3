"""What sending into an area stands on: how it is done, what arrived, and whether that is the same.

Nothing is sent here.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from threading import Event
from typing import Any

from store_client.areas import asking
from store_client.areas.reading import Outgoing, Stopped
from store_client.checksums import Checksums
from store_client.client import Client
from store_client.errors import Damaged, TimedOut
from store_client.telling import SILENCE, Tell

ATTEMPTS = 6
"""How often bytes are sent that arrive other than they are."""
LONGEST_PAUSE_S = 5.0
"""Between two questions whether the server has checked a file."""


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
    accelerate: bool = True
    """Use a faster way into the cloud where it has one."""
    timeout_s: float = 1200.0
    """Waited for a large file to be checked by the server."""
    pause_s: float = 0.2
    """Before the second question whether it is; later ones come slower."""


def compare(outgoing: Outgoing, said: Mapping[str, Any] | None, ours: Checksums) -> None:
    """Damaged unless the server has the bytes that were read here."""
    theirs = said or {}
    wrong = [name for name, value in asdict(ours).items() if theirs.get(name) != value]
    if wrong:
        raise Damaged(f"{outgoing.name} arrived damaged: {', '.join(wrong)} differ")


def checked(sending: Sending, outgoing: Outgoing, ours: Checksums) -> None:
    """Wait until the server has computed its checksums, and compare them; Damaged, TimedOut."""
    until = time.monotonic() + sending.timeout_s
    pause = sending.pause_s
    while True:
        found = asking.checksum(sending.client, sending.area, outgoing.name)
        if found["status"] == asking.CHECKSUMMED:
            return compare(outgoing, found["checksums"], ours)
        if found["status"] == asking.FAILED:
            raise Damaged(f"{outgoing.name} arrived damaged: {found.get('cause') or 'no cause'}")
        if time.monotonic() > until:
            raise TimedOut(
                f"{outgoing.name} was sent, and is not checked after {sending.timeout_s:g} s",
                hint="nothing is sent again when the same command runs later",
            )
        if sending.stop.wait(pause):
            raise Stopped
        pause = min(pause * 1.5, LONGEST_PAUSE_S)
