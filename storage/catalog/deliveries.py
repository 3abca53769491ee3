"""Deliveries: recorded when an event is matched, closed when their receiver took them.

What one subscription is told of one bundle goes out in the order of the events, one attempt at a
time: only the earliest pending delivery of such a pair is ever due.
"""

import uuid as uuids
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

import orjson
from sqlalchemy import text

from storage.catalog import bulk, events, heads
from storage.catalog.engine import Tx, execute_now, execute_sql, now_us
from storage.catalog.schema.telling import HELD_US
from storage.model import Event

NAMESPACE = uuids.UUID("0a3cb7d5-7a0e-5c55-8f0b-5b1f5c0e9d4e")
"""Frozen: delivery ids are UUIDv5 of `<subscription uuid>/<event id>` in this namespace."""

State = Literal["pending", "delivered", "failed", "superseded", "cancelled"]
TEST: Final = "TEST"
"""The event type of a delivery that its owner asked for."""
CHUNK_ROWS, CHUNK_CHARACTERS = 1000, 8_000_000
"""The most that one statement inserts."""
CANCELLED = 1000
"""Deliveries of a deleted subscription that one statement cancels."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A match: the payload to send, or with `failure` why the stored query could not be asked."""

    uuid: str
    subscription_id: int
    payload: str
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """All that one attempt needs; `attempts` counts those made before."""

    id: int
    uuid: str
    endpoint_id: int
    subscription_id: int
    subscription_uuid: str
    bundle_uuid: str
    attempts: int
    payload: str
    callback_url: str
    method: str
    encoding: str
    payload_form_field: str
    hmac_key_id: str | None
    hmac_secret: bytes | None = field(repr=False)
    deleted: bool
    request_id: str = ""
    hmac_previous: bytes | None = field(default=None, repr=False)
    """The key before, while it signs too."""
    halted: bool = False
    """Whether its subscription is paused or disabled, so that it must wait."""
    is_test: bool = False
    """Whether its owner asked for it: it is sent while the subscription is paused, too."""
    form_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[int, str]:
        """What is told in order."""
        return self.subscription_id, self.bundle_uuid


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended, and what becomes of the delivery: `state` pending is due again."""

    delivery_id: int
    at_us: int
    seconds: float
    status: int | None
    error: str | None
    body: str | None
    state: State
    due_us: int
    reason: str | None


def delivery_id(subscription_uuid: str, event_id: str) -> str:
    """The one id of this delivery, the same on every attempt and however often it is matched."""
    return str(uuids.uuid5(NAMESPACE, f"{subscription_uuid}/{event_id}"))


def record(
    tx: Tx, fresh: Sequence[NewDelivery], event: Event, *, request_id: str = ""
) -> list[int]:
    """Insert what an event's match found, once; returns the endpoint of each new delivery.

    A version's end supersedes what still waits to tell of its creation, whichever of the two is
    matched first: the head is locked, so that one of them sees the other.
    """
    heads.lock(tx, "bundle", [event.fqid.uuid])
    ended = event.type == "CREATE" and _ended(tx, event)
    made = [
        endpoint
        for chunk in _chunks(fresh)
        for endpoint in _insert(tx, chunk, event, ended=ended, request_id=request_id)
    ]
    if event.type != "CREATE":
        _supersede(tx, event)
    return made


def _ended(tx: Tx, event: Event) -> bool:
    ends = (events.event_id(kind, event.replica, event.fqid) for kind in ("TOMBSTONE", "DELETE"))
    return any(events.get(tx, end) is not None for end in ends)


def _chunks(fresh: Sequence[NewDelivery]) -> Iterable[list[NewDelivery]]:
    chunk: list[NewDelivery] = []
    room = CHUNK_CHARACTERS
    for row in fresh:
        if chunk and (len(chunk) == CHUNK_ROWS or len(row.payload) > room):
            yield chunk
            chunk, room = [], CHUNK_CHARACTERS
        chunk.append(row)
        room -= len(row.payload)
    if chunk:
        yield chunk


def _insert(
    tx: Tx, chunk: Sequence[NewDelivery], event: Event, *, ended: bool, request_id: str
) -> list[int]:
    columns: bulk.Columns = {
        "uuid": ("text", [row.uuid for row in chunk]),
        "subscription_id": ("bigint", [row.subscription_id for row in chunk]),
        "payload": ("text", [row.payload for row in chunk]),
        "failure": ("text", [row.failure for row in chunk]),
    }
    source, parameters = bulk.derived(tx, "fresh", columns)
    inserted = text(
        "INSERT INTO deliveries (uuid, subscription_id, event_id, endpoint_id, event_type,"
        " bundle_uuid, bundle_version, payload, state, event_us, due_us, created_us, finished_us,"
        " reason, request_id)"
        " SELECT fresh.uuid, s.id, :event_id, s.endpoint_id, :event_type, :bundle_uuid,"
        " :bundle_version, fresh.payload,"
        " CASE WHEN fresh.failure IS NOT NULL THEN 'failed' ELSE :state END,"
        f" :event_us, CASE WHEN s.state = 'active' THEN :now ELSE :now + {HELD_US} END, :now,"
        " CASE WHEN fresh.failure IS NOT NULL THEN :now ELSE CAST(:finished AS bigint) END,"
        " coalesce(fresh.failure, :reason), :request_id"
        f" FROM {source} JOIN subscriptions s ON s.id = fresh.subscription_id"
        " WHERE s.deleted_us IS NULL ORDER BY s.id ON CONFLICT DO NOTHING"
        " RETURNING endpoint_id"
    )
    now = now_us(tx)
    told = {
        "event_id": event.id,
        "event_type": event.type,
        "bundle_uuid": event.fqid.uuid,
        "bundle_version": event.fqid.version,
        "event_us": event.at_us,
        "now": now,
        "state": "superseded" if ended else "pending",
        "finished": now if ended else None,
        "reason": SUPERSEDED if ended else None,
        "request_id": request_id,
    }
    return list(tx.execute(inserted, {**parameters, **told}).scalars())


SUPERSEDED = "The version is no longer there."
DELETED = "The subscription was deleted."


def _supersede(tx: Tx, event: Event) -> None:
    which = (
        "state = 'pending' AND event_type = 'CREATE' AND bundle_uuid = :uuid"
        " AND bundle_version = :version AND subscription_id IN"
        " (SELECT id FROM subscriptions WHERE replica = :replica)"
    )
    fqid = event.fqid
    told = {"uuid": fqid.uuid, "version": fqid.version, "replica": event.replica}
    held = f"SELECT id FROM deliveries WHERE {which} ORDER BY id{for_update(tx)}"
    closed = (
        "UPDATE deliveries SET state = 'superseded', finished_us = :now, reason = :reason"
        f" WHERE id IN ({held})"
    )
    execute_now(tx, closed, {**told, "reason": SUPERSEDED})


def for_update(tx: Tx) -> str:
    """Locks rows in the order of their ids, as every transaction does: so none deadlocks."""
    return "" if tx.dialect.name == "sqlite" else " FOR UPDATE"


def add_test(
    tx: Tx, fresh: NewDelivery, *, bundle_uuid: str, version: str, request_id: str = ""
) -> None:
    """Record a delivery that no event caused."""
    now = now_us(tx)
    event = {"event_id": fresh.uuid, "event_type": TEST, "uuid": fresh.uuid, "now": now}
    inserted = text(
        "INSERT INTO deliveries (uuid, subscription_id, event_id, endpoint_id, event_type,"
        " bundle_uuid, bundle_version, payload, state, event_us, due_us, created_us, request_id)"
        " SELECT :uuid, id, :event_id, endpoint_id, :event_type, :bundle_uuid, :version, :payload,"
        " 'pending', :now, :now, :now, :request_id FROM subscriptions WHERE id = :subscription_id"
    )
    told = {"bundle_uuid": bundle_uuid, "version": version, "payload": fresh.payload}
    caller = {"subscription_id": fresh.subscription_id, "request_id": request_id}
    tx.execute(inserted, {**event, **told, **caller})


# In the order of the fields of `Due`.
_DUE = text("""
    SELECT d.id, d.uuid, d.endpoint_id, d.subscription_id, s.uuid, d.bundle_uuid, d.attempts,
        d.payload, s.callback_url, s.method, s.encoding, s.payload_form_field, s.hmac_key_id,
        s.hmac_secret, s.deleted_us IS NOT NULL, d.request_id,
        CASE WHEN s.hmac_previous_us > :now THEN s.hmac_previous END,
        s.state <> 'active' AND d.event_type <> 'TEST', d.event_type = 'TEST', s.form_fields
    FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
    WHERE d.state = 'pending' AND d.endpoint_id = :endpoint_id AND d.due_us <= :now
    AND (d.event_type = 'TEST' OR NOT EXISTS (
        SELECT 1 FROM deliveries o
        WHERE o.state = 'pending' AND o.bundle_uuid = d.bundle_uuid
        AND o.subscription_id = d.subscription_id AND o.event_type <> 'TEST'
        AND (o.event_us < d.event_us OR (o.event_us = d.event_us AND o.id < d.id))
    ))
    ORDER BY d.due_us LIMIT :limit
