"""Read the event feed, list journals by time window, and replay events to subscriptions.

Only numbered events are in it, by number: what a reader has seen is one number.

What happened to a bundle before it was purged is not told any more; its DELETE is, by what is left.

Deliveries of a replay are made like those of matching, with ids of their own: an event told again
is another event to all that keeps deliveries apart, made of the replay and the event.
"""

import uuid as uuids
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import orjson

from pipelines import documents, failover, idempotency, journal_format, matching, records
from pipelines.copies import Heartbeat
from pipelines.flow import Step, delivery_jobs
from pipelines.formats import version_from_us, version_to_us
from pipelines.idempotency import IdempotentRequest
from pipelines.queries.stored_queries import StoredQuerySet
from storage import keys
from storage.catalog import (
    Tx,
    bundles,
    deliveries,
    events,
    heads,
    jobs,
    journals,
    now_us,
    store_state,
    subscriptions,
)
from storage.catalog.deliveries import NewDelivery
from storage.catalog.events import Replay, SequencedEvent
from storage.catalog.journals import JournalObject
from storage.catalog.subscriptions import Subscription
from storage.errors import Conflict, Invalid, NotFound, Unavailable
from storage.model import FQID, BundleEvent, Job, JobClaim, Replica
from storage.stores import Stores


@dataclass(frozen=True, slots=True)
class EventWindow:
    """A span of time: `from_date` is in it, `to_date` is not; None is without bound."""

    from_date: str | None
    to_date: str | None


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """Where a walk through a window stands: from this number on, and before that one, as they are
    in one numbering."""

    sequence: str
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """How far a reader of the feed is: the last number that it was told, in which numbering, and
    when that number was given."""

    sequence: str
    seq: int
    us: int


class SequenceReset(Invalid):
    """The catalog was restored, or rebuilt, since the reader was told where it is: numbers do not
    say any more what it has seen. From `certain` on it misses nothing, and may meet events again
    that it knows."""

    code = "illegal_token"

    def __init__(self, certain: FeedPosition | None = None) -> None:
        super().__init__(SEQUENCE_RESET_DETAIL)
        self.safe_position = certain


SEQUENCE_RESET_DETAIL = (
    "The catalog was restored or rebuilt since this was handed out, and what came last has other"
    " places now."
)


@dataclass(frozen=True, slots=True)
class JournalExcerpt:
    """A journal, and those of its events that are in the window, one at least."""

    journal: JournalObject
    events: Sequence[SequencedEvent]


def resolve_window(tx: Tx, replica: Replica, window: EventWindow) -> JournalPosition:
    """The numbers that a window has now."""
    end = events.find_latest_sequence(tx, replica) + 1
    first = _find_number(tx, replica, window.from_date, 1, end)
    until = max(first, _find_number(tx, replica, window.to_date, end, end))
    return JournalPosition(events.read_sequence_name(tx), first, until)


def _find_number(tx: Tx, replica: Replica, date: str | None, default: int, end: int) -> int:
    if date is None:
        return default
    found = events.find_sequence_at(tx, replica, version_to_us(date))
    return end if found is None else found


def list_journal_excerpts(
    stores: Stores, replica: Replica, window: EventWindow, place: JournalPosition | None, limit: int
) -> tuple[list[JournalExcerpt], JournalPosition | None]:
    """The next few journals of a window, and where the walk goes on; None at its end.

    A walk sees what was journalled when it began: by numbers, so that it does not matter to it when
    journals are merged, or written anew, meanwhile. Renumbered when it began in another numbering.
    """
    with stores.catalog.read() as tx:
        if place is None:
            whole = resolve_window(tx, replica, window)
            covered = journals.find_last_sequence(tx, replica)
            place = replace(whole, until=min(whole.until, covered + 1))
        elif place.sequence != events.read_sequence_name(tx):
            raise SequenceReset
        if place.first >= place.until:
            return [], None
        found = journals.list_range(tx, replica, place.first, place.until, limit=limit + 1)
        page, more = found[:limit], len(found) > limit
        if not page:
            return [], None
        until = min(place.until, page[-1].last + 1)
        listed = events.list_range(tx, replica, place.first, until, limit=until - place.first)
    further = replace(place, first=page[-1].last + 1)
    return _build_excerpts(page, listed), further if more else None


