"""Read the event feed, list journals by time window, and replay events to subscriptions.

Only events with a sequence number are read, in that order: one number says what a reader has seen.
Of a purged bundle only its DELETE event is delivered, without the document.

A replay records deliveries like matching does. Its events get ids of their own, derived from the
replay and the event, so that they are not taken for duplicates.
"""

import uuid as uuids
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import orjson

from pipelines import documents, failover, idempotency, matching, records
from pipelines.flow import Heartbeat, Step, delivery_jobs
from pipelines.formats import version_from_us, version_to_us
from pipelines.idempotency import IdempotentRequest
from pipelines.journals import CONTENT_TYPE, purged_document
from pipelines.queries.stored_queries import StoredQuerySet
from storage import keys
from storage.catalog import (
    Tx,
    bundles,
    deliveries,
    events,
    jobs,
    journals,
    now_us,
    store_state,
    subscriptions,
    versions,
)
from storage.catalog.deliveries import NewDelivery
from storage.catalog.events import Replay, SequencedEvent
from storage.catalog.journals import JournalObject
from storage.catalog.subscriptions import Subscription
from storage.errors import ConflictError, Invalid, NotFoundError, Unavailable
from storage.model import FQID, BundleEvent, Job, JobClaim, Replica
from storage.stores import Stores


@dataclass(frozen=True, slots=True)
class EventWindow:
    """A span of time from `from_date` up to, not including, `to_date`; None is unbounded."""

    from_date: str | None
    to_date: str | None


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """The rest of a walk through a window: from `first` up to, not including, `until`."""

    sequence: str
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """The last event that a reader of the feed has seen: its sequence, number and time."""

    sequence: str
    seq: int
    us: int


class SequenceReset(Invalid):
    """The catalog was restored or rebuilt, so a reader's number does not say what it has seen.

    From `safe_position` on a reader misses nothing, but may see events again.
    """

    code = "illegal_token"

    def __init__(self, safe_position: FeedPosition | None = None) -> None:
        super().__init__(
            "The catalog was restored or rebuilt since this was handed out, and what came last has"
            " other places now."
        )
        self.safe_position = safe_position


@dataclass(frozen=True, slots=True)
class JournalExcerpt:
    """A journal, and those of its events that are in the window, at least one."""

    journal: JournalObject
    events: Sequence[SequencedEvent]


def resolve_window(tx: Tx, replica: Replica, window: EventWindow) -> JournalPosition:
    """Return the sequence numbers that a window has now."""
    end = events.find_latest_sequence(tx, replica) + 1
    first = _find_number(tx, replica, window.from_date, 1, end)
    until = max(first, _find_number(tx, replica, window.to_date, end, end))
    return JournalPosition(events.read_sequence_name(tx), first, until)


def _find_number(tx: Tx, replica: Replica, date: str | None, default: int, end: int) -> int:
    if date is None:
        return default
    number = events.find_sequence_at(tx, replica, version_to_us(date))
    return end if number is None else number


def list_journal_excerpts(
    stores: Stores, replica: Replica, window: EventWindow, place: JournalPosition | None, limit: int
) -> tuple[list[JournalExcerpt], JournalPosition | None]:
    """Return the next journals of a window, and the position after them; None at the end.

    A walk sees the events that were in journals when it began, by number: merging or rewriting
    journals meanwhile does not matter. Raise SequenceReset if the numbers have changed.
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
        following = journals.list_range(tx, replica, place.first, place.until, limit=limit + 1)
        page = following[:limit]
        if not page:
            return [], None
        until = min(place.until, page[-1].last + 1)
        listed = events.list_range(tx, replica, place.first, until, limit=until - place.first)
    excerpts = [
        JournalExcerpt(one, [each for each in listed if one.first <= each.seq <= one.last])
        for one in page
    ]
    has_more = len(following) > limit
    return excerpts, replace(place, first=page[-1].last + 1) if has_more else None


def sign_journal_url(stores: Stores, bucket: Replica, one: JournalObject, *, expires_s: int) -> str:
    """Return a presigned URL of a journal."""
    return stores.replicas[bucket].sign(
        keys.journal_key(one.key), expires_s=expires_s, content_type=CONTENT_TYPE
    )


def choose_bucket(stores: Stores, one: JournalObject) -> Replica:
    """Return the replica's own bucket, or the other if that is down and the other has a copy."""
    instead = failover.find_standby(stores, one.replica)
    if instead is None:
        return one.replica
    try:
        has_copy = records.has_object(stores.replicas[instead], keys.journal_manifest_key(one.key))
    except Unavailable:
        return one.replica
    return instead if has_copy else one.replica


