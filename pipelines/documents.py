"""Assemble, load and cache the metadata document of a bundle.

Pure: bytes come in, a document and what is wrong with it come out. Nothing is fetched.

A document is the same in every replica and for every step, so a worker keeps the latest ones. A
parsed one takes many times its size: its memory is reserved for as long as it is used.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipelines import failover
from pipelines.flow import Heartbeat
from pipelines.limits import MAX_INDEXED_FILES, SEGMENT_ENTRIES
from pipelines.records import format_entries
from storage import json_codec, keys
from storage.catalog import bundles
from storage.errors import NotFoundError, TooLarge
from storage.json_codec import (
    MAX_PARSED_BYTES,
    MAX_PARSED_FACTOR,
    NestedTooDeep,
    check_parsed_size,
    decode_exactly,
    estimate_parsed_size,
)
from storage.model import FQID, BundleVersion, EventType, ManifestEntry, Replica
from storage.search.documents import flatten_document
from storage.stores import Stores

MAX_METADATA_DEPTH = 100
MAX_REPORTED_DUPLICATES = 10


class UnreadableMetadata(ValueError):
    """What is wrong with a file that cannot be made part of a document."""


def parse_metadata(content: bytes, *, room: int = MAX_PARSED_BYTES) -> tuple[Any, tuple[str, ...]]:
    """The value, and remarks on what was read though it is doubtful: duplicate names, of which the
    last counts. Unreadable for what has no place in a document, or takes more memory than `room`
    once it is parsed."""
    try:
        check_parsed_size(estimate_parsed_size(content), room)
    except TooLarge as error:
        raise UnreadableMetadata(error.detail) from error
    duplicates: list[str] = []
    value = _decode_json(content, duplicates)
    _check_depth(value)
    shown = list(dict.fromkeys(duplicates))[:MAX_REPORTED_DUPLICATES]
    return value, tuple(f"duplicate name {json.dumps(name)}, the last counts" for name in shown)


def _decode_json(content: bytes, duplicates: list[str]) -> Any:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            duplicates.extend(name for name, count in counts.items() if count > 1)
        return found

    try:
        return decode_exactly(content.decode("utf-8-sig"), members=members)
    except UnicodeDecodeError as error:
        raise UnreadableMetadata(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise UnreadableMetadata(problem) from error
    except NestedTooDeep as error:
        raise UnreadableMetadata(f"nested deeper than {MAX_METADATA_DEPTH}") from error
    except ValueError as error:
        raise UnreadableMetadata(str(error)) from error


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_METADATA_DEPTH):
        level = [child for each in level for child in _nested_values(each)]
        if not level:
            return
    raise UnreadableMetadata(f"nested deeper than {MAX_METADATA_DEPTH}")


def _nested_values(value: Any) -> Iterator[Any]:
    """The lists and objects directly inside of one."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (child for child in inside if isinstance(child, dict | list))


MAX_FIELD_NAME_TEXT = 64 * 1024 * 1024
"""Of one document. Every level of nesting, and every dot inside of a key, is a name that repeats
all above it: a few kilobytes of dots, or of leaves below one long path, would fill a memory."""


def measure_field_names(value: Any, most: int = MAX_FIELD_NAME_TEXT) -> int:
    """Characters in all its names, each name once; Unreadable when they are more than `most`."""
    seen: set[str] = set()
    found = 0
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        above, inside = waiting.pop()
        if isinstance(inside, list):
            waiting.extend((above, child) for child in inside if isinstance(child, dict | list))
        elif isinstance(inside, dict):
            for key, child in inside.items():
                name = f"{above}.{key}" if above else str(key)
                found += _measure_new_names(name, seen, most - found)
                if isinstance(child, dict | list):
                    waiting.append((name, child))
    return found


def _measure_new_names(name: str, seen: set[str], most: int) -> int:
    """Characters of a name and of those above it that were not there yet."""
    found = 0
    while name and name not in seen:
        seen.add(name)
        found += len(name)
        if found > most:
            raise UnreadableMetadata("the names of its fields would take too much room")
        name = name.rpartition(".")[0]
    return found


MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024

