"""Finding runs of rows again that an earlier version has, so that a later one shares them."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

Row = TypeVar("Row", bound=Hashable)
Kept = TypeVar("Kept")


def shared(
    rows: Sequence[Row], before: Sequence[tuple[Kept, Sequence[Row]]], size: int
) -> list[Kept | Sequence[Row]]:
    """The rows in runs: those of the earlier version wherever one stands here whole, and new ones
    of at most `size` rows between them. Its last run, when there is room in it and something
    follows, is written anew, as a patch does: else there would be ever more runs of a row each."""
    last = list(before[-1][1]) if before else []
    starts = {run[0]: (kept, list(run)) for kept, run in before if run}
    runs: list[Kept | Sequence[Row]] = []
    begun, at = 0, 0
    while at < len(rows):
        kept, run = starts.get(rows[at], (None, []))
        ends = at + len(run)
        if (
            kept is not None
            and list(rows[at:ends]) == run
            and (ends == len(rows) or len(run) >= size or run != last)
        ):
            runs += [*_cut(rows, begun, at, size), kept]
            begun = at = ends
        else:
            at += 1
    return [*runs, *_cut(rows, begun, at, size)]


def _cut(rows: Sequence[Row], begun: int, end: int, size: int) -> list[Sequence[Row]]:
    return [rows[start : min(start + size, end)] for start in range(begun, end, size)]
