"""The real OpenSearch that STORE_TEST_OPENSEARCH names, with an index per test."""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import orjson
import pytest

from storage.search.opensearch.index import OpenSearchIndex, open_opensearch

OPENSEARCH = os.environ.get("STORE_TEST_OPENSEARCH", "").rstrip("/")

needed = pytest.mark.skipif(not OPENSEARCH, reason="STORE_TEST_OPENSEARCH names no server")


@contextmanager
def opensearch(prefix: str = "", **options: float) -> Iterator[OpenSearchIndex]:
    """An empty index, gone afterwards."""
    prefix = prefix or new_prefix()
    index = opened(prefix, **options)
    try:
        yield index
    finally:
        index.close()
        forget(prefix)


def new_prefix() -> str:
    return f"test{uuid4().hex[:12]}"


def opened(
    prefix: str, *, time_limit_s: float = 10.0, field_limit: float = 10_000
) -> OpenSearchIndex:
    """The index of one more process."""
    url = f"{OPENSEARCH}/{prefix}"
    return open_opensearch(url, "aws", time_limit_s=time_limit_s, field_limit=int(field_limit))


def forget(prefix: str) -> None:
    """Delete every index that begins so."""
    for name in indices(prefix):
        ask("DELETE", name)


def indices(prefix: str) -> list[str]:
    return sorted(ask("GET", f"{prefix}*/_settings"))


def ask(method: str, path: str) -> dict[str, object]:
    """The server itself, past our own code."""
    request = urllib.request.Request(f"{OPENSEARCH}/{path}", method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, object] = orjson.loads(answer.read())
    return found
