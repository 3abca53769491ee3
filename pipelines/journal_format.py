"""Frozen formats of journals: event lines and manifests.

The manifest beside a journal says which events it has and where in it, and all that a catalog wants
to know of them: it is enough to have the feed back. Both formats are frozen.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pipelines.documents import dump_document
from pipelines.formats import version_from_us, version_to_us
from storage.catalog.events import SequencedEvent
from storage.catalog.journals import LinePosition
from storage.errors import DamagedObjectError
from storage.keys import JournalKey
from storage.model import FQID, BundleEvent

FORMAT = "store-journal/1"
CONTENT_TYPE, MANIFEST_TYPE = "application/x-ndjson", "application/json"


@dataclass(frozen=True, slots=True)
class JournalText:
    """The bytes of a journal, where the line of each event lies in them, and its manifest."""

    data: bytes
    places: tuple[LinePosition, ...]
    manifest: bytes


def format_event_line(event: BundleEvent, document: Mapping[str, Any]) -> bytes:
    """An event's line without its end: the document, told as what happened."""
    return dump_document({**document, "event_type": event.type})


def format_purged_line(event: BundleEvent) -> bytes:
    """The line of an event whose bundle was removed for good: that it happened, no more."""
    return dump_document(purged_document(event))


def purged_document(event: BundleEvent) -> dict[str, Any]:
    """All that is left of a document when its bundle was removed for good."""
    uuid, version = event.fqid
    bundle_info = {"uuid": uuid, "version": version}
    return {"event_type": event.type, "bundle_info": bundle_info, "uuid": uuid}


def join_lines(
    key: JournalKey, found: Sequence[SequencedEvent], lines: Sequence[bytes]
) -> JournalText:
    """A journal of these events; `key` names only its range."""
    places, offset = [], 0
    for numbered, line in zip(found, lines, strict=True):
        places.append(LinePosition(numbered.seq, offset, len(line)))
        offset += len(line) + 1
    data = b"".join(line + b"\n" for line in lines)
    return JournalText(data, tuple(places), _build_manifest(key, found, places, data))


def _build_manifest(
    key: JournalKey, found: Sequence[SequencedEvent], places: Sequence[LinePosition], data: bytes
) -> bytes:
    value = {
        "format": FORMAT,
        "replica": key.replica,
        "first": key.first,
        "last": key.last,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "events": [_manifest_entry(*each) for each in zip(found, places, strict=True)],
    }
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _manifest_entry(numbered: SequencedEvent, place: LinePosition) -> dict[str, Any]:
    event = numbered.event
    return {
        "event_id": event.id,
        "event_type": event.type,
        "uuid": event.fqid.uuid,
        "version": event.fqid.version,
        "at": version_from_us(event.at_us),
        "seq": numbered.seq,
        "timestamp": version_from_us(numbered.seq_us),
        "offset": place.offset,
        "size": place.size,
    }


def matches_manifest(data: bytes, manifest: bytes) -> bool:
    """Whether these are the bytes that a manifest was written for."""
    try:
        value = orjson.loads(manifest)
        told = (value["format"], value["size"], value["sha256"])
    except (KeyError, TypeError, ValueError):
        return False
    return bool(told == (FORMAT, len(data), hashlib.sha256(data).hexdigest()))


def parse_manifest_sha256(manifest: bytes) -> str | None:
    """Return the SHA-256 of the journal that a manifest describes; None if it is damaged."""
    try:
        return str(orjson.loads(manifest)["sha256"])
    except (KeyError, TypeError, ValueError):
        return None


def parse_manifest(data: bytes) -> list[SequencedEvent]:
    """The events that a manifest lists; of no bundle that a catalog knows."""
    value = orjson.loads(data)
    if value["format"] != FORMAT:
        raise DamagedObjectError(f"{value['format']} is no format of journals that is known.")
    return [_parse_manifest_entry(value["replica"], each) for each in value["events"]]


def _parse_manifest_entry(replica: Any, each: Mapping[str, Any]) -> SequencedEvent:
    fqid = FQID(each["uuid"], each["version"])
    event = BundleEvent(
        each["event_id"], replica, each["event_type"], fqid, 0, version_to_us(each["at"])
    )
    return SequencedEvent(
        event, each["seq"], version_to_us(each["timestamp"]), each["offset"], each["size"]
    )
