"""Assemble, load and cache the metadata document of a bundle.

A document is the same in every replica and for every step, so a worker caches the latest ones. A
parsed document takes many times the size of its JSON: its memory is reserved while it is used.
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
from storage.model import FQID, BundleVersion, ManifestEntry, Replica
from storage.search.documents import flatten_document
from storage.stores import Stores

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
MAX_METADATA_DEPTH = 100
MAX_REPORTED_DUPLICATES = 10
MAX_FIELD_NAME_TEXT = 64 * 1024 * 1024
"""Characters of the dotted names of a document's fields.

Each level of nesting, and each dot in a key, repeats the name above it, so a few kilobytes of dots,
or of leaves below a long path, could fill the memory.
"""
ENTRY_PAGE = 5_000
"""Entries read in one transaction."""
UNVERSIONED = "unversioned"
"""The descriptor of documents whose metadata name no schema."""
MAX_DESCRIPTOR_BYTES = 1024
"""Bound on the descriptor, which is part of keys in the catalog."""
NUMBER_BEFORE_JSON = re.compile(r"_[0-9]+(?=_json$)")
SCHEMA_NAME = re.compile(r"[^/?#]+(?=[?#]|$)")
SCHEMA_VERSION = re.compile(r"/v?([0-9]+(?:\.[0-9]+)*)/")
_SAMPLE_ERRORS = [{"file": "f", "path": "p", "reason": "r"}]
"""Errors that are counted as fields of each document, since it may get some later."""


class UnreadableMetadata(ValueError):
    """A file cannot become part of a document; the text says why."""


def parse_metadata(content: bytes, *, room: int = MAX_PARSED_BYTES) -> tuple[Any, tuple[str, ...]]:
    """Return the value of a JSON file, and warnings of duplicate names, of which the last counts.

    Raise UnreadableMetadata if it cannot be part of a document, or if its value takes more memory
    than `room`.
    """
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
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_METADATA_DEPTH):
        nested: list[Any] = []
        for each in level:
            children = each.values() if isinstance(each, dict) else each
            nested += (child for child in children if isinstance(child, dict | list))
        if not nested:
            return
        level = nested
    raise UnreadableMetadata(f"nested deeper than {MAX_METADATA_DEPTH}")


def measure_field_names(value: Any, most: int = MAX_FIELD_NAME_TEXT) -> int:
    """Count the characters of all dotted names; raise UnreadableMetadata above `most`."""
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
    """Count the characters of a name and its parents that are not in `seen`, and add them."""
    found = 0
    while name and name not in seen:
        seen.add(name)
        found += len(name)
        if found > most:
            raise UnreadableMetadata("the names of its fields would take too much room")
        name = name.rpartition(".")[0]
    return found


DocumentError = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AssembledDocument:
    """A document, and the errors of files that it lacks, which are also in its `errors`."""

    document: dict[str, Any]
    errors: tuple[DocumentError, ...]


class FieldCounter:
    """Counts the distinct fields of a document, file by file, up to the search index's limit."""

    def __init__(self, document: Mapping[str, Any], limit: int) -> None:
        """Count what the document has without any file: all entries have the same members."""
        manifest = document["manifest"]
        one = {**manifest, "files": manifest["files"][:1]}
        self._limit = limit
        self._fields = _field_paths({**document, "manifest": one, "errors": _SAMPLE_ERRORS})
        self._at_most = len(self._fields)
        self._uncounted: list[tuple[str, Any]] = []

    def add(self, key: str, value: Any, content: bytes) -> None:
        """Add a file; raise UnreadableMetadata if the document would have too many fields.

        Each field has a colon in the file, so that most documents are never counted exactly.
        """
        colons = content.count(b":") + 1
        if self._at_most + colons <= self._limit:
            self._at_most += colons
            self._uncounted.append((key, value))
            return
        # Replace the upper bound by the exact number.
        for counted_key, counted in self._uncounted:
            self._fields |= _field_paths({"files": {counted_key: counted}})
        self._uncounted.clear()
        self._at_most = len(self._fields)
        own = _field_paths({"files": {key: value}})
        fresh = own - self._fields
        if len(self._fields) + len(fresh) > self._limit:
            raise UnreadableMetadata(
                f"has {len(own)} fields, with which the document has more than {self._limit}"
            )
        self._fields |= fresh
        self._at_most = len(self._fields)