def _build_excerpts(
    page: Sequence[JournalObject], listed: Sequence[SequencedEvent]
) -> list[JournalExcerpt]:
    return [
        JournalExcerpt(one, [each for each in listed if one.first <= each.seq <= one.last])
        for one in page
    ]


def sign_journal_url(stores: Stores, bucket: Replica, one: JournalObject, *, expires_s: int) -> str:
    """Where anybody may GET the journal's bytes, or a range of them, for a while."""
    return stores.replicas[bucket].sign(
        keys.journal_key(one.key), expires_s=expires_s, content_type=journal_format.CONTENT_TYPE
    )


def choose_bucket(stores: Stores, one: JournalObject) -> Replica:
    """In which bucket readers find a journal: the replica's own, unless that is down and the other
    one has the copy already."""
    instead = failover.find_standby(stores, one.replica)
    if instead is None:
        return one.replica
    try:
        there = records.has_object(stores.replicas[instead], keys.journal_manifest_key(one.key))
    except Unavailable:
        return one.replica
    return instead if there else one.replica


def first_position(stores: Stores) -> FeedPosition:
    """The place of a reader that has seen nothing."""
    with stores.catalog.read() as tx:
        return FeedPosition(events.read_sequence_name(tx), 0, 0)


def latest_position(stores: Stores, replica: Replica) -> FeedPosition:
    """The place of a reader that has seen all there is."""
    with stores.catalog.read() as tx:
        seq = events.find_latest_sequence(tx, replica)
        return FeedPosition(
            events.read_sequence_name(tx), seq, events.find_sequence_time(tx, replica, seq)
        )


def list_events_since(
    stores: Stores, replica: Replica, seen: FeedPosition, limit: int
) -> list[SequencedEvent]:
    """The events that follow. Renumbered when it cannot be known which these are; Unavailable
    while it is not known yet."""
    with stores.catalog.read() as tx:
        found = events.list_range(tx, replica, seen.seq + 1, limit=limit)
        # A number that was never given here was given by a catalog that is gone.
        known = bool(found) or events.find_latest_sequence(tx, replica) >= seen.seq
        if known and events.read_sequence_name(tx) == seen.sequence:
            return found
        if store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY) is not None:
            raise Unavailable("The catalog is being restored: the feed goes on after that.")
        raise SequenceReset(_find_safe_position(tx, replica, seen))


def _find_safe_position(tx: Tx, replica: Replica, seen: FeedPosition) -> FeedPosition:
    """Before whatever got its number when the reader's last event got its own, or later: what it
    has not seen is behind that, for times of numbers never go back, not by restoring either."""
    first = events.find_sequence_at(tx, replica, seen.us)
    before = events.find_latest_sequence(tx, replica) if first is None else first - 1
    return FeedPosition(
        events.read_sequence_name(tx), before, events.find_sequence_time(tx, replica, before)
    )


def format_event(numbered: SequencedEvent) -> dict[str, Any]:
    """An event as feeds tell it."""
    event = numbered.event
    return {
        "event_id": event.id,
        "event_type": event.type,
        "timestamp": version_from_us(numbered.seq_us),
        "replica": event.replica,
        "bundle_uuid": event.fqid.uuid,
        "bundle_version": event.fqid.version,
    }


def load_event_document(stores: Stores, replica: Replica, fqid: FQID) -> bytes:
    """The JSON document of a version that was ever seen in a replica, until it is purged."""
    with stores.catalog.read() as tx:
        created = events.find(tx, events.make_event_id("CREATE", replica, fqid))
        row = bundles.find(tx, fqid)
        gone = events.filter_purged(tx, [fqid])
    if created is None or row is None or gone:
        raise NotFound(f"There is no event of {fqid} in {replica}.")
    return documents.load_document_text(stores, replica, row.bundle.id, lambda _moved: None)


REPLAY_EXPIRY_BATCH = 1_000
"""Replays that one look forgets."""
EVENTS_PER_REPLAY_JOB = 50
"""Events of one claim; each may need its own document."""


