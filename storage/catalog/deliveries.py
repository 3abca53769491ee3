"""Deliveries: insert matches, list what is due, record attempts, pause and cancel.

A subscription receives the events of one bundle in their order, one attempt at a time: of each pair
of subscription and bundle, only the earliest pending delivery is due.

A paused delivery is `pending` with PAUSED_DUE_US added to its due time. Resuming subtracts it, so
the schedule survives, and ordering, superseding and cancelling need no case for it.
"""

import uuid as uuids
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

import orjson
from sqlalchemy import text

from storage.catalog import events, sql, versions
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.event_log import PAUSED_DUE_US
from storage.model import BundleEvent
from storage.tracing import join_request

DELIVERY_NAMESPACE = uuids.UUID("0a3cb7d5-7a0e-5c55-8f0b-5b1f5c0e9d4e")
"""Frozen: delivery ids are UUIDv5 of `<subscription uuid>/<event id>` in this namespace."""

DeliveryState = Literal["pending", "delivered", "failed", "superseded", "cancelled"]
TEST_EVENT: Final = "TEST"
"""Event type of a test delivery, which the owner of a subscription requests."""
CHUNK_ROWS, CHUNK_CHARACTERS = 1000, 8_000_000
"""Limits of rows and payload characters of one INSERT."""
CANCEL_BATCH = 1000
"""Most deliveries of a deleted subscription that one statement cancels."""
PAUSE_BATCH = 1000
"""Most paused deliveries that one statement releases or cancels."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A match: the payload to send, or in `failure` why the stored query could not be evaluated."""

    uuid: str
    subscription_id: int
    payload: str
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """Everything that one attempt needs; `attempts` counts the earlier ones."""

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
    """The previous key, while both keys sign."""
    halted: bool = False
    """Whether the subscription is paused or disabled, so that the delivery must wait."""
    is_test: bool = False
    """Whether it is a test delivery, which is sent even while the subscription is paused."""
    resent_from: DeliveryState | None = None
    """The state before its owner resent it: one attempt, even while the subscription is paused."""
    form_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def ordering_key(self) -> tuple[int, str]:
        """The subscription and bundle whose deliveries are sent in order."""
        return self.subscription_id, self.bundle_uuid

    @property
    def ignores_pause(self) -> bool:
        """Whether it is sent even while the subscription is paused or disabled."""
        return self.is_test or self.resent_from is not None


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """Result of an attempt and the delivery's next state; `pending` means due again at `due_us`."""

    delivery_id: int
    at_us: int
    seconds: float
    status: int | None
    error: str | None
    body: str | None
    state: DeliveryState
    due_us: int
    reason: str | None
    is_resend: bool = False
    """Whether the owner resent it, so that it does not count for the subscription's failures."""

    @property
    def is_success(self) -> bool:
        """Whether the receiver accepted it."""
        return self.status is not None and 200 <= self.status < 300


def make_delivery_id(subscription_uuid: str, event_id: str) -> str:
    """Return the id of a delivery: the same for every attempt and every match."""
    return str(uuids.uuid5(DELIVERY_NAMESPACE, f"{subscription_uuid}/{event_id}"))


def insert_matches(
    tx: Tx, fresh: Sequence[NewDelivery], event: BundleEvent, *, request_id: str = ""
) -> list[int]:
    """Insert the matches of an event, idempotently; return the endpoint of each new delivery.

    A TOMBSTONE or DELETE supersedes pending CREATE deliveries of its version, whichever event is
    matched first: the lock on the head makes one of the two matches see the other.
    """
    versions.lock_heads(tx, "bundle", [event.fqid.uuid])
    ends = events.make_end_event_ids(event.replica, event.fqid)
    ended = event.type == "CREATE" and bool(events.filter_existing(tx, ends))
    endpoints = [
        endpoint
        for chunk in _split_chunks(fresh)
        for endpoint in _insert_chunk(tx, chunk, event, ended=ended, request_id=request_id)
    ]
    if event.type != "CREATE":
        _supersede(tx, event)
    return endpoints


