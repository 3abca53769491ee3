"""The feed of a replica's events: windows of its journals, what is new, one event's document.

Only numbered events are in it, by number: what a reader has seen is one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines import loading
from pipelines.formats import us_of, version_at
from storage import keys
from storage.catalog import Tx, bundles, events, feeds, journals
from storage.catalog.feeds import Numbered
from storage.catalog.journals import Journal
from storage.errors import NotFound
from storage.model import FQID, Replica
from storage.stores import Stores


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time: `from_date` is in it, `to_date` is not; None is without bound."""

    from_date: str | None
    to_date: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk through a window stands: from this number on, and before that one."""

    first: int
    until: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A journal, and those of its events that are in the window, one at least."""

    journal: Journal
    events: Sequence[Numbered]


def numbers(tx: Tx, replica: Replica, window: Window) -> Place:
    """The numbers that a window has now."""
    end = feeds.newest(tx, replica) + 1
    first = _number(tx, replica, window.from_date, 1, end)
    return Place(first, max(first, _number(tx, replica, window.to_date, end, end)))


def _number(tx: Tx, replica: Replica, date: str | None, default: int, end: int) -> int:
    if date is None:
        return default
    found = feeds.first_from(tx, replica, us_of(date))
    return end if found is None else found


def streams(
    stores: Stores, replica: Replica, window: Window, place: Place | None, limit: int
) -> tuple[list[Stream], Place | None]:
    """The next few journals of a window, and where the walk goes on; None at its end.

    A walk sees what was journalled when it began: by numbers, so that it does not matter to it when
    journals are merged, or written anew, meanwhile.
    """
    with stores.catalog.read() as tx:
        if place is None:
            whole = numbers(tx, replica, window)
            place = Place(whole.first, min(whole.until, journals.covered(tx, replica) + 1))
        if place.first >= place.until:
            return [], None
        found = journals.page(tx, replica, place.first, place.until, limit=limit + 1)
        page, more = found[:limit], len(found) > limit
        if not page:
            return [], None
        until = min(place.until, page[-1].last + 1)
        listed = feeds.span(tx, replica, place.first, until, limit=until - place.first)
    return _streams(page, listed), Place(page[-1].last + 1, place.until) if more else None


def _streams(page: Sequence[Journal], listed: Sequence[Numbered]) -> list[Stream]:
    return [
        Stream(one, [each for each in listed if one.first <= each.seq <= one.last]) for one in page
    ]


def stream_url(stores: Stores, one: Journal, *, expires_s: int) -> str:
    """Where anybody may GET the journal's bytes, or a range of them, for a while."""
    return stores.replicas[one.replica].sign(
        keys.journal(one.key), expires_s=expires_s, content_type="application/x-ndjson"
    )


def newest(stores: Stores, replica: Replica) -> int:
    """The number of the latest event."""
    with stores.catalog.read() as tx:
        return feeds.newest(tx, replica)


def since(stores: Stores, replica: Replica, after: int, limit: int) -> list[Numbered]:
    """The events that follow that number."""
    with stores.catalog.read() as tx:
        return feeds.span(tx, replica, after + 1, limit=limit)


def shown(numbered: Numbered) -> dict[str, Any]:
    """An event as feeds tell it."""
    event = numbered.event
    return {
        "event_id": event.id,
        "event_type": event.type,
        "timestamp": version_at(numbered.seq_us),
        "replica": event.replica,
        "bundle_uuid": event.fqid.uuid,
        "bundle_version": event.fqid.version,
    }


def document(stores: Stores, replica: Replica, fqid: FQID) -> dict[str, Any]:
    """The metadata document of a version that was ever seen in a replica, until it is purged."""
    with stores.catalog.read() as tx:
        created = events.get(tx, events.event_id("CREATE", replica, fqid))
        row = bundles.by_fqid(tx, fqid)
        gone = feeds.purged(tx, [fqid])
    if created is None or row is None or gone:
        raise NotFound(f"There is no event of {fqid} in {replica}.")
    return loading.document(stores, replica, row.bundle.id, lambda _moved: None)