def request_replay(
    stores: Stores,
    own: Subscription,
    window: EventWindow,
    *,
    ident: str,
    repeatable: IdempotentRequest | None,
    request_id: str = "",
) -> tuple[Replay, tuple[Job, ...]]:
    """Begin a replay of what is in the window now; the first one again for a repeated request.

    Conflict while another replay of the subscription goes on.
    """
    with stores.catalog.write() as tx:
        before = idempotency.find_stored_response(tx, repeatable)
        if before is not None:
            ident = str(orjson.loads(before)["replay_id"])
            return _get_replay(tx, ident), ()
        place = resolve_window(tx, own.replica, window)
        if not events.insert_replay(
            tx, ident, own.id, own.replica, first=place.first, end=place.until
        ):
            raise Conflict("Another replay of this subscription goes on.", code="already_exists")
        idempotency.store_response(tx, repeatable, orjson.dumps({"replay_id": ident}).decode())
        follow = (Job(Step.REPLAY, own.replica, ident),)
        jobs.insert(tx, follow, request_id=request_id)
        return _get_replay(tx, ident), follow


def _get_replay(tx: Tx, ident: str) -> Replay:
    found = events.find_replay(tx, ident)
    if found is None:
        raise NotFound("There is no such replay.")
    return found


def find_replay(stores: Stores, own: Subscription, ident: str) -> Replay:
    """A replay of this subscription; NotFound."""
    with stores.catalog.read() as tx:
        found = _get_replay(tx, ident)
    if found.subscription_id != own.id:
        raise NotFound("There is no such replay.")
    return found


def expire_replays(stores: Stores, *, keep_s: float) -> None:
    """Forget replays that ended so long ago."""
    with stores.catalog.write() as tx:
        events.expire_replays(tx, now_us(tx) - int(keep_s * 1e6), limit=REPLAY_EXPIRY_BATCH)


def run_replay(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Tell of the next few events, and record how far it came, as one."""
    with stores.catalog.read() as tx:
        one = _get_replay(tx, claim.job.ref)
        found = events.list_range(
            tx, one.replica, one.next_seq, one.end_seq, limit=EVENTS_PER_REPLAY_JOB
        )
        gone = events.filter_purged(tx, {each.event.fqid for each in found})
        asking = _load_query(tx, one)
    made = [
        (again, list(_match_replayed_event(stores, asking, each.event, again, beat)))
        for each, again in ((each, _replayed_event(one, each.event)) for each in found)
        if asking is not None and (each.event.fqid not in gone or each.event.type == "DELETE")
    ]
    following = found[-1].seq + 1 if found else one.end_seq
    ended = asking is None or following >= one.end_seq
    follow = () if ended else (claim.job,)
    with stores.catalog.write() as tx:
        # All of them, in order, before each is locked by itself.
        heads.lock(tx, "bundle", {again.fqid.uuid for again, _ in made})
        receivers = [
            each for again, fresh in made for each in _record_deliveries(tx, again, fresh, claim)
        ]
        events.advance_replay(tx, one, following, deliveries=len(receivers))
        if ended:
            events.finish_replay(tx, one)
        jobs.finish(tx, claim)
        jobs.insert(tx, follow, request_id=claim.request_id)
    return (*follow, *delivery_jobs(receivers))


def _load_query(tx: Tx, one: Replay) -> StoredQuerySet | None:
    """The subscription's query, asked about events before its time too; None when it was ended."""
    found = subscriptions.find_all(tx, [one.subscription_id])
    if not found or subscriptions.find(tx, found[0].uuid) is None:
        return None
    return StoredQuerySet([replace(found[0], created_us=0)])


def _replayed_event(one: Replay, event: BundleEvent) -> BundleEvent:
    """The event as this replay tells it: the same in all but its id."""
    ident = uuids.uuid5(events.EVENT_NAMESPACE, f"replay/{one.id}/{event.id}")
    return replace(event, id=str(ident))


def _match_replayed_event(
    stores: Stores, asking: StoredQuerySet, event: BundleEvent, again: BundleEvent, beat: Heartbeat
) -> Iterator[NewDelivery]:
    loaded = (
        nullcontext(journal_format.purged_document(event))
        if event.type == "DELETE"
        else documents.open_document(stores, event.replica, event.bundle_id, beat)
    )
    with loaded as document:
        yield from matching.evaluate_event(
            asking,
            again,
            document,
            base_url=stores.base_url,
            steps=stores.max_query_steps,
            beat=lambda _one: beat(0),
        )


def _record_deliveries(
    tx: Tx, again: BundleEvent, fresh: list[NewDelivery], claim: JobClaim
) -> list[int]:
    return deliveries.insert_matches(tx, fresh, again, request_id=claim.request_id) if fresh else []
