"""The one place that spells object keys, both ways; they are a frozen format.

Byte order of record keys is (uuid, version) order, so that a bucket's listing and a table's index
can be merged. Two leading characters spread a kind over 256 folders.
"""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from storage.model import FQID

Kind = Literal["file", "bundle", "collection"]
KINDS: tuple[Kind, ...] = ("file", "bundle", "collection")

BLOBS = "blobs/"
TOMBSTONES = "tombstones/"
PURGED = "purged/"
EPOCHS = "epochs/"
AREAS = "areas/"
CHECKOUTS = "checkouts/"
JOURNALS = "journals/"
LAST = 10**18
"""No event has a greater number; twenty digits may tell of one that no catalog keeps."""
MANIFEST = ".json"
"""What the key of a journal's manifest ends with."""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_VERSION = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}\.[0-9]{6}Z"
_KIND = r"(?P<kind>file|bundle|collection)s"
_BLOB = re.compile(r"blobs/(?P<fan>[0-9a-f]{2})/(?P<sha256>[0-9a-f]{64})")
_RECORD = re.compile(rf"{_KIND}/(?P<fan>..)/(?P<uuid>{_UUID})\.(?P<version>{_VERSION})")
_MARK = re.compile(
    rf"(?:tombstones|purged)/{_KIND}/(?P<fan>..)/(?P<uuid>{_UUID})(?:\.(?P<version>{_VERSION}))?"
)
_JOURNAL = re.compile(
    r"journals/(?P<replica>[a-z]+)/(?P<first>\d{20})-(?P<last>\d{20})"
    r"(?:\.(?P<generation>[1-9]\d{0,17}))?(?P<manifest>\.json)?",
    re.ASCII,
)
_EPOCH = re.compile(rf"epochs/(?P<name>[0-9]{{20}}-{_UUID})")
_AREA = re.compile(rf"areas/(?P<uuid>{_UUID})/(?P<name>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RecordKey:
    """The record of one version."""

    kind: Kind
    fqid: FQID


@dataclass(frozen=True, slots=True)
class MarkKey:
    """A tombstone or purge marker; without `version` it covers the whole uuid."""

    kind: Kind
    uuid: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class JournalKey:
    """The events of a replica with the numbers from `first` to `last`; each time that they are
    written anew is another `generation`."""

    replica: str
    first: int
    last: int
    generation: int = 0

    @property
    def name(self) -> str:
        """The last part of its key."""
        written = f".{self.generation}" if self.generation else ""
        return f"{self.first:020}-{self.last:020}{written}"

    def __str__(self) -> str:
        return f"{JOURNALS}{self.replica}/{self.name}"


def records(kind: Kind) -> str:
    """Prefix of all records of one kind."""
    return f"{kind}s/"


def blob(sha256: str) -> str:
    """The content key of some bytes."""
    return f"{BLOBS}{sha256[:2]}/{sha256}"


def record(kind: Kind, fqid: FQID) -> str:
    """Where the record of a version lies."""
    return f"{kind}s/{fqid.uuid[:2]}/{fqid}"


def tombstone(kind: Kind, uuid: str, version: str | None = None) -> str:
    """Where the tombstone of a version, or of a whole uuid, lies."""
    return TOMBSTONES + _marked(kind, uuid, version)


def purged(kind: Kind, uuid: str, version: str | None = None) -> str:
    """Where the marker that something was purged for good lies."""
    return PURGED + _marked(kind, uuid, version)


def journals(replica: str) -> str:
    """Prefix of the journals of a replica's events, in either bucket."""
    return f"{JOURNALS}{replica}/"


def journal(key: JournalKey) -> str:
    """Where the lines of a journal lie."""
    return str(key)


def journal_manifest(key: JournalKey) -> str:
    """Where it is said which events a journal has, and where in it."""
    return f"{key}{MANIFEST}"


def epoch(name: str) -> str:
    """Where the mark of an epoch, `<20 digits>-<uuid>`, lies."""
    return EPOCHS + name


def parse_epoch(key: str) -> str | None:
    """The epoch that a key is the mark of, None for any other."""
    found = _EPOCH.fullmatch(key)
    return found["name"] if found else None


def area(uuid: str) -> str:
    """Prefix of everything in an upload area."""
    return f"{AREAS}{uuid}/"


def area_file(uuid: str, name: str) -> str:
    """A file in an upload area."""
    return area(uuid) + name


def checkout(job_id: str) -> str:
    """Prefix of everything that a checkout copied."""
    return f"{CHECKOUTS}{job_id}/"


def checkout_file(job_id: str, name: str) -> str:
    """A file of a checked-out bundle."""
    return checkout(job_id) + name


def parse_blob(key: str) -> str | None:
    """The SHA-256 of a blob key, None for any other."""
    found = _BLOB.fullmatch(key)
    return found["sha256"] if found and found["sha256"].startswith(found["fan"]) else None


def parse_record(key: str) -> RecordKey | None:
    """What a record key names, None for any other."""
    found = _RECORD.fullmatch(key)
    if not found or not found["uuid"].startswith(found["fan"]):
        return None
    return RecordKey(_kind(found["kind"]), FQID(found["uuid"], found["version"]))


def parse_tombstone(key: str) -> MarkKey | None:
    """What a tombstone's key names, None for any other."""
    return _parse_mark(key) if key.startswith(TOMBSTONES) else None


def parse_purged(key: str) -> MarkKey | None:
    """What a purge marker's key names, None for any other."""
    return _parse_mark(key) if key.startswith(PURGED) else None


def parse_journal(key: str) -> JournalKey | None:
    """What the key of a journal's lines names, None for any other."""
    found = _JOURNAL.fullmatch(key)
    return None if found is None or found["manifest"] else _journal(found)


def parse_journal_manifest(key: str) -> JournalKey | None:
    """What the key of a journal's manifest names, None for any other."""
    found = _JOURNAL.fullmatch(key)
    return _journal(found) if found and found["manifest"] else None


def _journal(found: re.Match[str]) -> JournalKey | None:
    first, last, generation = int(found["first"]), int(found["last"]), found["generation"]
    if not 0 < first <= last <= LAST:
        return None
    return JournalKey(found["replica"], first, last, int(generation or 0))


def parse_area_file(key: str) -> tuple[str, str] | None:
    """Area and name of an uploaded file's key, None for any other."""
    found = _AREA.fullmatch(key)
    return (found["uuid"], found["name"]) if found else None


def area_url(external_base: str, uuid: str, name: str) -> str:
    """The URL that a file of an upload area is put to, which is its `source_url`, too."""
    return f"{external_base.rstrip('/')}/v1/area/{uuid}/files/{quote(name, safe='/')}"


def area_key(url: str, external_bases: tuple[str, ...]) -> str | None:
    """The key that a URL made by `area_url` under one of these bases names, None for any other."""
    try:
        scheme, netloc, path, query, fragment = urlsplit(url)
        found = next(
            filter(None, (_area_path(base, scheme, netloc, path) for base in external_bases))
        )
        key = area_file(found[1].lower(), unquote(found[2], errors="strict"))
    except (ValueError, StopIteration):
        return None
    return key if not query and not fragment and parse_area_file(key) else None


def _area_path(base: str, scheme: str, netloc: str, path: str) -> re.Match[str] | None:
    """Area and quoted name in a path under a base URL; hosts compare in any case."""
    known = urlsplit(base)
    if (known.scheme, known.netloc.lower()) != (scheme, netloc.lower()):
        return None
    return re.fullmatch(re.escape(known.path.rstrip("/")) + r"/v1/area/([^/]+)/files/(.+)", path)


def _marked(kind: Kind, uuid: str, version: str | None) -> str:
    name = uuid if version is None else f"{uuid}.{version}"
    return f"{kind}s/{uuid[:2]}/{name}"


def _parse_mark(key: str) -> MarkKey | None:
    found = _MARK.fullmatch(key)
    if not found or not found["uuid"].startswith(found["fan"]):
        return None
    return MarkKey(_kind(found["kind"]), found["uuid"], found["version"])


def _kind(text: str) -> Kind:
    return next(kind for kind in KINDS if kind == text)