""")


def due(tx: Tx, endpoint_id: int, *, limit: int) -> list[Due]:
    """What an endpoint may be sent now, the longest due first; of each pair the earliest event.

    Tests wait for nothing, and nothing waits for them.
    """
    rows = tx.execute(_DUE, {"endpoint_id": endpoint_id, "limit": limit, "now": now_us(tx)})
    return [Due(*[*row, _form_fields(form_fields)]) for *row, form_fields in rows]


@lru_cache(maxsize=256)
def _form_fields(stored: str) -> Mapping[str, str]:
    return MappingProxyType(orjson.loads(stored))


def close(tx: Tx, results: Sequence[Result]) -> None:
    """Record attempts and what becomes of their deliveries, many at once.

    An attempt that a receiver took is the truth even of what was superseded or cancelled meanwhile;
    any other outcome changes what is still pending only.
    """
    if not results:
        return
    lock(tx, [result.delivery_id for result in results])
    source, parameters = bulk.derived(tx, "done", _columns(results))
    attempted = (
        "INSERT INTO attempts (delivery_id, number, at_us, seconds, status, error, body)"
        " SELECT d.id, d.attempts + 1, done.at_us, done.seconds, done.status, done.error, done.body"
        f" FROM {source} {bulk.one_each(tx, 'deliveries', 'd', 'd.id = done.id')}"
        " WHERE true ON CONFLICT DO NOTHING"
    )
    closed = (
        "UPDATE deliveries SET attempts = deliveries.attempts + 1,"
        f" state = CASE WHEN {_OPEN} THEN done.state ELSE deliveries.state END,"
        f" due_us = CASE WHEN {_OPEN} THEN done.due_us ELSE deliveries.due_us END,"
        f" reason = CASE WHEN {_OPEN} THEN done.reason ELSE deliveries.reason END,"
        f" finished_us = CASE WHEN {_OPEN} AND done.state <> 'pending' THEN :now"
        " ELSE deliveries.finished_us END"
        f" FROM {source} WHERE deliveries.id = done.id{_these(tx)}"
    )
    execute_sql(tx, attempted, parameters)
    execute_now(tx, closed, parameters)


def _these(tx: Tx) -> str:
    """Results are compared with these rows only, though PostgreSQL counted next to none."""
    return "" if tx.dialect.name == "sqlite" else " AND deliveries.id = ANY(:done_id)"


_OPEN = "(deliveries.state = 'pending' OR done.state = 'delivered')"


def _columns(results: Sequence[Result]) -> bulk.Columns:
    return {
        "id": ("bigint", [result.delivery_id for result in results]),
        "at_us": ("bigint", [result.at_us for result in results]),
        "seconds": ("double precision", [result.seconds for result in results]),
        "status": ("integer", [result.status for result in results]),
        "error": ("text", [result.error for result in results]),
        "body": ("text", [result.body for result in results]),
        "state": ("text", [result.state for result in results]),
        "due_us": ("bigint", [result.due_us for result in results]),
        "reason": ("text", [result.reason for result in results]),
    }


def lock(tx: Tx, ids: Collection[int]) -> None:
    """Hold these rows, in the order of their ids: two processes that made the same attempt
    count one after the other."""
    if tx.dialect.name == "sqlite":
        return
    source, parameters = bulk.derived(tx, "held", {"id": ("bigint", sorted(ids))})
    each = bulk.one_each(tx, "deliveries", "d", "d.id = held.id", lock=True)
    tx.execute(text(f"SELECT d.id FROM {source} {each}"), parameters)


def cancel(tx: Tx, subscription_id: int, endpoint_id: int) -> int:
    """Cancel a bounded number of a deleted subscription's deliveries; returns how many."""
    cancelled = text(
        "UPDATE deliveries SET state = 'cancelled', finished_us = :now, reason = :reason"
        " WHERE id IN ("
        "WITH first AS MATERIALIZED (SELECT id FROM deliveries WHERE state = 'pending'"
        " AND endpoint_id = :endpoint_id AND subscription_id = :subscription_id"
        f" ORDER BY id LIMIT :limit{for_update(tx)})"
        " SELECT id FROM first)"
    )
    which = {"endpoint_id": endpoint_id, "subscription_id": subscription_id, "limit": CANCELLED}
    told = {"now": now_us(tx), "reason": DELETED}
    return tx.execute(cancelled, {**which, **told}).rowcount
