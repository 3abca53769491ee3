"""Counting what leaves the process: calls of blob stores, SQL statements."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import event

from storage.model import Replica
from storage.protocols import BlobStore
from storage.stores import Stores


class CountingBlobs:
    """A blob store that counts its calls by verb."""

    def __init__(self, blobs: BlobStore, calls: Counter[str]) -> None:
        self._blobs, self._calls = blobs, calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._blobs, name)


@contextmanager
def counting(stores: Stores) -> Iterator[tuple[Stores, Counter[str], list[str]]]:
    """The same stores; calls of their buckets by verb, and SQL statements as they are executed."""
    calls: Counter[str] = Counter()
    statements: list[str] = []
    replicas: Mapping[Replica, BlobStore] = {
        name: cast(BlobStore, CountingBlobs(blobs, calls))
        for name, blobs in stores.replicas.items()
    }

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    engine = stores.catalog.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield replace(stores, replicas=replicas), calls, statements
    finally:
        event.remove(engine, "before_cursor_execute", note)
