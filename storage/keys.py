"""Build, parse and check object keys, whose format is frozen, and check metadata.

Byte order of record keys is (uuid, version) order, so that a bucket's listing and a table's index
can be merged. Two leading characters spread a kind over 256 folders.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from storage.errors import Invalid
from storage.model import FQID

MAX_KEY_BYTES = 900
MAX_METADATA_BYTES = 2048
MAX_CONTENT_TYPE_BYTES = 1024
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")


def check_key(key: str) -> bytes:
    """Return the key's bytes; Invalid if it is empty, too long or has control characters."""
    try:
        raw = key.encode()
    except UnicodeEncodeError as error:
        raise Invalid("object key: must be valid Unicode text") from error
    if not 0 < len(raw) <= MAX_KEY_BYTES or _CONTROL_CHARACTERS.search(key):
        raise Invalid(f"object key: must have 1 to {MAX_KEY_BYTES} bytes and no control characters")
    return raw


def check_metadata(content_type: str, metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return metadata that every engine can store beside the content type; Invalid otherwise."""
    pairs = dict(metadata or {})
    text = "".join(pairs) + "".join(pairs.values())
    if len(text) > MAX_METADATA_BYTES or not (text.isascii() and text.isprintable()):
        raise Invalid(f"metadata: must be printable ASCII of at most {MAX_METADATA_BYTES} bytes")
    if any(name != name.lower() or not name for name in pairs):
        raise Invalid("metadata: names must be lower case")
    if len(content_type) > MAX_CONTENT_TYPE_BYTES or not content_type.isprintable():
        raise Invalid(f"content type: must be one line of at most {MAX_CONTENT_TYPE_BYTES} bytes")
    return pairs


def check_response_headers(*values: str | None) -> None:
    """Raise Invalid if a header value of a signed URL has control characters."""
    if any(_CONTROL_CHARACTERS.search(value or "") for value in values):
        raise Invalid("response headers must not contain control characters")


Kind = Literal["file", "bundle", "collection"]
KINDS: tuple[Kind, ...] = ("file", "bundle", "collection")

BLOBS = "blobs/"
TOMBSTONES = "tombstones/"
PURGE_MARKERS = "purged/"
EPOCHS = "epochs/"
AREAS = "areas/"
CHECKOUTS = "checkouts/"
JOURNALS = "journals/"
MAX_EVENT_NUMBER = 10**18
"""Largest event number; twenty digits could hold more than the catalog can."""
MANIFEST_SUFFIX = ".json"
"""Suffix of a journal manifest's key."""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_VERSION = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}\.[0-9]{6}Z"
_KIND = r"(?P<kind>file|bundle|collection)s"
_BLOB = re.compile(r"blobs/(?P<fan>[0-9a-f]{2})/(?P<sha256>[0-9a-f]{64})")
_RECORD = re.compile(rf"{_KIND}/(?P<fan>..)/(?P<uuid>{_UUID})\.(?P<version>{_VERSION})")
_MARKER = re.compile(
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
    """The key of a version's record."""

    kind: Kind
    fqid: FQID


@dataclass(frozen=True, slots=True)
class MarkerKey:
    """A tombstone or purge marker; without `version` it covers the whole uuid."""

    kind: Kind
    uuid: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class JournalKey:
    """A journal of a replica's events `first` to `last`; each rewrite is a new `generation`."""

    replica: str
    first: int
    last: int
    generation: int = 0

    @property
    def name(self) -> str:
        """Return the last segment of its key."""
        written = f".{self.generation}" if self.generation else ""
        return f"{self.first:020}-{self.last:020}{written}"

    def __str__(self) -> str:
        return f"{JOURNALS}{self.replica}/{self.name}"


def record_prefix(kind: Kind) -> str:
    """Return the prefix of all records of one kind."""
    return f"{kind}s/"


def blob_key(sha256: str) -> str:
    """Return the content key of a SHA-256."""
    return f"{BLOBS}{sha256[:2]}/{sha256}"


def record_key(kind: Kind, fqid: FQID) -> str:
    """Return the key of a version's record."""
    return f"{kind}s/{fqid.uuid[:2]}/{fqid}"


def tombstone_key(kind: Kind, uuid: str, version: str | None = None) -> str:
    """Return the key of the tombstone of a version, or of a whole uuid."""
    return TOMBSTONES + _marker_suffix(kind, uuid, version)


def purge_marker_key(kind: Kind, uuid: str, version: str | None = None) -> str:
    """Return the key of the purge marker of a version, or of a whole uuid."""
    return PURGE_MARKERS + _marker_suffix(kind, uuid, version)


def journal_prefix(replica: str) -> str:
    """Return the prefix of a replica's journals, in either bucket."""
    return f"{JOURNALS}{replica}/"


def journal_key(key: JournalKey) -> str:
    """Return the key of a journal's lines."""
    return str(key)


def journal_manifest_key(key: JournalKey) -> str:
    """Return the key of a journal's manifest, which lists its events."""
    return f"{key}{MANIFEST_SUFFIX}"


def epoch_key(name: str) -> str:
    """Return the key of an epoch, named `<20 digits>-<uuid>`."""
    return EPOCHS + name


def parse_epoch(key: str) -> str | None:
    """Return the epoch of a key, None for any other key."""
    found = _EPOCH.fullmatch(key)
    return found["name"] if found else None


def area_prefix(uuid: str) -> str:
    """Return the prefix of an upload area."""
    return f"{AREAS}{uuid}/"


def area_file_key(uuid: str, name: str) -> str:
    """Return the key of a file in an upload area."""
    return area_prefix(uuid) + name


def checkout_prefix(job_id: str) -> str:
    """Return the prefix of a checkout."""
    return f"{CHECKOUTS}{job_id}/"


def checkout_file_key(job_id: str, name: str) -> str:
    """Return the key of a file in a checkout."""
    return checkout_prefix(job_id) + name


def parse_blob(key: str) -> str | None:
    """Return the SHA-256 of a blob key, None for any other key."""
    found = _BLOB.fullmatch(key)
    return found["sha256"] if found and found["sha256"].startswith(found["fan"]) else None


def parse_record(key: str) -> RecordKey | None:
    """Parse a record key; None for any other key."""
    found = _RECORD.fullmatch(key)
    if not found or not found["uuid"].startswith(found["fan"]):
        return None
    return RecordKey(_parse_kind(found["kind"]), FQID(found["uuid"], found["version"]))


def parse_tombstone(key: str) -> MarkerKey | None:
    """Parse a tombstone's key; None for any other key."""
    return _parse_marker(key) if key.startswith(TOMBSTONES) else None


def parse_purge_marker(key: str) -> MarkerKey | None:
    """Parse a purge marker's key; None for any other key."""
    return _parse_marker(key) if key.startswith(PURGE_MARKERS) else None


def parse_journal(key: str) -> JournalKey | None:
    """Parse the key of a journal's lines; None for any other key."""
    found = _JOURNAL.fullmatch(key)
    return None if found is None or found["manifest"] else _make_journal_key(found)


def parse_journal_manifest(key: str) -> JournalKey | None:
    """Parse the key of a journal's manifest; None for any other key."""
    found = _JOURNAL.fullmatch(key)
    return _make_journal_key(found) if found and found["manifest"] else None


def _make_journal_key(found: re.Match[str]) -> JournalKey | None:
    first, last, generation = int(found["first"]), int(found["last"]), found["generation"]
    if not 0 < first <= last <= MAX_EVENT_NUMBER:
        return None
    return JournalKey(found["replica"], first, last, int(generation or 0))


def parse_area_file(key: str) -> tuple[str, str] | None:
    """Return area and name of an uploaded file's key, None for any other key."""
    found = _AREA.fullmatch(key)
    return (found["uuid"], found["name"]) if found else None


def area_url(external_base: str, uuid: str, name: str) -> str:
    """Return the upload URL of a file in an upload area, which is also its `source_url`."""
    return f"{external_base.rstrip('/')}/v1/area/{uuid}/files/{quote(name, safe='/')}"


def parse_area_url(url: str, external_bases: tuple[str, ...]) -> str | None:
    """Return the key of an `area_url` under one of these bases, None for any other URL."""
    try:
        scheme, netloc, path, query, fragment = urlsplit(url)
        found = next(
            filter(None, (_match_area_path(base, scheme, netloc, path) for base in external_bases))
        )
        key = area_file_key(found[1].lower(), unquote(found[2], errors="strict"))
    except (ValueError, StopIteration):
        return None
    return key if not query and not fragment and parse_area_file(key) else None


def _match_area_path(base: str, scheme: str, netloc: str, path: str) -> re.Match[str] | None:
    """Match area and quoted name in a path under a base URL; hosts ignore case."""
    known = urlsplit(base)
    if (known.scheme, known.netloc.lower()) != (scheme, netloc.lower()):
        return None
    return re.fullmatch(re.escape(known.path.rstrip("/")) + r"/v1/area/([^/]+)/files/(.+)", path)


def _marker_suffix(kind: Kind, uuid: str, version: str | None) -> str:
    name = uuid if version is None else f"{uuid}.{version}"
    return f"{kind}s/{uuid[:2]}/{name}"


def _parse_marker(key: str) -> MarkerKey | None:
    found = _MARKER.fullmatch(key)
    if not found or not found["uuid"].startswith(found["fan"]):
        return None
    return MarkerKey(_parse_kind(found["kind"]), found["uuid"], found["version"])


def _parse_kind(text: str) -> Kind:
    return next(kind for kind in KINDS if kind == text)