def first_position(stores: Stores) -> FeedPosition:
    """Return the position before the first event."""
    with stores.catalog.read() as tx:
        return FeedPosition(events.read_sequence_name(tx), 0, 0)


def latest_position(stores: Stores, replica: Replica) -> FeedPosition:
    """Return the position after the last event."""
    with stores.catalog.read() as tx:
        seq = events.find_latest_sequence(tx, replica)
        return FeedPosition(
            events.read_sequence_name(tx), seq, events.find_sequence_time(tx, replica, seq)
        )


def position_at(stores: Stores, replica: Replica, date: str) -> FeedPosition:
    """Return the position before the first event at this time or later."""
    with stores.catalog.read() as tx:
        return _find_position(tx, replica, version_to_us(date))


def _find_position(tx: Tx, replica: Replica, us: int) -> FeedPosition:
    first = events.find_sequence_at(tx, replica, us)
    before = events.find_latest_sequence(tx, replica) if first is None else first - 1
    before_us = events.find_sequence_time(tx, replica, before)
    return FeedPosition(events.read_sequence_name(tx), before, before_us)


def list_events_since(
    stores: Stores, replica: Replica, seen: FeedPosition, limit: int
) -> list[SequencedEvent]:
    """List the events after a position; SequenceReset if its number is of another sequence.

    Unavailable while the catalog is being restored.
    """
    with stores.catalog.read() as tx:
        following = events.list_range(tx, replica, seen.seq + 1, limit=limit)
        # Higher numbers than the latest were assigned by a catalog that is lost.
        known = bool(following) or events.find_latest_sequence(tx, replica) >= seen.seq
        if known and events.read_sequence_name(tx) == seen.sequence:
            return following
        if store_state.read_value(tx, store_state.EPOCH_IN_DOUBT_KEY) is not None:
            raise Unavailable("The catalog is being restored: the feed continues after that.")
        # The position before all events numbered at or after the time of the reader's last one.
        # Times of numbers never decrease, even by restoring, so all unseen events are after it.
        raise SequenceReset(_find_position(tx, replica, seen.us))


def format_event(numbered: SequencedEvent) -> dict[str, Any]:
    """Return an event as the feed shows it."""
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
    """Return the JSON document of a version that a replica has published, until it is purged."""
    with stores.catalog.read() as tx:
        created = events.find(tx, events.make_event_id("CREATE", replica, fqid))
        row = bundles.find(tx, fqid)
        gone = events.filter_purged(tx, [fqid])
    if created is None or row is None or gone:
        raise NotFoundError(f"There is no event of {fqid} in {replica}.")
    return documents.load_document_text(stores, replica, row.id, lambda _moved: None)


REPLAY_EXPIRY_BATCH = 1_000
"""Replays that one sweep deletes."""
EVENTS_PER_REPLAY_JOB = 50
"""Events of one job; each may need its own document."""


