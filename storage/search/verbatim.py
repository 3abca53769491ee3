"""A document as the JSON that is given back: exact, and small while it lies in an index."""

import zlib
from collections.abc import Mapping
from typing import Any

from storage import json_codec

COMPRESSION_LEVEL = 3


class RefusedError(Exception):
    """A document that cannot be indexed; its message is the reason."""


def packed(document: Mapping[str, Any]) -> bytes:
    """The document as compressed JSON; RefusedError for what is none."""
    return zlib.compress(encoded(document), COMPRESSION_LEVEL)


def unpacked(data: bytes) -> bytes:
    """The JSON again."""
    return zlib.decompress(data)


def encoded(document: Mapping[str, Any]) -> bytes:
    """The document as JSON, its integers exact whatever their size."""
    try:
        return json_codec.encode(document)
    except ValueError as error:
        raise RefusedError(f"is not proper JSON: {error}") from error


def count_fields(found: int, most: int) -> None:
    """RefusedError for a document of too many fields."""
    if found > most:
        raise RefusedError(f"has {found} fields, more than {most}")