UNVERSIONED = "unversioned"
"""The descriptor of documents whose metadata name no schema."""

_SAMPLE_ERRORS = [{"file": "f", "path": "p", "reason": "r"}]
"""A document may come to report errors, also after its files were counted."""

MAX_DESCRIPTOR_BYTES = 1024
"""It is part of keys in the catalog."""

NUMBER_BEFORE_JSON = re.compile(r"_[0-9]+(?=_json$)")
SCHEMA_NAME = re.compile(r"[^/?#]+(?=[?#]|$)")
SCHEMA_VERSION = re.compile(r"/v?([0-9]+(?:\.[0-9]+)*)/")

DocumentError = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AssembledDocument:
    """A document, and what could not be made part of it; the document's `errors` says the same."""

    document: dict[str, Any]
    errors: tuple[DocumentError, ...]


class FieldCounter:
    """The distinct fields of a document, held to the search index's limit file by file."""

    def __init__(self, document: Mapping[str, Any], limit: int) -> None:
        """Count what the document has without any file: all entries have the same members."""
        manifest = document["manifest"]
        one = {**manifest, "files": manifest["files"][:1]}
        self._limit = limit
        self._fields = _field_paths({**document, "manifest": one, "errors": _SAMPLE_ERRORS})
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
        self._count_exactly()
        own = _field_paths({"files": {key: value}})
        fresh = own - self._fields
        if len(self._fields) + len(fresh) > self._limit:
            raise UnreadableMetadata(
                f"has {len(own)} fields, with which the document has more than {self._limit}"
            )
        self._fields |= fresh
        self._at_most = len(self._fields)

    def _count_exactly(self) -> None:
        """Replace the upper bound by the exact number."""
        for key, value in self._uncounted:
            self._fields |= _field_paths({"files": {key: value}})
        self._uncounted.clear()
        self._at_most = len(self._fields)


def _field_paths(document: Mapping[str, Any]) -> set[str]:
    return set(flatten_document(document).paths())


def is_metadata_file(entry: ManifestEntry) -> bool:
    """Whether a file's content belongs into the document."""
    return entry.indexed and entry.content_type.strip().lower().startswith("application/json")


def assemble_document(
    fqid: FQID,
    creator_uid: int,
    entries: Sequence[ManifestEntry],
    contents: Iterable[tuple[ManifestEntry, bytes | None]],
    *,
    field_limit: int,
    event_type: EventType = "CREATE",
) -> AssembledDocument:
    """The document; `contents` has the metadata files in manifest order, None for one that is
    too large to be looked at. Files that would bring it beyond `field_limit` are left out."""
    manifest = _build_manifest(creator_uid, entries)
    document: dict[str, Any] = {
        "event_type": event_type,
        "bundle_info": {"uuid": fqid.uuid, "version": fqid.version},
        "uuid": fqid.uuid,
        "manifest": manifest,
        "files": {},
        "shape_descriptor": UNVERSIONED,
    }
    fields = FieldCounter(document, field_limit)
    files, errors = _parse_files(
        contents, MAX_DOCUMENT_BYTES - len(dump_document(manifest)), fields
    )
    document |= {"files": files, "shape_descriptor": build_shape_descriptor(files)}
    if errors:
        document["errors"] = errors
    return AssembledDocument(document, tuple(errors))


def _build_manifest(creator_uid: int, entries: Sequence[ManifestEntry]) -> dict[str, Any]:
    listed = entries if len(entries) <= MAX_INDEXED_FILES else ()
    return {"creator_uid": creator_uid, "files": format_entries(listed)}


def _parse_files(
    contents: Iterable[tuple[ManifestEntry, bytes | None]], room: int, fields: FieldCounter
) -> tuple[dict[str, list[Any]], list[DocumentError]]:
    """Parsed files by key, in order, as far as there is room; and what is wrong with the others."""
    files: dict[str, list[Any]] = {}
    errors: list[DocumentError] = []
    room_for_names, room_in_memory = MAX_FIELD_NAME_TEXT, MAX_PARSED_BYTES
    for entry, content in contents:
        try:
            value, remarks = _parse_file(content, room, room_in_memory)
            room_for_names -= measure_field_names(value, room_for_names)
            fields.add(document_key(entry.name), value, content or b"")
        except UnreadableMetadata as error:
            errors.append({"file": entry.name, "reason": str(error)})
            continue
        room -= len(content or b"")
        room_in_memory -= estimate_parsed_size(content or b"")
        files.setdefault(document_key(entry.name), []).append(value)
        errors.extend({"file": entry.name, "reason": remark} for remark in remarks)
    return files, errors


