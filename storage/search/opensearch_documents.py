"""A document as OpenSearch holds it, and the mapping of that.

Each path of a document is a nested leaf: its name beside its words, whole strings, numbers or
booleans. So there are as many fields as this module names, whatever documents have; no two of them
can contradict each other, and "in one text" is what one leaf holds.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from storage.protocols import IndexedDocument
from storage.query.analysis import KEYWORD, VALUE_GAP, Flat, flatten
from storage.query.words import words
from storage.search.opensearch_combined import Dsl
from storage.search.verbatim import count_fields, packed, unpacked

LAYOUT = "leaves1"
"""Names the mapping; part of a generation's name, as the analysis is."""

MAX_NAME_BYTES = 8191
# Longer names end in a hash. The engine takes no term of more than 32,766 bytes.
KEPT_OF_A_LONG_NAME = 1000
# The engine's parser takes no string of more than 50 million characters.
RAW_PIECE = 8 * 1024 * 1024
# A query has 16 KiB; a letter of either case takes four characters.
MAX_PATTERN_CHARACTERS = 4 * 16 * 1024
# Whoever writes waits for the next refresh, which costs nothing where nothing was written.
REFRESH_MS = 30
# A word has at most 255 characters, of which each may be two of Java's.
MAX_TOKEN = 1024

_KEYWORD: Dsl = {"type": "keyword", "doc_values": False, "norms": False}
_SORTED: Dsl = {"type": "keyword"}
_NUMBER: Dsl = {"type": "double"}
_WORDS: Dsl = {
    "type": "text",
    "analyzer": "words",
    "norms": False,
    "position_increment_gap": VALUE_GAP,
}

MAPPING: Dsl = {
    "dynamic": "strict",
    "_source": {"excludes": ["leaf", "exists"]},
    "properties": {
        "uuid": _SORTED,
        "version": _SORTED,
        "shape": _KEYWORD,
        "live": {"type": "boolean"},
        "exists": _KEYWORD,
        "raw": {"type": "object", "enabled": False},
        "leaf": {
            "type": "nested",
            "properties": {
                "name": _KEYWORD,
                "keyword": _KEYWORD,
                "words": _WORDS,
                "whole": _KEYWORD,
                "number": _NUMBER,
                "boolean": _NUMBER,
            },
        },
    },
}
"""`name` is a leaf's path and `keyword` the name of its whole strings; `exists` holds every name by
which something of the document can be found to exist."""


def settings(*, field_limit: int, shards: int) -> Dsl:
    """What every generation is created with."""
    tokenizer = {"type": "whitespace", "max_token_length": MAX_TOKEN}
    return {
        "number_of_shards": shards,
        "auto_expand_replicas": "0-1",
        "refresh_interval": f"{REFRESH_MS}ms",
        "mapping.nested_objects.limit": field_limit,
        "max_regex_length": MAX_PATTERN_CHARACTERS,
        # Words are found by us, and come with a blank between them.
        "analysis": {
            "tokenizer": {"blanks": tokenizer},
            "analyzer": {"words": {"type": "custom", "tokenizer": "blanks"}},
        },
    }


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document as the engine takes it."""

    uuid: str
    version: str
    change: int
    source: bytes

    @property
    def id(self) -> str:
        """Its id in the engine."""
        return f"{self.uuid}.{self.version}"


def prepare(document: IndexedDocument, *, field_limit: int) -> Prepared:
    """Flatten, analyse, compress. Raises RefusedError."""
    content = document.document
    source: Dsl = {
        "uuid": document.uuid,
        "version": document.version,
        "shape": document.shape,
        "live": content is not None,
    }
    if content is not None:
        source["raw"] = list(_pieces(base64.b64encode(packed(content)).decode()))
        flat = flatten(content)
        count_fields(sum(1 for _ in flat.paths()), field_limit)
        source["leaf"] = list(_leaves(flat))
        source["exists"] = sorted(map(index_name, _names(flat)))
    return Prepared(document.uuid, document.version, document.change, orjson.dumps(source))


def stub(held: Mapping[str, Any]) -> Prepared:
    """The same stub as one that was found."""
    uuid, version = held["sort"]
    document = IndexedDocument(uuid, version, "", held["_version"], None)
    return prepare(document, field_limit=0)


def raw(source: Mapping[str, Any]) -> bytes:
    """The verbatim document out of what the engine held."""
    return unpacked(base64.b64decode("".join(source["raw"])))


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), RAW_PIECE):
        yield text[start : start + RAW_PIECE]


def _leaves(flat: Flat) -> Iterator[Dsl]:
    for path, texts in flat.strings.items():
        yield {
            "name": index_name(path),
            "keyword": index_name(path + KEYWORD),
            "words": [" ".join(words(text)) for text in texts],
            "whole": sorted(set(flat.wholes(path))),
        }
    for path, numbers in flat.numbers.items():
        yield {"name": index_name(path), "number": sorted({unsigned(each) for each in numbers})}
    for path, booleans in flat.booleans.items():
        yield {"name": index_name(path), "boolean": sorted({float(each) for each in booleans})}


def unsigned(number: float) -> float:
    """The number, and zero without its sign: to the engine -0.0 is less than 0.0."""
    return number + 0.0


def _names(flat: Flat) -> set[str]:
    """All names by which a document's leaves can be found to exist."""
    wholes = {path + KEYWORD for path in flat.strings if flat.wholes(path)}
    return {*flat.paths(), *flat.parents(), *wholes}


def index_name(name: str) -> str:
    """A path as a term of the index."""
    if len(name) * 4 <= MAX_NAME_BYTES or len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return name[:KEPT_OF_A_LONG_NAME] + sha256(name.encode()).hexdigest()