def _split_chunks(fresh: Sequence[NewDelivery]) -> Iterable[list[NewDelivery]]:
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


def _insert_chunk(
    tx: Tx, chunk: Sequence[NewDelivery], event: BundleEvent, *, ended: bool, request_id: str
) -> list[int]:
    columns = sql.attribute_columns(chunk, bigint="subscription_id", text="uuid payload failure")
    source, parameters = sql.derive_table(tx, "fresh", columns)
    statement = text(
        "INSERT INTO deliveries (uuid, subscription_id, event_id, endpoint_id, event_type,"
        " bundle_uuid, bundle_version, payload, state, event_us, due_us, created_us, finished_us,"
        " reason, request_id)"
        " SELECT fresh.uuid, s.id, :id, s.endpoint_id, :type, :uuid, :version, fresh.payload,"
        " CASE WHEN fresh.failure IS NOT NULL THEN 'failed' ELSE :state END,"
        f" :at_us, CASE WHEN s.state = 'active' THEN :now ELSE :now + {PAUSED_DUE_US} END, :now,"
        " CASE WHEN fresh.failure IS NOT NULL THEN :now ELSE CAST(:finished AS bigint) END,"
        " coalesce(fresh.failure, :reason), :request_id"
        f" FROM {source} JOIN subscriptions s ON s.id = fresh.subscription_id"
        " WHERE s.deleted_us IS NULL ORDER BY s.id ON CONFLICT DO NOTHING"
        " RETURNING endpoint_id"
    )
    now = now_us(tx)
    values = {
        **asdict(event),
        **event.fqid._asdict(),
        "now": now,
        "state": "superseded" if ended else "pending",
        "finished": now if ended else None,
        "reason": SUPERSEDED_REASON if ended else None,
        "request_id": join_request(request_id),
    }
    return list(tx.execute(statement, {**parameters, **values}).scalars())


SUPERSEDED_REASON = "The version no longer exists."
DELETED_REASON = "The subscription was deleted."


def _supersede(tx: Tx, event: BundleEvent) -> None:
    condition = (
        "state = 'pending' AND event_type = 'CREATE' AND bundle_uuid = :uuid"
        " AND bundle_version = :version AND subscription_id IN"
        " (SELECT id FROM subscriptions WHERE replica = :replica)"
    )
    fqid = event.fqid
    parameters = {"uuid": fqid.uuid, "version": fqid.version, "replica": event.replica}
    locked = f"SELECT id FROM deliveries WHERE {condition} ORDER BY id{sql.lock_clause(tx)}"
    statement = (
        "UPDATE deliveries SET state = 'superseded', finished_us = :now, reason = :reason"
        f" WHERE id IN ({locked})"
    )
    sql.execute(tx, statement, {**parameters, "reason": SUPERSEDED_REASON})


def insert_test(
    tx: Tx, fresh: NewDelivery, *, bundle_uuid: str, version: str, request_id: str = ""
) -> None:
    """Record a test delivery, which no event caused."""
    statement = (
        "INSERT INTO deliveries (uuid, subscription_id, event_id, endpoint_id, event_type,"
        " bundle_uuid, bundle_version, payload, state, event_us, due_us, created_us, request_id)"
        f" SELECT :uuid, id, :uuid, endpoint_id, '{TEST_EVENT}', :bundle_uuid, :version, :payload,"
        " 'pending', :now, :now, :now, :request_id FROM subscriptions WHERE id = :subscription_id"
    )
    event = {"bundle_uuid": bundle_uuid, "version": version, "request_id": join_request(request_id)}
    sql.execute(tx, statement, {**asdict(fresh), **event})


