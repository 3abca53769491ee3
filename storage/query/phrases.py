"""Whether the words of a phrase stand close enough to each other, by their positions."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence


def in_phrase(words: Sequence[str], slop: int, positions: Mapping[str, Sequence[int]]) -> bool:
    """Whether each word has a place of its own such that all are within `slop` of the phrase."""
    places = [positions.get(word, ()) for word in words]
    if not words or not all(places):
        return False
    if slop == 0:
        return _exactly(places)
    shifted = [[place - offset for place in found] for offset, found in enumerate(places)]
    starts = sorted({shift for shifts in shifted for shift in shifts})
    return any(_fits(words, shifted, start, slop) for start in starts)


def _exactly(places: Sequence[Sequence[int]]) -> bool:
    starts = set(places[0])
    for offset, found in enumerate(places[1:], 1):
        starts &= {place - offset for place in found}
    return bool(starts)


def _fits(words: Sequence[str], shifted: Sequence[Sequence[int]], start: int, slop: int) -> bool:
    """Whether all words find places whose shifts lie in `start .. start + slop`; words that are
    repeated must not share one, and are placed in order, each at the first place left."""
    taken: set[tuple[str, int]] = set()
    for offset, (word, shifts) in enumerate(zip(words, shifted, strict=True)):
        at = bisect_left(shifts, start)
        while at < len(shifts) and (word, shifts[at] + offset) in taken:
            at += 1
        if at == len(shifts) or shifts[at] > start + slop:
            return False
        taken.add((word, shifts[at] + offset))
    return True
