"""Stores that crash at a chosen call to a bucket or the catalog."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from storage import keys
from storage.catalog import Catalog, Tx
from storage.protocols import BlobStore
from storage.stores import Stores

BUCKET_VERBS = ("head", "read", "put", "upload", "copy", "list", "delete")
UPLOAD_VERBS = ("part", "parts", "complete", "abort")
MAY_CHANGE_BLOBS = {
    "pipelines.garbage_collection",
    "pipelines.integrity",
    "pipelines.copies",
}


class Crashed(BaseException):
    """As good as kill -9: no handler of the process gets anything done any more."""


class Fuse:
    """Counts calls, and crashes the process at the n-th (None: never); it stays dead then."""

    def __init__(self, calls: int | None) -> None:
        self._left = calls
        self._dead = False

    def burn(self) -> None:
        if self._left == 0:
            self._dead = True
        if self._dead:
            raise Crashed
        if self._left is not None:
            self._left -= 1


class CrashingCalls:
    """Crashes before or after some methods of an object."""

    def __init__(self, inner: Any, fuse: Fuse, verbs: tuple[str, ...]) -> None:
        self._inner, self._fuse, self._verbs = inner, fuse, verbs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._verbs:
            return found

        def call(*given: Any, **more: Any) -> Any:
            self._expect_right(name, given, more)
            self._fuse.burn()
            answer = found(*map(_unwrapped, given), **more)
            self._fuse.burn()
            return self._wrapped(name, answer)

        return call

    def _expect_right(self, name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Nothing to check here."""

    def _wrapped(self, _name: str, answer: Any) -> Any:
        return answer


class CrashingBucket(CrashingCalls):
    """A bucket, which also refuses that a blob is deleted or replaced by anybody but garbage
    collection and repair."""

    def __init__(self, inner: BlobStore, fuse: Fuse) -> None:
        super().__init__(inner, fuse, BUCKET_VERBS)

    def _expect_right(self, name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
        key = given[0] if given else ""
        changes = name == "delete" or more.get("replace")
        if changes and isinstance(key, str) and key.startswith(keys.BLOBS):
            assert _callers() & MAY_CHANGE_BLOBS, f"{name} of {key}"

    def _wrapped(self, name: str, answer: Any) -> Any:
        return CrashingCalls(answer, self._fuse, UPLOAD_VERBS) if name == "upload" else answer


def _unwrapped(value: Any) -> Any:
    return value._inner if isinstance(value, CrashingBucket) else value


def _callers() -> set[str]:
    found, frame = set(), sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        found.add(frame.f_globals.get("__name__", ""))
    return found


class CrashingCatalog:
    """A catalog; writers crash before they begin, before the commit, or after it."""

    def __init__(self, inner: Catalog, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def read(self) -> Iterator[Tx]:
        self._fuse.burn()
        with self._inner.read() as tx:
            yield tx

    def run_query(self, question: Callable[[Tx], Any]) -> Any:
        self._fuse.burn()
        return self._inner.run_query(question)

    @contextmanager
    def write(self, **how: Any) -> Iterator[Tx]:
        self._fuse.burn()
        with self._inner.write(**how) as tx:
            yield tx
            self._fuse.burn()
        self._fuse.burn()


def crashing(stores: Stores, calls: int | None) -> Stores:
    """The stores of a process that crashes at the n-th call."""
    fuse = Fuse(calls)
    replicas: Any = {name: CrashingBucket(blobs, fuse) for name, blobs in stores.replicas.items()}
    areas: Any = CrashingBucket(stores.areas, fuse)
    catalog: Any = CrashingCatalog(stores.catalog, fuse)
    return replace(stores, replicas=replicas, areas=areas, catalog=catalog)