# In the order of the fields of `DueDelivery`.
_SELECT_REQUEST = """
    SELECT d.id, d.uuid, d.endpoint_id, d.subscription_id, s.uuid, d.bundle_uuid, d.attempts,
        d.payload, s.callback_url, s.method, s.encoding, s.payload_form_field, s.hmac_key_id,
        s.hmac_secret, s.deleted_us IS NOT NULL, d.request_id,
        CASE WHEN s.hmac_previous_us > :now THEN s.hmac_previous END,
        s.state <> 'active' AND d.event_type <> 'TEST' AND d.resent_from IS NULL,
        d.event_type = 'TEST', d.resent_from, s.form_fields
    FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
"""
_SELECT_DUE = f"""{_SELECT_REQUEST}
    WHERE d.state = 'pending' AND d.endpoint_id = :endpoint_id AND d.due_us <= :now
    AND (d.event_type = 'TEST' OR d.resent_from IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM deliveries o
        WHERE o.state = 'pending' AND o.bundle_uuid = d.bundle_uuid
        AND o.subscription_id = d.subscription_id AND o.event_type <> 'TEST'
        AND (o.event_us < d.event_us OR (o.event_us = d.event_us AND o.id < d.id))
    ))
    ORDER BY d.due_us LIMIT :limit
"""


def list_due(tx: Tx, endpoint_id: int, *, limit: int) -> list[DueDelivery]:
    """List due deliveries of an endpoint, the longest due first; of each pair only the earliest.

    Test deliveries and those that their owner resent are outside of this order.
    """
    rows = sql.execute(tx, _SELECT_DUE, {"endpoint_id": endpoint_id, "limit": limit})
    return [DueDelivery(*[*row, _parse_form_fields(form_fields)]) for *row, form_fields in rows]


def load_request(tx: Tx, subscription_id: int, uuid: str) -> DueDelivery | None:
    """Return what the requests of a delivery are built of, whether it is due or not."""
    one = f"{_SELECT_REQUEST} WHERE d.uuid = :uuid AND d.subscription_id = :id"
    parameters = {"uuid": uuid, "id": subscription_id, "now": now_us(tx)}
    row = tx.execute(sql.parse(one), parameters).first()
    return None if row is None else DueDelivery(*[*row[:-1], _parse_form_fields(row[-1])])


@lru_cache(maxsize=256)
def _parse_form_fields(stored: str) -> Mapping[str, str]:
    return MappingProxyType(orjson.loads(stored))


def record_attempts(tx: Tx, results: Sequence[AttemptResult]) -> None:
    """Record a batch of attempts and the new states of their deliveries.

    A successful attempt overrides `superseded` and `cancelled`; any other result changes only
    pending deliveries.
    """
    if not results:
        return
    lock(tx, [result.delivery_id for result in results])
    columns = sql.attribute_columns(
        results,
        bigint="delivery_id at_us due_us",
        integer="status",
        float8="seconds",
        text="error body state reason",
    )
    source, parameters = sql.derive_table(tx, "done", columns)
    insert = (
        "INSERT INTO attempts (delivery_id, number, at_us, seconds, status, error, body)"
        " SELECT d.id, d.attempts + 1, done.at_us, done.seconds, done.status, done.error, done.body"
        f" FROM {source} {sql.join_one(tx, 'deliveries', 'd', 'd.id = done.delivery_id')}"
        " WHERE true ON CONFLICT DO NOTHING"
    )
    # PostgreSQL estimates next to no rows of `done` and would scan all deliveries.
    restriction = (
        "" if tx.dialect.name == "sqlite" else " AND deliveries.id = ANY(:done_delivery_id)"
    )
    update = (
        "UPDATE deliveries SET attempts = deliveries.attempts + 1,"
        " resent_from = NULL,"
        f" state = CASE WHEN {_OPEN} THEN done.state ELSE deliveries.state END,"
        f" due_us = CASE WHEN {_OPEN} THEN done.due_us ELSE deliveries.due_us END,"
        f" reason = CASE WHEN {_OPEN} THEN done.reason ELSE deliveries.reason END,"
        f" finished_us = CASE WHEN {_OPEN} AND done.state <> 'pending' THEN :now"
        " ELSE deliveries.finished_us END"
        f" FROM {source} WHERE deliveries.id = done.delivery_id{restriction}"
    )
    sql.execute(tx, insert, parameters)
    sql.execute(tx, update, parameters)


