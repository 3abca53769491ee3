"""Bring one file into an upload area, whole and compared with what the server says arrived.

Which way it goes is decided here: a small file in one request, a large one straight into the cloud
where that is possible, or in parts.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

from store_client.areas import asking, cloud, resuming
from store_client.areas.bodies import Body, Counted
from store_client.areas.reading import Changed, Outgoing, read
from store_client.areas.sent import ATTEMPTS, Sending, Sent, compare
from store_client.checksums import ETAG_CHUNK, Hashing
from store_client.client import Client
from store_client.errors import Damaged
from store_client.telling import SILENCE, Tell

log = logging.getLogger(__name__)

LARGE = ETAG_CHUNK
"""Bytes from which a file is worth more than one request."""


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
    accelerate: bool = True,
    timeout_s: float = 1200.0,
) -> Sent:
    """Send a file, again while it arrives damaged; Damaged when it always does.

    `tell` hears of bytes only: whoever sends many says how many, and which are done.
    Setting `stop` from another thread ends it soon, by Stopped. A large file goes on where another
    run was stopped.
    """
    sending = Sending(
        client,
        area_uuid,
        tell=tell,
        stop=stop or Event(),
        accelerate=accelerate,
        timeout_s=timeout_s,
    )
    return send_file(sending, Outgoing(path, name, content_type, size))


def send_file(sending: Sending, outgoing: Outgoing) -> Sent:
    """The same for one of several files that go into one area."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _once(sending, outgoing)
        except Changed:
            raise
        except Damaged as error:
            log.warning("%s; sending it again", error)
    return _once(sending, outgoing)


def _once(sending: Sending, outgoing: Outgoing) -> Sent:
    told = Counted(sending.tell)
    try:
        return _by_some_way(replace(sending, tell=told), outgoing)
    except BaseException:
        told.take_back()
        raise


def _by_some_way(sending: Sending, outgoing: Outgoing) -> Sent:
    if outgoing.size < LARGE:
        return _put(sending, outgoing)
    if (bucket := cloud.bucket_of(sending)) is not None:
        return cloud.send_direct(sending, outgoing, bucket=bucket)
    if all(name in sending.client.operations for name in resuming.OPERATIONS):
        return resuming.send_parts(sending, outgoing)
    return _put(sending, outgoing)


def _put(sending: Sending, outgoing: Outgoing) -> Sent:
    """In one request, hashed on the way."""
    hashing = Hashing(outgoing.size)

    def blocks() -> Iterator[bytes]:
        nonlocal hashing
        hashing = Hashing(outgoing.size)
        return hashing.over(read(outgoing.path, outgoing.size, stop=sending.stop))

    with Body(blocks, tell=sending.tell, stop=sending.stop) as body:
        answer = asking.put(
            sending.client,
            asking.file_path(sending.area, outgoing.name),
            blocks=body.blocks,
            size=outgoing.size,
            content_type=outgoing.content_type,
        )
        ours = hashing.result()
        compare(outgoing, answer.get("checksums"), ours)
    return Sent(str(answer["url"]), outgoing.size, ours)
