"""Waiting for workers inside a request: on a notice, in bounded number, never by polling.

A waiting request is subscribed before it reads, so that no notice falls between. While it waits it
costs a thread that sleeps, and others run in its place. The number of waiting requests is limited,
for one client to half of the whole by default; those beyond the limit are answered at once with
what is known, or, when nothing is, are told to come again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from werkzeug.http import parse_dict_header

from api.concurrency import suspended
from api.slots import Slots
from storage.errors import TooMany, Unavailable
from storage.protocols import Notices

T = TypeVar("T")

READ_GAP_S = 0.05
READ_GAP_CAP_S = 1.0
"""Least time between two looks of one request, doubled each time: many notices, few looks."""


@dataclass(frozen=True)
class Preference:
    """What the `Prefer` header (RFC 7240) says about waiting."""

    wait_s: float | None = None
    respond_async: bool = False


def preference(header: str | None) -> Preference:
    """The preferences we know; malformed and unknown ones are ignored, as the RFC asks."""
    given = parse_dict_header((header or "")[:1000].replace(";", ",").lower())
    wait = (given.get("wait") or "").strip()
    valid = wait.isascii() and wait.isdigit() and len(wait) <= 6
    return Preference(float(wait) if valid else None, "respond-async" in given)


def seconds(asked: Preference, *, default_s: float, cap_s: float) -> float:
    """How long this request may wait."""
    if asked.respond_async:
        return 0.0
    return min(default_s if asked.wait_s is None else asked.wait_s, cap_s)


@dataclass(frozen=True)
class Waiting:
    """The right to wait, shared by the threads of one process."""

    notices: Notices
    slots: Slots
    clock: Callable[[], float] = time.monotonic

    def until(
        self,
        read: Callable[[], T],
        done: Callable[[T], bool],
        *,
        client: str,
        topics: Sequence[str],
        within_s: float,
        repeated: bool = False,
    ) -> T:
        """What `read` says once `done`, or when the time is over, or at once when too many wait.

        Who asks again and again (`repeated`) would then do so without a pause: when there is
        nothing to tell it is TooMany or Unavailable, which say when to come again.
        """
        if within_s <= 0:
            return read()
        try:
            release = self.slots.take(client)
        except (TooMany, Unavailable):
            seen = read()
            if repeated and not done(seen):
                raise
            return seen
        try:
            with self.notices.listen(*topics) as listening:
                end = self.clock() + within_s
                return self._watch(read, done, listening.wait, end)
        finally:
            release()

    def _watch(
        self,
        read: Callable[[], T],
        done: Callable[[T], bool],
        wait: Callable[[float], bool],
        end: float,
    ) -> T:
        seen, gap, look_from = read(), READ_GAP_S, self.clock()
        while not done(seen) and (left := end - self.clock()) > 0:
            with suspended():
                wait(left)
                # Notices that come right after a look are taken together, for one more look.
                while (hold := min(look_from, end) - self.clock()) > 0:
                    wait(hold)
            seen = read()
            look_from, gap = self.clock() + gap, min(2 * gap, READ_GAP_CAP_S)
        return seen
