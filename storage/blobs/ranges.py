"""What a cloud's answer to a ranged GET promises, held against what was asked for."""

import re
from typing import Final

_TOLD: Final = re.compile(r"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)")


def promised_end(told: str, start: int, end: int | None) -> int | None:
    """Where the bytes of an answer end by its `Content-Range`; None unless they are those from
    `start` to `end`, or to the object's own end where that comes first."""
    found = _TOLD.fullmatch(told)
    if found is None or int(found[1]) != start:
        return None
    last, size = int(found[2]) + 1, found[3]
    ends = [place for place in (end, None if size == "*" else int(size)) if place is not None]
    return last if last == min(ends, default=last) else None
