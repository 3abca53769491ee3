"""The metadata document of a bundle: its manifest and its parsed metadata files in one object.

Pure: bytes come in, a document and what is wrong with it come out. Nothing is fetched.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.finding import field_names
from pipelines.finding.metadata import Unreadable, parse
from pipelines.keeping.records import stored_entries
from pipelines.limits import MAX_INDEXED_FILES
from storage import json_codec
from storage.json_size import MAX_PARSED_BYTES, parsed_size
from storage.model import FQID, Entry, EventType
from storage.query.analysis import flatten

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024

UNVERSIONED = "unversioned"
"""The descriptor of documents whose metadata name no schema."""

_ERRORS = [{"file": "f", "path": "p", "reason": "r"}]
"""A document may come to report errors, also after its files were counted."""

MAX_DESCRIPTOR_BYTES = 1024
"""It is part of keys in the catalog."""

NUMBER_BEFORE_JSON = re.compile(r"_[0-9]+(?=_json$)")
SCHEMA_NAME = re.compile(r"[^/?#]+(?=[?#]|$)")
SCHEMA_VERSION = re.compile(r"/v?([0-9]+(?:\.[0-9]+)*)/")

Error = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A document, and what could not be made part of it; the document's `errors` says the same."""

    document: dict[str, Any]
    errors: tuple[Error, ...]


class FieldCount:
    """The distinct fields of a document, held to the search index's limit file by file."""

    def __init__(self, document: Mapping[str, Any], limit: int) -> None:
        """Count what the document has without any file: all entries have the same members."""
        manifest = document["manifest"]
        one = {**manifest, "files": manifest["files"][:1]}
        self._limit = limit
        self._fields = _paths({**document, "manifest": one, "errors": _ERRORS})
        self._at_most = len(self._fields)
        self._uncounted: list[tuple[str, Any]] = []

    def add(self, key: str, value: Any, content: bytes) -> None:
        """Add a file, or raise Unreadable where the document would have too many fields.

        Each field has a colon in the file, so that most documents are never counted exactly.
        """
        colons = content.count(b":") + 1
        if self._at_most + colons <= self._limit:
            self._at_most += colons
            self._uncounted.append((key, value))
            return
        self._count()
        own = _paths({"files": {key: value}})
        fresh = own - self._fields
        if len(self._fields) + len(fresh) > self._limit:
            raise Unreadable(
                f"has {len(own)} fields, with which the document has more than {self._limit}"
            )
        self._fields |= fresh
        self._at_most = len(self._fields)

    def _count(self) -> None:
        """Replace the upper bound by the exact number."""
        for key, value in self._uncounted:
            self._fields |= _paths({"files": {key: value}})
        self._uncounted.clear()
        self._at_most = len(self._fields)


def _paths(document: Mapping[str, Any]) -> set[str]:
    return set(flatten(document).paths())


def is_metadata(entry: Entry) -> bool:
    """Whether a file's content belongs into the document."""
    return entry.indexed and entry.content_type.strip().lower().startswith("application/json")


def assemble(
    fqid: FQID,
    creator_uid: int,
    entries: Sequence[Entry],
    contents: Iterable[tuple[Entry, bytes | None]],
    *,
    field_limit: int,
    event_type: EventType = "CREATE",
) -> Assembled:
    """The document; `contents` has the metadata files in manifest order, None for one that is
    too large to be looked at. Files that would bring it beyond `field_limit` are left out."""
    manifest = _manifest(creator_uid, entries)
    document: dict[str, Any] = {
        "event_type": event_type,
        "bundle_info": {"uuid": fqid.uuid, "version": fqid.version},
        "uuid": fqid.uuid,
        "manifest": manifest,
        "files": {},
        "shape_descriptor": UNVERSIONED,
    }
    fields = FieldCount(document, field_limit)
    files, errors = _files(contents, MAX_DOCUMENT_BYTES - len(dump(manifest)), fields)
    document |= {"files": files, "shape_descriptor": descriptor(files)}
    if errors:
        document["errors"] = errors
    return Assembled(document, tuple(errors))