def request_replay(
    stores: Stores,
    own: Subscription,
    window: EventWindow,
    *,
    ident: str,
    repeatable: IdempotentRequest | None,
    request_id: str = "",
) -> tuple[Replay, tuple[Job, ...]]:
    """Start a replay of the events in a window; a repeated request returns the first one.

    ConflictError while another replay of the subscription is running.
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
            raise ConflictError(
                "Another replay of this subscription is running.", code="already_exists"
            )
        idempotency.store_response(tx, repeatable, orjson.dumps({"replay_id": ident}).decode())
        follow = (Job(Step.REPLAY, own.replica, ident),)
        jobs.insert(tx, follow, request_id=request_id)
        return _get_replay(tx, ident), follow


def _get_replay(tx: Tx, ident: str) -> Replay:
    found = events.find_replay(tx, ident)
    if found is None:
        raise NotFoundError("There is no such replay.")
    return found


def find_replay(stores: Stores, own: Subscription, ident: str) -> Replay:
    """Return a replay of this subscription; NotFoundError."""
    with stores.catalog.read() as tx:
        found = _get_replay(tx, ident)
    if found.subscription_id != own.id:
        raise NotFoundError("There is no such replay.")
    return found


def count_events(stores: Stores, replica: Replica, window: EventWindow) -> int:
    """Return how many events a window has now."""
    with stores.catalog.read() as tx:
        place = resolve_window(tx, replica, window)
    return place.until - place.first


def list_replays(stores: Stores, own: Subscription, *, limit: int) -> list[Replay]:
    """List the replays of a subscription, the latest first."""
    with stores.catalog.read() as tx:
        return events.list_replays(tx, own.id, limit=limit)


def expire_replays(stores: Stores, *, keep_s: float) -> None:
    """Delete replays that ended so long ago."""
    with stores.catalog.write() as tx:
        events.expire_replays(tx, now_us(tx) - int(keep_s * 1e6), limit=REPLAY_EXPIRY_BATCH)


def run_replay(stores: Stores, claim: JobClaim, beat: Heartbeat) -> tuple[Job, ...]:
    """Record the deliveries of the next events, and the progress, in one transaction."""
    with stores.catalog.read() as tx:
        one = _get_replay(tx, claim.job.ref)
        page = events.list_range(
            tx, one.replica, one.next_seq, one.end_seq, limit=EVENTS_PER_REPLAY_JOB
        )
        purged = events.filter_purged(tx, {each.event.fqid for each in page})
        subscription = next(iter(subscriptions.find_all(tx, [one.subscription_id])), None)
        if subscription is not None and subscriptions.find(tx, subscription.uuid) is None:
            subscription = None
    matches: list[tuple[BundleEvent, list[NewDelivery]]] = []
    if subscription is not None:
        # Replays include events before the subscription was created.
        query = StoredQuerySet([replace(subscription, created_us=0)])
        matches = [
            _match_replayed_event(stores, query, one, each.event, beat)
            for each in page
            if each.event.fqid not in purged or each.event.type == "DELETE"
        ]
    following = page[-1].seq + 1 if page else one.end_seq
    ended = subscription is None or following >= one.end_seq
    follow = () if ended else (claim.job,)
    with stores.catalog.write() as tx:
        # All of them, in order, before each is locked by itself.
        versions.lock_heads(tx, "bundle", {event.fqid.uuid for event, _ in matches})
        receivers = [
            endpoint
            for event, fresh in matches
            if fresh
            for endpoint in deliveries.insert_matches(tx, fresh, event, request_id=claim.request_id)
        ]
        events.advance_replay(tx, one, following, deliveries=len(receivers))
        if ended:
            events.finish_replay(tx, one)
        jobs.finish(tx, claim)
        jobs.insert(tx, follow, request_id=claim.request_id)
    return (*follow, *delivery_jobs(receivers))


def make_replayed_event(one: Replay, event: BundleEvent) -> BundleEvent:
    """Return the event with an id of this replay, so that it is not taken for a duplicate."""
    ident = uuids.uuid5(events.EVENT_NAMESPACE, f"replay/{one.id}/{event.id}")
    return replace(event, id=str(ident))


def _match_replayed_event(
    stores: Stores, query: StoredQuerySet, one: Replay, event: BundleEvent, beat: Heartbeat
) -> tuple[BundleEvent, list[NewDelivery]]:
    replayed = make_replayed_event(one, event)
    opened = (
        nullcontext(purged_document(event))
        if event.type == "DELETE"
        else documents.open_document(stores, event.replica, event.bundle_id, beat)
    )
    with opened as document:
        fresh = matching.evaluate_event(
            query,
            replayed,
            document,
            base_url=stores.base_url,
            steps=stores.max_query_steps,
            beat=lambda _moved: beat(0),
        )
        return replayed, list(fresh)
