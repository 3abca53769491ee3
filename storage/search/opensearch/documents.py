"""Documents as OpenSearch stores them, and their mapping.

Each path of a document is a nested leaf: its name beside its words, whole strings, numbers or
booleans. So the index has a fixed set of fields, no two documents can conflict, and "in one text"
means in one leaf.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from storage.protocols import IndexedDocument
from storage.search.documents import (
    KEYWORD_SUFFIX,
    VALUE_GAP,
    FlatDocument,
    check_field_count,
    compress_document,
    decompress_within,
    flatten_document,
)
from storage.search.opensearch.client import Dsl
from storage.search.words import split_words

MAPPING_VERSION = "leaves2"
"""Version of the mapping; part of a generation's name."""
SEARCHABLE_MAPPINGS = (MAPPING_VERSION, "leaves1")
"""Mappings that take these documents and answer searches; only the first counts facets."""

MAX_NAME_BYTES = 8191
# Longer names end in a hash: the engine limits terms to 32,766 bytes.
LONG_NAME_PREFIX = 1000
# The engine's parser limits strings to 50 million characters.
MAX_RAW_PIECE = 8 * 1024 * 1024
# A query has 16 KiB; a letter in both cases takes four characters.
MAX_PATTERN_CHARACTERS = 4 * 16 * 1024
# Writers wait for the next refresh, which is free without writes.
REFRESH_MS = 30
# A word has at most 255 characters, of which each may be two of Java's.
MAX_TOKEN_LENGTH = 1024

_KEYWORD_TYPE: Dsl = {"type": "keyword", "doc_values": False, "norms": False}
_SORTED_TYPE: Dsl = {"type": "keyword"}
_COUNTED_TYPE: Dsl = {"type": "keyword", "norms": False}
_NUMBER_TYPE: Dsl = {"type": "double"}
_WORDS_TYPE: Dsl = {
    "type": "text",
    "analyzer": "words",
    "norms": False,
    "position_increment_gap": VALUE_GAP,
}

MAPPING: Dsl = {
    "dynamic": "strict",
    "_source": {"excludes": ["leaf", "exists"]},
    "properties": {
        "uuid": _SORTED_TYPE,
        "version": _SORTED_TYPE,
        "shape": _KEYWORD_TYPE,
        "live": {"type": "boolean"},
        "exists": _KEYWORD_TYPE,
        "raw": {"type": "object", "enabled": False},
        "leaf": {
            "type": "nested",
            "properties": {
                "name": _COUNTED_TYPE,
                "keyword": _KEYWORD_TYPE,
                "words": _WORDS_TYPE,
                "whole": _COUNTED_TYPE,
                "number": _NUMBER_TYPE,
                "boolean": _NUMBER_TYPE,
            },
        },
    },
}
"""`name` is a leaf's path and `keyword` the name of its whole strings; `exists` holds every name by
which something of the document can be found to exist."""


def make_index_settings(*, field_limit: int, shards: int) -> Dsl:
    """Return the settings of every new generation."""
    tokenizer = {"type": "whitespace", "max_token_length": MAX_TOKEN_LENGTH}
    return {
        "number_of_shards": shards,
        "auto_expand_replicas": "0-1",
        "refresh_interval": f"{REFRESH_MS}ms",
        "mapping.nested_objects.limit": field_limit,
        "max_regex_length": MAX_PATTERN_CHARACTERS,
        # Words are analysed here and joined by blanks.
        "analysis": {
            "tokenizer": {"blanks": tokenizer},
            "analyzer": {"words": {"type": "custom", "tokenizer": "blanks"}},
        },
    }


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document in the engine's format."""

    uuid: str
    version: str
    change: int
    source: bytes

    @property
    def id(self) -> str:
        """Return its id in the engine."""
        return f"{self.uuid}.{self.version}"


def prepare_document(document: IndexedDocument, *, field_limit: int) -> PreparedDocument:
    """Flatten, analyse and compress. Raises DocumentRefusedError."""
    content = document.document
    source: Dsl = {
        "uuid": document.uuid,
        "version": document.version,
        "shape": document.shape,
        "live": content is not None,
    }
    if content is not None:
        raw = base64.b64encode(compress_document(content)).decode()
        source["raw"] = [raw[at : at + MAX_RAW_PIECE] for at in range(0, len(raw), MAX_RAW_PIECE)]
        flat = flatten_document(content)
        check_field_count(sum(1 for _ in flat.paths()), field_limit)
        source["leaf"] = list(_make_leaves(flat))
        source["exists"] = sorted(map(index_name, flat.existing_names))
    return PreparedDocument(document.uuid, document.version, document.change, orjson.dumps(source))


def prepare_stub(hit: Mapping[str, Any]) -> PreparedDocument:
    """Return the stub of a search hit."""
    uuid, version = hit["sort"]
    document = IndexedDocument(uuid, version, "", hit["_version"], None)
    return prepare_document(document, field_limit=0)


def decode_raw_document(source: Mapping[str, Any], limit: int | None = None) -> bytes | None:
    """Return the verbatim document from the engine's source; None beyond `limit` bytes."""
    return decompress_within(base64.b64decode("".join(source["raw"])), limit)


def _make_leaves(flat: FlatDocument) -> Iterator[Dsl]:
    for path, texts in flat.strings.items():
        yield {
            "name": index_name(path),
            "keyword": index_name(path + KEYWORD_SUFFIX),
            "words": [" ".join(split_words(text)) for text in texts],
            "whole": sorted(set(flat.keyword_values(path))),
        }
    for path, numbers in flat.numbers.items():
        yield {
            "name": index_name(path),
            "number": sorted({drop_zero_sign(each) for each in numbers}),
        }
    for path, booleans in flat.booleans.items():
        yield {"name": index_name(path), "boolean": sorted({float(each) for each in booleans})}


def drop_zero_sign(value: Any) -> Any:
    """Return the value, with 0.0 for -0.0, which the engine orders below 0.0."""
    return 0.0 if value == 0 else value


def index_name(name: str) -> str:
    """Return a path as a term of the index."""
    if len(name) * 4 <= MAX_NAME_BYTES or len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return name[:LONG_NAME_PREFIX] + sha256(name.encode()).hexdigest()
