"""Comparing what is known with what is there: a merge of two sorted streams, told in batches."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from storage.catalog import Tx, now_us
from storage.model import Replica
from storage.stores import Stores

BATCH = 1_000
NAMED = 20
"""How many of the missing a comparison names."""

Item = TypeVar("Item")
Told = Callable[[list[str]], None] | None
"""What is done about a batch of names; None: nothing."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one comparison of a kind in a replica found."""

    kind: str
    replica: Replica
    seen: int
    missing: int
    strange: int
    named: tuple[str, ...] = ()
    """Some of what is missing."""


def differences(left: Iterable[str], right: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Merge two sorted listings: each key with -1 (left only), 1 (right only) or 0 (both)."""
    lefts, rights = iter(left), iter(right)
    mine, other = next(lefts, None), next(rights, None)
    while mine is not None or other is not None:
        if other is None or (mine is not None and mine < other):
            yield mine or "", -1
            mine = next(lefts, None)
        elif mine is None or other < mine:
            yield other, 1
            other = next(rights, None)
        else:
            yield mine, 0
            mine, other = next(lefts, None), next(rights, None)


class _Side:
    """Names on one side only: counted, some kept, all told a batch at a time."""

    def __init__(self, tell: Told) -> None:
        self.count, self.named = 0, list[str]()
        self._tell, self._batch = tell, list[str]()

    def add(self, name: str) -> None:
        self.count += 1
        if self.count <= NAMED:
            self.named.append(name)
        if self._tell:
            self._batch.append(name)
            if len(self._batch) == BATCH:
                self.flush()

    def flush(self) -> None:
        if self._tell and self._batch:
            self._tell(self._batch)
        self._batch = []


def swept(
    kind: str, replica: Replica, pairs: Iterable[tuple[str, int]], mend: Told, drop: Told = None
) -> Swept:
    """Count a comparison, and have what is missing mended, and what is too much looked at."""
    both, missing, strange = 0, _Side(mend), _Side(drop)
    for name, side in pairs:
        if side == 0:
            both += 1
        else:
            (missing if side < 0 else strange).add(name)
    missing.flush()
    strange.flush()
    return Swept(kind, replica, both, missing.count, strange.count, tuple(missing.named))


def paged(
    stores: Stores, page: Callable[[Tx, Item, int], list[Item]], first: Item, *, settled_us: int
) -> Iterator[Item]:
    """All that the catalog lists after `first`: a page at a time, no view held meanwhile. `page` is
    asked with where it begins and with the moment before which all is settled."""
    after = first
    while True:
        with stores.catalog.read() as tx:
            listed = page(tx, after, now_us(tx) - settled_us)
        yield from listed
        if len(listed) < BATCH:
            return
        after = listed[-1]