def _parse_file(
    content: bytes | None, room: int, room_in_memory: int
) -> tuple[Any, tuple[str, ...]]:
    if content is None or len(content) > MAX_FILE_BYTES:
        raise UnreadableMetadata(f"larger than {MAX_FILE_BYTES} bytes")
    if len(content) > room:
        raise UnreadableMetadata(f"the document would be larger than {MAX_DOCUMENT_BYTES} bytes")
    return parse_metadata(content, room=room_in_memory)


def document_key(name: str) -> str:
    """A file's key in the document: dots as underscores, a number before `_json` left out."""
    return NUMBER_BEFORE_JSON.sub("", name.replace(".", "_"))


def build_shape_descriptor(files: Mapping[str, Sequence[Any]]) -> str:
    """The schemas that the files say they follow, each with its version, sorted."""
    found = {
        schema for values in files.values() for value in values for schema in _list_schemas(value)
    }
    whole = ",".join(sorted(found)).encode(errors="replace")
    return whole[:MAX_DESCRIPTOR_BYTES].decode(errors="ignore") or UNVERSIONED


def _list_schemas(value: Any) -> list[str]:
    """`name@version` of one file, or of each object of a list."""
    if isinstance(value, list):
        return [
            schema for each in value if isinstance(each, Mapping) for schema in _list_schemas(each)
        ]
    if not isinstance(value, Mapping):
        return []
    core = value.get("core")
    inner = core if isinstance(core, Mapping) else {}
    url = _strip_text(value.get("describedBy")) or _strip_text(inner.get("schema_url"))
    version = _strip_text(value.get("schema_version")) or _strip_text(inner.get("schema_version"))
    return [_format_schema(url, version)] if url or version else []


def _strip_text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _format_schema(url: str, version: str) -> str:
    named = SCHEMA_NAME.search(url)
    name = named[0].removesuffix(".json") if named else ""
    inside = SCHEMA_VERSION.search(url)
    return f"{name}@{version or (inside[1] if inside else '')}".replace(",", "_")


