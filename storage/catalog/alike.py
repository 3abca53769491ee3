"""Finding runs of rows again that an earlier version has, so that a later one shares them."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

Row = TypeVar("Row", bound=Hashable)
Kept = TypeVar("Kept")


def shared(
    rows: Sequence[Row], before: Sequence[tuple[Kept, Sequence[Row]]], size: int
) -> list[Kept | Sequence[Row]]:
    """The rows in runs: those of the earlier version wherever one stands here whole, and new ones
    of at most `size` rows between them."""
    starts = {run[0]: (kept, list(run)) for kept, run in before if run}
    runs: list[Kept | Sequence[Row]] = []
    begun, at = 0, 0
    while at < len(rows):
        kept, run = starts.get(rows[at], (None, []))
        if kept is not None and list(rows[at : at + len(run)]) == run:
            runs += [*_cut(rows, begun, at, size), kept]
            begun = at = at + len(run)
        else:
            at += 1
    return [*runs, *_cut(rows, begun, at, size)]


def _cut(rows: Sequence[Row], begun: int, end: int, size: int) -> list[Sequence[Row]]:
    return [rows[start : min(start + size, end)] for start in range(begun, end, size)]
