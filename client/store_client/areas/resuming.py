"""A large file through the store itself, in parts that stay there until all of them are."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from store_client.areas import asking
from store_client.areas.bodies import Body
from store_client.areas.journal import Journal
from store_client.areas.parts import Part, carry
from store_client.areas.reading import Outgoing
from store_client.areas.sent import ATTEMPTS, Sending, Sent, checked
from store_client.checksums import Checksums
from store_client.errors import Damaged, NotFound, Refused

log = logging.getLogger(__name__)

OPERATIONS = ("post_area_upload", "put_area_part", "post_area_upload_complete")
"""What a store has that takes parts."""


def send_parts(sending: Sending, outgoing: Outgoing) -> Sent:
    """Send what is not there yet of a file, wherever another run was stopped.

    Damaged when what arrived is something else: then the next time begins anew.
    """
    config = sending.client.config
    journal = Journal(config, sending.area, outgoing=outgoing, way="parts")
    try:
        ours, answer = _arrived(sending, outgoing, journal=journal)
        checked(sending, outgoing, ours)
    except Damaged:
        journal.drop()
        raise
    journal.drop()
    return Sent(str(answer["url"]), outgoing.size, ours)


def _arrived(
    sending: Sending, outgoing: Outgoing, *, journal: Journal
) -> tuple[Checksums, Mapping[str, Any]]:
    """What the file is, and what the server said once it had all of it."""
    kept = journal.read()
    if "answer" in kept:
        sending.tell.bytes(outgoing.size)
        return Checksums(**kept["checksums"]), kept["answer"]
    upload = _begun(sending, outgoing, kept=kept)
    journal.keep({"upload_id": upload["upload_id"]})
    try:
        ours = carry(
            sending,
            outgoing,
            lambda part, body: _put(sending, outgoing, upload=upload, part=part, body=body),
            part_size=upload["part_size"],
            stored=frozenset(upload["parts"]),
        )
        answer = _complete(sending, outgoing, upload=upload, ours=ours)
    except NotFound as error:
        raise Damaged(f"the store no longer has the first parts of {outgoing.name}") from error
    journal.keep({"answer": answer, "checksums": asdict(ours)})
    return ours, answer


def _begun(sending: Sending, outgoing: Outgoing, *, kept: Mapping[str, Any]) -> Mapping[str, Any]:
    """An upload: the one that was begun if the server still has it, else a new one."""
    said = {"size": outgoing.size, "content_type": outgoing.content_type}
    if upload_id := kept.get("upload_id"):
        try:
            found = _ask(sending, outgoing, {**said, "upload_id": upload_id})
        except Refused as error:
            if error.status not in (400, 404):
                raise
            log.info("%s begins anew: %s", outgoing.name, error)
        else:
            log.info("%s: %d parts are there already", outgoing.name, len(found["parts"]))
            return found
    return _ask(sending, outgoing, said)


def _ask(sending: Sending, outgoing: Outgoing, said: Mapping[str, Any]) -> Mapping[str, Any]:
    path = asking.file_path(sending.area, outgoing.name, under="uploads")
    # Begun twice, the one that nobody knows of goes away by itself.
    answer = sending.client.session.ask("POST", path, json=dict(said), repeatable=True)
    found: Mapping[str, Any] = answer.json()
    return found


def _put(
    sending: Sending, outgoing: Outgoing, *, upload: Mapping[str, Any], part: Part, body: Body
) -> None:
    """One part, again while it arrives damaged."""
    ours = _md5(part)
    for _ in range(ATTEMPTS):
        try:
            answer = asking.put(
                sending.client,
                asking.file_path(sending.area, outgoing.name, under="uploads"),
                params={"upload_id": upload["upload_id"], "part": part.number},
                blocks=body.blocks,
                size=part.size,
                content_type="application/octet-stream",
            )
            if answer.get("md5") == ours:
                return
            log.warning("part %d of %s arrived damaged", part.number, outgoing.name)
        except Damaged as error:
            log.warning("%s; sending the part again", error)
    raise Damaged(f"part {part.number} of {outgoing.name} always arrives damaged")


def _complete(
    sending: Sending, outgoing: Outgoing, *, upload: Mapping[str, Any], ours: Checksums
) -> dict[str, Any]:
    path = asking.file_path(sending.area, outgoing.name, under="complete")
    said = {"upload_id": upload["upload_id"], "checksums": asdict(ours)}
    answer = sending.client.session.ask("POST", path, json=said, repeatable=True)
    found: dict[str, Any] = answer.json()
    return found


def _md5(part: Part) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for block in part.blocks:
        digest.update(block)
    return digest.hexdigest()