def _field_paths(document: Mapping[str, Any]) -> set[str]:
    return set(flatten_document(document).paths())


def is_metadata_file(entry: ManifestEntry) -> bool:
    """Return whether a file's content is part of the document."""
    return entry.indexed and entry.content_type.strip().lower().startswith("application/json")


def assemble_document(
    fqid: FQID,
    creator_uid: int,
    entries: Sequence[ManifestEntry],
    contents: Iterable[tuple[ManifestEntry, bytes | None]],
    *,
    field_limit: int,
) -> AssembledDocument:
    """Assemble a document; `contents` has the metadata files in order, None if too large.

    Files that would exceed `field_limit` are left out.
    """
    listed = entries if len(entries) <= MAX_INDEXED_FILES else ()
    manifest = {"creator_uid": creator_uid, "files": format_entries(listed)}
    document: dict[str, Any] = {
        "event_type": "CREATE",
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


def _parse_files(
    contents: Iterable[tuple[ManifestEntry, bytes | None]], room: int, fields: FieldCounter
) -> tuple[dict[str, list[Any]], list[DocumentError]]:
    """Return the parsed files by key as far as there is room, and the errors of the others."""
    files: dict[str, list[Any]] = {}
    errors: list[DocumentError] = []
    room_for_names, room_in_memory = MAX_FIELD_NAME_TEXT, MAX_PARSED_BYTES
    for entry, content in contents:
        try:
            if content is None or len(content) > MAX_FILE_BYTES:
                raise UnreadableMetadata(f"larger than {MAX_FILE_BYTES} bytes")
            if len(content) > room:
                detail = f"the document would be larger than {MAX_DOCUMENT_BYTES} bytes"
                raise UnreadableMetadata(detail)
            value, warnings = parse_metadata(content, room=room_in_memory)
            room_for_names -= measure_field_names(value, room_for_names)
            fields.add(document_key(entry.name), value, content)
        except UnreadableMetadata as error:
            errors.append({"file": entry.name, "reason": str(error)})
            continue
        room -= len(content)
        room_in_memory -= estimate_parsed_size(content)
        files.setdefault(document_key(entry.name), []).append(value)
        errors.extend({"file": entry.name, "reason": warning} for warning in warnings)
    return files, errors


def document_key(name: str) -> str:
    """Return a file's key in the document: dots as underscores, no number before `_json`."""
    return NUMBER_BEFORE_JSON.sub("", name.replace(".", "_"))


def build_shape_descriptor(files: Mapping[str, Sequence[Any]]) -> str:
    """Return the schemas that the files declare, each with its version, sorted."""
    found = {
        schema for values in files.values() for value in values for schema in _list_schemas(value)
    }
    whole = ",".join(sorted(found)).encode(errors="replace")
    return whole[:MAX_DESCRIPTOR_BYTES].decode(errors="ignore") or UNVERSIONED


def _list_schemas(value: Any) -> list[str]:
    """Return `name@version` of a file, or of each object of a list."""
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
    if not url and not version:
        return []
    named, inside = SCHEMA_NAME.search(url), SCHEMA_VERSION.search(url)
    name = named[0].removesuffix(".json") if named else ""
    return [f"{name}@{version or (inside[1] if inside else '')}".replace(",", "_")]


def _strip_text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def withhold_paths(document: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Return the document with an error for each of these paths, which are not searchable."""
    if not paths:
        return document
    reason = "another kind of value than in the documents of its shape"
    reported = [{"path": path, "reason": reason} for path in sorted(paths)]
    return {**document, "errors": [*document.get("errors", ()), *reported]}


def dump_document(document: Any) -> bytes:
    """Return a document as JSON, with exact integers."""
    return json_codec.encode(document)


def parse_document(data: bytes) -> dict[str, Any]:
    """Return the document of its JSON."""
    loaded: dict[str, Any] = json_codec.decode(data)
    return loaded


# Loading -----------------------------------------------------------------------------------


@contextmanager
def open_document(
    stores: Stores, replica: Replica, bundle_id: int, beat: Heartbeat
) -> Iterator[dict[str, Any]]:
    """Yield the document of a bundle's CREATE event; raise Unavailable without memory for it."""
    bundle = stores.catalog.run_query(lambda tx: bundles.get(tx, bundle_id))
    cached, entries, memory = _find_sources(stores, bundle)
    with stores.memory.reserve(memory):
        document = _parse_or_assemble(stores, replica, bundle, cached, entries, beat)
        try:
            yield document
        finally:
            # Callers still refer to it, and its memory must be free before its reservation is.
            document.clear()


def load_small_document(
    stores: Stores, replica: Replica, bundle: BundleVersion, beat: Heartbeat
) -> dict[str, Any] | None:
    """Return a document that needs no reservation of memory, None for a larger one."""
    cached, entries, memory = _find_sources(stores, bundle)
    if memory > json_codec.SMALL_BYTES:
        return None
    return _parse_or_assemble(stores, replica, bundle, cached, entries, beat)


def load_document_text(stores: Stores, replica: Replica, bundle_id: int, beat: Heartbeat) -> bytes:
    """Return the JSON of a bundle's document; parsing it would take many times its size."""
    bundle = stores.catalog.run_query(lambda tx: bundles.get(tx, bundle_id))
    cached, entries, memory = _find_sources(stores, bundle)
    if cached:
        return cached
    with stores.memory.reserve(memory):
        # Another thread may have assembled it while this one waited.
        cached = stores.documents.get(str(bundle.fqid))
        return cached or _assemble_from_bucket(stores, replica, bundle, entries, beat)[1]


def _find_sources(
    stores: Stores, bundle: BundleVersion
) -> tuple[bytes | None, Sequence[ManifestEntry], int]:
    """Return the cached JSON, else the bundle's entries, and the bytes of memory to reserve."""
    # By name: an id may be assigned again after a purge.
    cached = stores.documents.get(str(bundle.fqid))
    if cached:
        return cached, (), _estimate_memory([len(cached)])

    def read_page(start: int) -> list[ManifestEntry]:
        return stores.catalog.run_query(
            lambda tx: bundles.list_entries(
                tx, bundle.id, start=start, limit=ENTRY_PAGE, span=SEGMENT_ENTRIES
            )
        )

    starts = range(0, bundle.file_count, ENTRY_PAGE)
    entries = [entry for start in starts for entry in read_page(start)]
    sizes = (entry.size for entry in entries if is_metadata_file(entry))
    return None, entries, _estimate_memory(sizes)


def _estimate_memory(sizes: Iterable[int]) -> int:
    """Return the bytes that texts of these sizes and their parsed values take together."""
    text = sum(size for size in sizes if size <= MAX_DOCUMENT_BYTES)
    return min(text, MAX_DOCUMENT_BYTES) + min(text * MAX_PARSED_FACTOR, MAX_PARSED_BYTES)


def _parse_or_assemble(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    cached: bytes | None,
    entries: Sequence[ManifestEntry],
    beat: Heartbeat,
) -> dict[str, Any]:
    if cached:
        return parse_document(cached)
    return _assemble_from_bucket(stores, replica, bundle, entries, beat)[0]


def _assemble_from_bucket(
    stores: Stores,
    replica: Replica,
    bundle: BundleVersion,
    entries: Sequence[ManifestEntry],
    beat: Heartbeat,
) -> tuple[dict[str, Any], bytes]:
    """Assemble a document from the bucket, and cache and return its JSON, too."""
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
    """Yield each metadata file with its bytes, or with None if it is too large."""
    for entry in filter(is_metadata_file, entries):
        if entry.size > MAX_FILE_BYTES:
            yield entry, None
            continue
        beat(entry.size)
        sha256 = entry.checksums.sha256
        try:
            yield entry, failover.read_blob(stores, replica, sha256)
        except NotFoundError as error:
            raise NotFoundError(
                f"{replica} lacks {keys.blob_key(sha256)} of {entry.name}."
            ) from error
