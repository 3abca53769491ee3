"""The feed of a replica's events: windows of its journals, what is new, one event's document.

Only numbered events are in it, by number: what a reader has seen is one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelines.depositing import replicas
from pipelines.finding import loading
from pipelines.formats import us_of, version_at
from pipelines.journalling import lines
from pipelines.keeping import placing
from storage import keys
from storage.catalog import Tx, bundles, events, feeds, journals, switches
from storage.catalog.feeds import Numbered
from storage.catalog.journals import Journal
from storage.errors import Invalid, NotFound, Unavailable
from storage.model import FQID, Replica
from storage.stores import Stores


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time: `from_date` is in it, `to_date` is not; None is without bound."""

    from_date: str | None
    to_date: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk through a window stands: from this number on, and before that one, as they are
    in one numbering."""

    numbering: str
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a reader of the feed is: the last number that it was told, in which numbering, and
    when that number was given."""

    numbering: str
    seq: int
    us: int


class Renumbered(Invalid):
    """The catalog was restored, or rebuilt, since the reader was told where it is: numbers do not
    say any more what it has seen. From `certain` on it misses nothing, and may meet events again
    that it knows."""

    code = "illegal_token"

    def __init__(self, certain: Seen | None = None) -> None:
        super().__init__(RESTORED)
        self.certain = certain


RESTORED = (
    "The catalog was restored or rebuilt since this was handed out, and what came last has other"
    " places now."
)


@dataclass(frozen=True, slots=True)
class Stream:
    """A journal, and those of its events that are in the window, one at least."""

    journal: Journal
    events: Sequence[Numbered]


def numbers(tx: Tx, replica: Replica, window: Window) -> Place:
    """The numbers that a window has now."""
    end = feeds.newest(tx, replica) + 1
    first = _number(tx, replica, window.from_date, 1, end)
    until = max(first, _number(tx, replica, window.to_date, end, end))
    return Place(feeds.numbering(tx), first, until)


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
    journals are merged, or written anew, meanwhile. Renumbered when it began in another numbering.
    """
    with stores.catalog.read() as tx:
        if place is None:
            whole = numbers(tx, replica, window)
            covered = journals.covered(tx, replica)
            place = replace(whole, until=min(whole.until, covered + 1))
        elif place.numbering != feeds.numbering(tx):
            raise Renumbered
        if place.first >= place.until:
            return [], None
        found = journals.page(tx, replica, place.first, place.until, limit=limit + 1)
        page, more = found[:limit], len(found) > limit
        if not page:
            return [], None
        until = min(place.until, page[-1].last + 1)
        listed = feeds.span(tx, replica, place.first, until, limit=until - place.first)
    further = replace(place, first=page[-1].last + 1)
    return _streams(page, listed), further if more else None


def _streams(page: Sequence[Journal], listed: Sequence[Numbered]) -> list[Stream]:
    return [
        Stream(one, [each for each in listed if one.first <= each.seq <= one.last]) for one in page
    ]


def stream_url(stores: Stores, bucket: Replica, one: Journal, *, expires_s: int) -> str:
    """Where anybody may GET the journal's bytes, or a range of them, for a while."""
    return stores.replicas[bucket].sign(
        keys.journal(one.key), expires_s=expires_s, content_type=lines.CONTENT_TYPE
    )


def serving(stores: Stores, one: Journal) -> Replica:
    """In which bucket readers find a journal: the replica's own, unless that is down and the other
    one has the copy already."""
    instead = replicas.instead_of(stores, one.replica)
    if instead is None:
        return one.replica
    try:
        there = placing.there(stores.replicas[instead], keys.journal_manifest(one.key))
    except Unavailable:
        return one.replica
    return instead if there else one.replica


def beginning(stores: Stores) -> Seen:
    """The place of a reader that has seen nothing."""
    with stores.catalog.read() as tx:
        return Seen(feeds.numbering(tx), 0, 0)


def latest(stores: Stores, replica: Replica) -> Seen:
    """The place of a reader that has seen all there is."""
    with stores.catalog.read() as tx:
        seq = feeds.newest(tx, replica)
        return Seen(feeds.numbering(tx), seq, feeds.time_of(tx, replica, seq))


def since(stores: Stores, replica: Replica, seen: Seen, limit: int) -> list[Numbered]:
    """The events that follow. Renumbered when it cannot be known which these are; Unavailable
    while it is not known yet."""
    with stores.catalog.read() as tx:
        found = feeds.span(tx, replica, seen.seq + 1, limit=limit)
        # A number that was never given here was given by a catalog that is gone.
        known = bool(found) or feeds.newest(tx, replica) >= seen.seq
        if known and feeds.numbering(tx) == seen.numbering:
            return found
        if switches.value(tx, switches.IN_DOUBT) is not None:
            raise Unavailable("The catalog is being restored: the feed goes on after that.")
        raise Renumbered(_certain(tx, replica, seen))


def _certain(tx: Tx, replica: Replica, seen: Seen) -> Seen:
    """Before whatever got its number when the reader's last event got its own, or later: what it
    has not seen is behind that, for times of numbers never go back, not by restoring either."""
    first = feeds.first_from(tx, replica, seen.us)
    before = feeds.newest(tx, replica) if first is None else first - 1
    return Seen(feeds.numbering(tx), before, feeds.time_of(tx, replica, before))


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


def document(stores: Stores, replica: Replica, fqid: FQID) -> bytes:
    """The JSON document of a version that was ever seen in a replica, until it is purged."""
    with stores.catalog.read() as tx:
        created = events.get(tx, events.event_id("CREATE", replica, fqid))
        row = bundles.by_fqid(tx, fqid)
        gone = feeds.purged(tx, [fqid])
    if created is None or row is None or gone:
        raise NotFound(f"There is no event of {fqid} in {replica}.")
    return loading.document_text(stores, replica, row.bundle.id, lambda _moved: None)
