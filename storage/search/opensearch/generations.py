"""Index generations behind aliases, and bulk writes into them.

Each generation is an index; aliases name them and change atomically. `<base>` is searched,
`<base>-building` is filled by a rebuild. Each index has a third alias for writing: a write that
requires an alias never creates an index.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from storage.errors import Invalid, NotFoundError, Unavailable
from storage.protocols import IndexRefusal
from storage.search.documents import make_version_error
from storage.search.opensearch.client import (
    RETRY_AFTER_S,
    Dsl,
    EngineFullError,
    OpenSearchEngine,
    OpenSearchReply,
    RequestTooLargeError,
    find_reason,
)
from storage.search.opensearch.documents import (
    MAPPING,
    MAPPING_VERSION,
    SEARCHABLE_MAPPINGS,
    PreparedDocument,
)
from storage.search.words import ANALYSIS

BUILDING_SUFFIX = "-building"
WRITING_SUFFIX = "-writing"
ALREADY_EXISTS_ERROR = "resource_already_exists_exception"
# Retries while other processes create or drop generations.
MAX_RACES = 10


@dataclass(frozen=True, slots=True)
class IndexGenerations:
    """`current` is searched, `building` only written; either may be absent."""

    current: str | None = None
    building: str | None = None

    def names(self) -> list[str]:
        """Return the existing generations."""
        return [name for name in (self.current, self.building) if name is not None]


class GenerationIndices:
    """The generations of one replica's index."""

    def __init__(self, engine: OpenSearchEngine, base: str, settings: Dsl) -> None:
        self._engine, self._base, self._settings = engine, base, settings
        self._seen = IndexGenerations()

    def is_ours(self, name: str) -> bool:
        """Return whether this release can search and write a generation."""
        kind = name.rpartition("-")[0]
        return any(kind == f"{self._base}-{ANALYSIS}-{each}" for each in SEARCHABLE_MAPPINGS)

    def is_current_format(self, name: str) -> bool:
        """Return whether a generation has this release's analysis and mapping."""
        return name.rpartition("-")[0] == f"{self._base}-{ANALYSIS}-{MAPPING_VERSION}"

    def last_read(self) -> IndexGenerations:
        """Return the cached generations; a dropped one answers NotFoundError."""
        return self._seen if self._seen.current is not None else self.read()

    def read(self) -> IndexGenerations:
        """Read the generations."""
        path = f"/_alias/{self._base},{self._base}{BUILDING_SUFFIX}"
        answer = self._engine.request("GET", path, ignore=(404,))
        self._seen = IndexGenerations(
            self._find_by_alias(answer, self._base),
            self._find_by_alias(answer, self._base + BUILDING_SUFFIX),
        )
        return self._seen

    def index_to_search(self) -> str | None:
        """Return the index to search; None if there is none yet."""
        current = self.last_read().current
        if current is not None and not self.is_ours(current):
            # Another process may have finished the rebuild since.
            current = self.read().current
        if current is not None and not self.is_ours(current):
            raise make_version_error()
        return current

    def writable_names(self, generations: IndexGenerations) -> list[str]:
        """Return the generations to write; Unavailable if this release can write none."""
        there = generations.names()
        ours = [name for name in there if self.is_ours(name)]
        if there and not ours:
            raise make_version_error()
        return ours

    def ensure_current(self) -> IndexGenerations:
        """Return the generations, creating the first one."""
        for _ in range(MAX_RACES):
            found = self.read()
            if found.current is not None:
                return found
            self._create(_generation_number(found.building) + 1, self._base)
        raise Unavailable(f"the alias {self._base} is missing, and its index cannot be made")

    def begin(self) -> str:
        """Begin a generation, or return the one being built."""
        for _ in range(MAX_RACES):
            found = self.ensure_current()
            if found.building is not None and self.is_current_format(found.building):
                return found.building
            if found.building is not None:
                self.drop(found.building)
            self._create(
                max(map(_generation_number, found.names())) + 1, self._base + BUILDING_SUFFIX
            )
        raise Unavailable("no generation of the search index can be made")

    def finish(self, found: IndexGenerations) -> None:
        """Make the built generation current and drop the old one, atomically."""
        name, alias = found.building, self._base
        actions: list[Dsl] = [
            {"add": {"index": name, "alias": alias}},
            {"remove": {"index": name, "alias": alias + BUILDING_SUFFIX}},
        ]
        if found.current is not None:
            actions.append({"remove_index": {"index": found.current}})
        self._engine.request("POST", "/_aliases", {"actions": actions})
        self.read()

    def drop(self, name: str) -> None:
        """Delete a generation; succeed if it is gone."""
        self._engine.request("DELETE", f"/{name}", ignore=(404,))

    def _create(self, number: int, alias: str) -> None:
        """Create an index with its aliases; succeed if another process did."""
        name = f"{self._base}-{ANALYSIS}-{MAPPING_VERSION}-{number}"
        body: Dsl = {
            "settings": {"index": self._settings},
            "mappings": MAPPING,
            "aliases": {alias: {}, name + WRITING_SUFFIX: {}},
        }
        try:
            self._engine.request("PUT", f"/{name}", body)
        except Invalid as error:
            if ALREADY_EXISTS_ERROR not in error.detail:
                raise

    def _find_by_alias(self, answer: OpenSearchReply, alias: str) -> str | None:
        """Return the index of an alias; the newer one if a lost race left two."""
        # The response may also hold an error.
        entries = {name: entry for name, entry in answer.items() if isinstance(entry, dict)}
        names = [name for name, entry in entries.items() if alias in (entry.get("aliases") or ())]
        return max(names, key=_generation_number, default=None)