def withhold_paths(document: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """The document with these paths reported in its `errors`, and so kept but not searchable."""
    if not paths:
        return document
    reason = "another kind of value than in the documents of its shape"
    reported = [{"path": path, "reason": reason} for path in sorted(paths)]
    return {**document, "errors": [*document.get("errors", ()), *reported]}


def dump_document(document: Any) -> bytes:
    """The document as JSON; integers are exact whatever their size."""
    return json_codec.encode(document)


def parse_document(data: bytes) -> dict[str, Any]:
    """The document that `dump` wrote."""
    loaded: dict[str, Any] = json_codec.decode(data)
    return loaded


log = logging.getLogger(__name__)

ENTRY_PAGE = 5_000


@contextmanager
def open_document(
    stores: Stores, replica: Replica, bundle_id: int, beat: Heartbeat
) -> Iterator[dict[str, Any]]:
    """The document of a bundle, as its CREATE event shows it; Unavailable without memory for it."""
    bundle = stores.catalog.run_query(lambda tx: bundles.get(tx, bundle_id)).bundle
    kept, entries = _read_cache_or_entries(stores, bundle)
    with stores.memory.reserve(_estimate_memory([len(kept)] if kept else _metadata_sizes(entries))):
        found = _parse_or_assemble(stores, replica, bundle, kept, entries, beat)
        try:
            yield found
        finally:
            # Callers still have the name of it: the memory is free before its reservation is.
            found.clear()


def load_small_document(
    stores: Stores, replica: Replica, bundle: BundleVersion, beat: Heartbeat
) -> dict[str, Any] | None:
    """A document for which no memory needs to be reserved; None for any other."""
    kept, entries = _read_cache_or_entries(stores, bundle)
    size = _estimate_memory([len(kept)] if kept else _metadata_sizes(entries))
    if size > json_codec.SMALL_BYTES:
        return None
    return _parse_or_assemble(stores, replica, bundle, kept, entries, beat)


def _read_cache_or_entries(
    stores: Stores, bundle: BundleVersion
) -> tuple[bytes | None, Sequence[ManifestEntry]]:
    # By name: an id may be given again once what had it was purged.
    kept = stores.documents.get(str(bundle.fqid))
    return kept, () if kept else _list_entries(stores, bundle)


def _parse_or_assemble(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    kept: bytes | None,
    entries: Sequence[ManifestEntry],
    beat: Heartbeat,
) -> dict[str, Any]:
    if kept:
        return parse_document(kept)
    return _assemble_from_bucket(stores, replica, bundle, entries, beat)[0]


def load_document_text(stores: Stores, replica: Replica, bundle_id: int, beat: Heartbeat) -> bytes:
    """The same as JSON: what is cached is not parsed, which takes many times its size."""
    bundle = stores.catalog.run_query(lambda tx: bundles.get(tx, bundle_id)).bundle
    kept, entries = _read_cache_or_entries(stores, bundle)
    if kept:
        return kept
    with stores.memory.reserve(_estimate_memory(_metadata_sizes(entries))):
        # Another thread may have assembled it while this one waited.
        found = stores.documents.get(str(bundle.fqid))
        return found or _assemble_from_bucket(stores, replica, bundle, entries, beat)[1]


def _estimate_memory(sizes: Iterable[int]) -> int:
    """Bytes that texts of these sizes, and what is parsed of them, may take together."""
    text = sum(size for size in sizes if size <= MAX_DOCUMENT_BYTES)
    return min(text, MAX_DOCUMENT_BYTES) + min(text * MAX_PARSED_FACTOR, MAX_PARSED_BYTES)


def _metadata_sizes(entries: Iterable[ManifestEntry]) -> Iterator[int]:
    return (entry.size for entry in entries if is_metadata_file(entry))


def _list_entries(stores: Stores, bundle: BundleVersion) -> list[ManifestEntry]:
    starts = range(0, bundle.file_count, ENTRY_PAGE)
    return [entry for start in starts for entry in _read_entry_page(stores, bundle, start)]


def _read_entry_page(stores: Stores, bundle: BundleVersion, start: int) -> list[ManifestEntry]:
    return stores.catalog.run_query(
        lambda tx: bundles.list_entries(
            tx, bundle.id, start=start, limit=ENTRY_PAGE, span=SEGMENT_ENTRIES
        )
    )


def _assemble_from_bucket(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    entries: Sequence[ManifestEntry],
    beat: Heartbeat,
) -> tuple[dict[str, Any], bytes]:
    """The document from the bucket, and its text, which is cached."""
    made = assemble_document(
        bundle.fqid,
        bundle.creator_uid,
        entries,
        _read_contents(stores, replica, entries, beat),
        field_limit=stores.search_fields,
    )
    for error in made.errors:
        log.warning("document of %s: %s", bundle.fqid, error)
    text = dump_document(made.document)
    stores.documents.put(str(bundle.fqid), text)
    return made.document, text


def _read_contents(
    stores: Stores, replica: Replica, entries: Sequence[ManifestEntry], beat: Heartbeat
) -> Iterator[tuple[ManifestEntry, bytes | None]]:
    """The bytes of each metadata file, None for one that is too large to look at."""
    for entry in entries:
        if not is_metadata_file(entry):
            continue
        if entry.size > MAX_FILE_BYTES:
            yield entry, None
            continue
        beat(entry.size)
        yield entry, _read_blob(stores, replica, entry)


def _read_blob(stores: Stores, replica: Replica, entry: ManifestEntry) -> bytes:
    sha256 = entry.checksums.sha256
    try:
        return failover.read_blob(stores, replica, sha256)
    except NotFoundError as error:
        raise NotFoundError(f"{replica} lacks {keys.blob_key(sha256)} of {entry.name}.") from error