_OPEN = "(deliveries.state = 'pending' OR done.state = 'delivered')"


def lock(tx: Tx, ids: Collection[int]) -> None:
    """Lock deliveries in the order of their ids, so that simultaneous attempts count in turn."""
    if tx.dialect.name == "sqlite":
        return
    source, parameters = sql.derive_table(tx, "held", {"id": ("bigint", sorted(ids))})
    each = sql.join_one(tx, "deliveries", "d", "d.id = held.id", lock=True)
    tx.execute(sql.parse(f"SELECT d.id FROM {source} {each}"), parameters)


def cancel_pending(tx: Tx, subscription_id: int, endpoint_id: int) -> int:
    """Cancel up to CANCEL_BATCH deliveries of a deleted subscription; return how many."""
    which = "state = 'pending' AND endpoint_id = :endpoint_id"
    first = _select_first(tx, which, limit=CANCEL_BATCH)
    return _cancel(tx, subscription_id, first, DELETED_REASON, endpoint_id=endpoint_id)


def _select_first(tx: Tx, which: str, *, limit: int = PAUSE_BATCH, where: str = "") -> str:
    """Return the query for the ids of a subscription's first deliveries, which it locks."""
    # Limited and locked rows are materialised: PostgreSQL could otherwise evaluate the limit again
    # after each row that is changed, and so change all of them.
    return (
        f"WITH first AS MATERIALIZED (SELECT id, created_us FROM deliveries WHERE {which}"
        f" AND subscription_id = :id ORDER BY id LIMIT {limit}{sql.lock_clause(tx)})"
        f" SELECT id FROM first{where}"
    )


def _cancel(tx: Tx, subscription_id: int, selected: str, reason: str, **values: int) -> int:
    statement = (
        "UPDATE deliveries SET state = 'cancelled', finished_us = :now, reason = :reason"
        f" WHERE id IN ({selected})"
    )
    return sql.execute(tx, statement, {"id": subscription_id, "reason": reason, **values}).rowcount


# Both conditions are spelled as in the partial index.
_IS_PAUSED = f"state = 'pending' AND due_us >= {PAUSED_DUE_US}"


@dataclass(frozen=True, slots=True)
class ReleasableSubscription:
    """A subscription with paused deliveries to release (it is active again) or cancel (deleted)."""

    id: int
    deleted: bool


def pause(tx: Tx, ids: Collection[int]) -> int:
    """Pause those of these deliveries whose subscription is not active; return how many."""
    if not ids:
        return 0
    lock(tx, ids)
    source, parameters = sql.derive_table(tx, "met", {"id": ("bigint", sorted(ids))})
    condition = _SELECT_PAUSABLE_ON_SQLITE if tx.dialect.name == "sqlite" else _SELECT_PAUSABLE
    statement = f"UPDATE deliveries SET due_us = due_us + {PAUSED_DUE_US} WHERE {condition}"
    return tx.execute(text(statement.format(source=source)), parameters).rowcount


def _pausable_condition(d: str) -> str:
    return (
        f"{d}.state = 'pending' AND {d}.event_type <> 'TEST' AND {d}.resent_from IS NULL"
        f" AND {d}.due_us < {PAUSED_DUE_US}"
        f" AND EXISTS (SELECT 1 FROM subscriptions s WHERE s.id = {d}.subscription_id"
        " AND s.state <> 'active')"
    )


# Look each row up by its key, whatever the statistics say: with some statistics, both engines
# compared every pending row with each of these ids. PostgreSQL never joins an array.
_SELECT_PAUSABLE = f"""
    id = ANY(ARRAY(
        SELECT d.id FROM {{source}},
            LATERAL (SELECT * FROM deliveries WHERE deliveries.id = met.id OFFSET 0) AS d
        WHERE {_pausable_condition("d")}
    ))
"""
_SELECT_PAUSABLE_ON_SQLITE = (
    f"id IN (SELECT id FROM {{source}}) AND {_pausable_condition('deliveries')}"
)