def _generation_number(name: str | None) -> int:
    digits = (name or "").rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


MAX_BULK_BYTES = 8 * 1024 * 1024
MAX_BULK_DOCUMENTS = 500
# 0.1 + 0.2 + 0.4 + … s: about 6 s in all, then the queue tries again later.
BACKOFF_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)

STATUS_FULL, STATUS_NOT_FOUND, STATUS_CONFLICT = 429, 404, 409
BULK_TIMEOUT_S = 60.0


def put_documents(
    engine: OpenSearchEngine,
    generation: str,
    documents: Sequence[PreparedDocument],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[IndexRefusal]:
    """Store newer documents; return once they are searchable.

    NotFoundError if the generation is gone, Unavailable if the engine stays full.
    """
    return [
        refusal
        for chunk in split_chunks(documents)
        for refusal in _put_with_backoff(engine, generation, chunk, sleep)
    ]


def _put_with_backoff(
    engine: OpenSearchEngine,
    generation: str,
    documents: list[PreparedDocument],
    sleep: Callable[[float], None],
) -> list[IndexRefusal]:
    """Store documents, with backoff for those that the engine had no room for."""
    refused: list[IndexRefusal] = []
    waiting = _post_bulk(engine, generation, documents, refused)
    for wait_s in BACKOFF_S:
        if not waiting:
            return refused
        sleep(wait_s * random.uniform(0.5, 1.0))
        waiting = _post_bulk(engine, generation, waiting, refused)
    if waiting:
        message = "The search engine is full: try again later."
        raise Unavailable(message, retry_after_s=RETRY_AFTER_S)
    return refused


def split_chunks(documents: Sequence[PreparedDocument]) -> Iterator[list[PreparedDocument]]:
    """Split documents into chunks of bounded size, in order."""
    chunk: list[PreparedDocument] = []
    size = 0
    for document in documents:
        if chunk and (
            size + len(document.source) > MAX_BULK_BYTES or len(chunk) >= MAX_BULK_DOCUMENTS
        ):
            yield chunk
            chunk, size = [], 0
        chunk.append(document)
        size += len(document.source)
    if chunk:
        yield chunk


def _post_bulk(
    engine: OpenSearchEngine,
    generation: str,
    documents: list[PreparedDocument],
    refused: list[IndexRefusal],
) -> list[PreparedDocument]:
    """Store documents and add to `refused`; return those that the engine has no room for."""
    try:
        answer = engine.request(
            "POST",
            f"/{generation}{WRITING_SUFFIX}/_bulk",
            b"".join(map(_bulk_lines, documents)),
            timeout_s=BULK_TIMEOUT_S,
            require_alias="true",
            # Concurrent writers share one refresh; forcing one each would queue.
            refresh="wait_for",
            filter_path="items.*.status,items.*.error",
        )
    except EngineFullError:
        return documents
    except RequestTooLargeError:
        if len(documents) == 1:
            refused.append(_make_refusal(documents[0], "is larger than the engine takes"))
            return []
        # One at a time, to refuse only what is too large by itself.
        singly = [_post_bulk(engine, generation, [each], refused) for each in documents]
        return [document for waiting in singly for document in waiting]
    items = answer.get("items", ())
    if len(items) != len(documents):
        raise Unavailable("The search engine sent an incomplete bulk response.")
    return [
        document
        for document, item in zip(documents, items, strict=True)
        if _has_no_room(document, item["index"], refused)
    ]


def _bulk_lines(document: PreparedDocument) -> bytes:
    action = {"_id": document.id, "version": document.change, "version_type": "external"}
    return orjson.dumps({"index": action}) + b"\n" + document.source + b"\n"


def _has_no_room(
    document: PreparedDocument, item: Mapping[str, Any], refused: list[IndexRefusal]
) -> bool:
    """Return whether to send the document again; a newer stored version is success."""
    status = item["status"]
    if status == STATUS_NOT_FOUND:
        raise NotFoundError(find_reason(item))
    if status == 400:
        refused.append(_make_refusal(document, find_reason(item)))
    elif status >= 300 and status not in (STATUS_CONFLICT, STATUS_FULL):
        raise Unavailable(
            f"The search engine did not store a document: {find_reason(item)}",
            retry_after_s=RETRY_AFTER_S,
        )
    return bool(status == STATUS_FULL)


def _make_refusal(document: PreparedDocument, message: str) -> IndexRefusal:
    return IndexRefusal(document.uuid, document.version, message)