def _manifest(creator_uid: int, entries: Sequence[Entry]) -> dict[str, Any]:
    listed = entries if len(entries) <= MAX_INDEXED_FILES else ()
    return {"creator_uid": creator_uid, "files": stored_entries(listed)}


def _files(
    contents: Iterable[tuple[Entry, bytes | None]], room: int, fields: FieldCount
) -> tuple[dict[str, list[Any]], list[Error]]:
    """Parsed files by key, in order, as far as there is room; and what is wrong with the others."""
    files: dict[str, list[Any]] = {}
    errors: list[Error] = []
    room_for_names, room_in_memory = field_names.MAX_TEXT, MAX_PARSED_BYTES
    for entry, content in contents:
        try:
            value, remarks = _value(content, room, room_in_memory)
            room_for_names -= field_names.text(value, room_for_names)
            fields.add(file_key(entry.name), value, content or b"")
        except Unreadable as error:
            errors.append({"file": entry.name, "reason": str(error)})
            continue
        room -= len(content or b"")
        room_in_memory -= parsed_size(content or b"")
        files.setdefault(file_key(entry.name), []).append(value)
        errors.extend({"file": entry.name, "reason": remark} for remark in remarks)
    return files, errors


def _value(content: bytes | None, room: int, room_in_memory: int) -> tuple[Any, tuple[str, ...]]:
    if content is None or len(content) > MAX_FILE_BYTES:
        raise Unreadable(f"larger than {MAX_FILE_BYTES} bytes")
    if len(content) > room:
        raise Unreadable(f"the document would be larger than {MAX_DOCUMENT_BYTES} bytes")
    return parse(content, room=room_in_memory)


def file_key(name: str) -> str:
    """A file's key in the document: dots as underscores, a number before `_json` left out."""
    return NUMBER_BEFORE_JSON.sub("", name.replace(".", "_"))


def descriptor(files: Mapping[str, Sequence[Any]]) -> str:
    """The schemas that the files say they follow, each with its version, sorted."""
    found = {schema for values in files.values() for value in values for schema in _schemas(value)}
    whole = ",".join(sorted(found)).encode(errors="replace")
    return whole[:MAX_DESCRIPTOR_BYTES].decode(errors="ignore") or UNVERSIONED


def _schemas(value: Any) -> list[str]:
    """`name@version` of one file, or of each object of a list."""
    if isinstance(value, list):
        return [schema for each in value if isinstance(each, Mapping) for schema in _schemas(each)]
    if not isinstance(value, Mapping):
        return []
    core = value.get("core")
    inner = core if isinstance(core, Mapping) else {}
    url = _text(value.get("describedBy")) or _text(inner.get("schema_url"))
    version = _text(value.get("schema_version")) or _text(inner.get("schema_version"))
    return [_schema(url, version)] if url or version else []


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _schema(url: str, version: str) -> str:
    named = SCHEMA_NAME.search(url)
    name = named[0].removesuffix(".json") if named else ""
    inside = SCHEMA_VERSION.search(url)
    return f"{name}@{version or (inside[1] if inside else '')}".replace(",", "_")


def withholding(document: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """The document with these paths reported in its `errors`, and so kept but not searchable."""
    if not paths:
        return document
    reason = "another kind of value than in the documents of its shape"
    reported = [{"path": path, "reason": reason} for path in sorted(paths)]
    return {**document, "errors": [*document.get("errors", ()), *reported]}


def dump(document: Any) -> bytes:
    """The document as JSON; integers are exact whatever their size."""
    return json_codec.encode(document)


def load(data: bytes) -> dict[str, Any]:
    """The document that `dump` wrote."""
    loaded: dict[str, Any] = json_codec.decode(data)
    return loaded