def release_paused(tx: Tx, subscription_id: int) -> int:
    """Release up to PAUSE_BATCH paused deliveries of a subscription; return how many."""
    selected = _select_first(tx, _IS_PAUSED)
    statement = f"UPDATE deliveries SET due_us = due_us - {PAUSED_DUE_US} WHERE id IN ({selected})"
    return tx.execute(sql.parse(statement), {"id": subscription_id}).rowcount


def cancel_paused(tx: Tx, subscription_id: int) -> int:
    """Cancel up to PAUSE_BATCH paused deliveries of a deleted subscription; return how many."""
    return _cancel(tx, subscription_id, _select_first(tx, _IS_PAUSED), DELETED_REASON)


_PAUSED_SUBSCRIPTIONS = f"""
    WITH RECURSIVE held (id) AS (
        SELECT (SELECT subscription_id FROM deliveries WHERE {_IS_PAUSED}
                ORDER BY subscription_id, id LIMIT 1)
        UNION ALL
        SELECT (SELECT subscription_id FROM deliveries
                WHERE {_IS_PAUSED} AND subscription_id > held.id
                ORDER BY subscription_id, id LIMIT 1)
        FROM held WHERE held.id IS NOT NULL
    )
"""
"""Subscriptions with paused deliveries, one index step each (compare `endpoints.list_waiting`)."""

_SELECT_RELEASABLE = f"""{_PAUSED_SUBSCRIPTIONS}
    SELECT s.id, s.deleted_us IS NOT NULL AS deleted
    FROM held JOIN subscriptions s ON s.id = held.id
    WHERE s.deleted_us IS NOT NULL OR s.state = 'active' LIMIT :limit
"""


def list_releasable(tx: Tx, *, limit: int) -> list[ReleasableSubscription]:
    """List subscriptions with deliveries to release or cancel, at one index step each."""
    rows = tx.execute(sql.parse(_SELECT_RELEASABLE), {"limit": limit})
    return [ReleasableSubscription(row.id, bool(row.deleted)) for row in rows]


# `>=` finds the same row as `=`, since each of these subscriptions has a paused delivery. It leaves
# PostgreSQL only the index whose first row this is; for `=` it may read and sort all rows of the
# subscription.
_SELECT_PAUSED_BEFORE = f"""{_PAUSED_SUBSCRIPTIONS}
    SELECT held.id FROM held WHERE (
        SELECT d.created_us FROM deliveries d
        WHERE d.state = 'pending' AND d.due_us >= {PAUSED_DUE_US} AND d.subscription_id >= held.id
        ORDER BY d.subscription_id, d.id LIMIT 1
    ) < :before LIMIT :limit
"""


def list_paused_before(tx: Tx, before_us: int, *, limit: int) -> list[int]:
    """List subscriptions with deliveries paused since before a moment: two index steps each."""
    parameters = {"before": before_us, "limit": limit}
    return list(tx.execute(sql.parse(_SELECT_PAUSED_BEFORE), parameters).scalars())


PAUSED_TOO_LONG_REASON = "The delivery was paused for longer than undelivered ones are kept."


def cancel_paused_before(tx: Tx, subscription_id: int, before_us: int) -> int:
    """Cancel up to PAUSE_BATCH deliveries paused since before a moment; return how many."""
    selected = _select_first(tx, _IS_PAUSED, where=" WHERE created_us < :before")
    return _cancel(tx, subscription_id, selected, PAUSED_TOO_LONG_REASON, before=before_us)


def count_pending(tx: Tx) -> int:
    """Count pending deliveries."""
    query = sql.parse("SELECT count(*) FROM deliveries WHERE state = 'pending'")
    return int(tx.execute(query).scalar_one())
