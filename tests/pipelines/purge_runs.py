"""Run a purge to its end, through crashes at a chosen write."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import text

from pipelines.flow import Step
from storage.catalog import Catalog, Tx, jobs, purges
from storage.errors import Unavailable
from storage.model import Job
from storage.protocols import BlobStore
from storage.stores import Stores
from workers.actors import STEP_FUNCTIONS

PURGING = (Step.MARK, Step.ERASE, Step.FORGET)


class Died(BaseException):
    """As good as kill -9."""


class Fuse:
    """Burns down by one with every write; raises at the end."""

    def __init__(self, length: int | None) -> None:
        self.left = length

    def burn(self) -> None:
        if self.left is None:
            return
        if self.left == 0:
            self.left = None
            raise Died
        self.left -= 1


class FragileCatalog:
    """Dies before or after a commit."""

    def __init__(self, inner: Catalog, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def read(self) -> Any:
        return self._inner.read()

    def run_query(self, question: Callable[[Tx], Any]) -> Any:
        return self._inner.run_query(question)

    @contextmanager
    def write(self) -> Iterator[Tx]:
        with self._inner.write() as tx:
            yield tx
            self._fuse.burn()
        self._fuse.burn()


class FragileBlobs:
    """Dies before or after an object is put or deleted."""

    def __init__(self, inner: BlobStore, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._inner, verb)
        if verb not in ("put", "delete"):
            return found

        def call(*given: Any, **more: Any) -> Any:
            self._fuse.burn()
            answer = found(*given, **more)
            self._fuse.burn()
            return answer

        return call


def fragile(stores: Stores, fuse: Fuse) -> Stores:
    """The stores of a process that dies when the fuse has burnt down."""
    replicas: Any = {name: FragileBlobs(blobs, fuse) for name, blobs in stores.replicas.items()}
    catalog: Any = FragileCatalog(stores.catalog, fuse)
    return replace(stores, catalog=catalog, replicas=replicas)


def finish(stores: Stores, drain: Callable[[], int]) -> None:
    """Do all that a purge asks for, and all else that is due."""
    drain()
    while _open(stores):
        run_purge(stores, None)
    with stores.catalog.read() as tx:
        assert purges.list_unfinished(tx, limit=9) == []


def run_purge(stores: Stores, dies_at: int | None) -> bool:
    """One turn of everything that is open; True when it died at this write of a purge's steps."""
    fuse = Fuse(dies_at)
    try:
        while rows := _open(stores):
            for row in rows:
                own = row.step in PURGING
                _step(fragile(stores, fuse) if own else stores, stores, row)
    except Died:
        return True
    return False


def _step(seen: Stores, stores: Stores, row: Job) -> None:
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        claim = jobs.claim(tx, row, token="p", lease_s=60, max_claims=99)
    assert claim is not None
    try:
        STEP_FUNCTIONS[Step(row.step)](seen, claim, lambda _n: None)
    except Unavailable:
        return  # Its time comes again.


def _open(stores: Stores) -> list[Job]:
    with stores.catalog.read() as tx:
        found = tx.execute(text("SELECT step, replica, ref FROM todo ORDER BY step, replica, ref"))
        return [Job(*row) for row in found]
