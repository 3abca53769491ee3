"""Lines of journals: the document of each event as JSON, one after the other. Pure.

The manifest beside a journal says which events it has and where in it, and all that a catalog wants
to know of them: it is enough to have the feed back. Both formats are frozen.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pipelines.finding.documents import dump
from pipelines.formats import us_of, version_at
from storage.catalog.feeds import Numbered
from storage.catalog.journals import Place
from storage.errors import Damaged
from storage.keys import JournalKey
from storage.model import FQID, Event

FORMAT = "store-journal/1"
CONTENT_TYPE, MANIFEST_TYPE = "application/x-ndjson", "application/json"


@dataclass(frozen=True, slots=True)
class Text:
    """The bytes of a journal, where the line of each event lies in them, and its manifest."""

    data: bytes
    places: tuple[Place, ...]
    manifest: bytes


def of_event(event: Event, document: Mapping[str, Any]) -> bytes:
    """An event's line without its end: the document, told as what happened."""
    return dump({**document, "event_type": event.type})


def of_purged(event: Event) -> bytes:
    """The line of an event whose bundle was removed for good: that it happened, no more."""
    return dump(about(event))


def about(event: Event) -> dict[str, Any]:
    """All that is left of a document when its bundle was removed for good."""
    uuid, version = event.fqid
    bundle_info = {"uuid": uuid, "version": version}
    return {"event_type": event.type, "bundle_info": bundle_info, "uuid": uuid}


def joined(key: JournalKey, found: Sequence[Numbered], lines: Sequence[bytes]) -> Text:
    """A journal of these events; `key` names only its range."""
    places, offset = [], 0
    for numbered, line in zip(found, lines, strict=True):
        places.append(Place(numbered.seq, offset, len(line)))
        offset += len(line) + 1
    data = b"".join(line + b"\n" for line in lines)
    return Text(data, tuple(places), _manifest(key, found, places, data))


def _manifest(
    key: JournalKey, found: Sequence[Numbered], places: Sequence[Place], data: bytes
) -> bytes:
    value = {
        "format": FORMAT,
        "replica": key.replica,
        "first": key.first,
        "last": key.last,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "events": [_listed(*each) for each in zip(found, places, strict=True)],
    }
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _listed(numbered: Numbered, place: Place) -> dict[str, Any]:
    event = numbered.event
    return {
        "event_id": event.id,
        "event_type": event.type,
        "uuid": event.fqid.uuid,
        "version": event.fqid.version,
        "at": version_at(event.at_us),
        "seq": numbered.seq,
        "timestamp": version_at(numbered.seq_us),
        "offset": place.offset,
        "size": place.size,
    }


def fits(data: bytes, manifest: bytes) -> bool:
    """Whether these are the bytes that a manifest was written for."""
    try:
        value = orjson.loads(manifest)
        told = (value["format"], value["size"], value["sha256"])
    except (KeyError, TypeError, ValueError):
        return False
    return bool(told == (FORMAT, len(data), hashlib.sha256(data).hexdigest()))


def sha256_of(manifest: bytes) -> str | None:
    """Return the SHA-256 of the journal that a manifest describes; None if it is damaged."""
    try:
        return str(orjson.loads(manifest)["sha256"])
    except (KeyError, TypeError, ValueError):
        return None


def read_manifest(data: bytes) -> list[Numbered]:
    """The events that a manifest lists; of no bundle that a catalog knows."""
    value = orjson.loads(data)
    if value["format"] != FORMAT:
        raise Damaged(f"{value['format']} is no format of journals that is known.")
    return [_read(value["replica"], each) for each in value["events"]]


def _read(replica: Any, each: Mapping[str, Any]) -> Numbered:
    fqid = FQID(each["uuid"], each["version"])
    event = Event(each["event_id"], replica, each["event_type"], fqid, 0, us_of(each["at"]))
    return Numbered(event, each["seq"], us_of(each["timestamp"]), each["offset"], each["size"])
