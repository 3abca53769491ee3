"""Subscriptions, their consecutive failures, and auto-disable.

Every change bumps a counter per replica and type. A process that caches compiled stored queries
reads that one row to see whether its cache is current.

Failures are counted per subscription: a dead one says nothing about others at the same endpoint.
Only changes are written, so successful attempts cost one read.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
    Select,
    case,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)

from storage.catalog import sql, versions
from storage.catalog.deliveries import TEST_EVENT, AttemptResult
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.event_log import endpoints, subscriptions
from storage.model import EventType, Replica

SubscriptionType = Literal["jmespath", "elasticsearch"]
SubscriptionState = Literal["active", "paused", "disabled"]
JMESPATH: Final = "jmespath"
ELASTICSEARCH: Final = "elasticsearch"

OWNER_HEAD, CHANGES_HEAD = "subscriber", "subscriptions"
"""Kinds of head rows: one per owner, locked to count; one per replica and type, counting changes.
"""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A stored subscription; paused and disabled ones receive only test deliveries.

    `query` is JMESPath text or the JSON of an es_query. Secrets are sealed. `failures` counts
    the failures since the last success, the first of them at `failing_us`.
    """

    uuid: str
    owner: str
    replica: Replica
    type: SubscriptionType
    query: str | None
    callback_url: str
    method: str
    encoding: str
    form_fields: Mapping[str, str]
    payload_form_field: str
    hmac_key_id: str | None = None
    hmac_secret: bytes | None = field(default=None, repr=False)
    attachments: Mapping[str, Mapping[str, str]] | None = None
    id: int = 0
    endpoint_id: int = 0
    created_us: int = 0
    hmac_previous: bytes | None = field(default=None, repr=False)
    hmac_previous_us: int | None = None
    state: SubscriptionState = "active"
    state_reason: str | None = None
    state_us: int | None = None
    failures: int = 0
    failing_us: int | None = None


def insert_subscription(
    tx: Tx, fresh: Subscription, *, address: str, limit: int
) -> Subscription | None:
    """Insert a subscription to all later events; None when its owner already has `limit`."""
    versions.lock_heads(tx, OWNER_HEAD, [fresh.owner])
    if count_by_owner(tx, fresh.owner) >= limit:
        return None
    statement = insert(subscriptions).values(
        **{name: getattr(fresh, name) for name in _INSERTED_FIELDS},
        form_fields=json.dumps(dict(fresh.form_fields)),
        attachments=None if fresh.attachments is None else json.dumps(fresh.attachments),
        endpoint_id=_upsert_endpoint(tx, address),
        created_us=sql.clock(tx),
    )
    row = tx.execute(statement.returning(subscriptions)).one()
    count_change(tx, fresh.replica, fresh.type)
    return _subscription_from_row(row)


def _upsert_endpoint(tx: Tx, address: str) -> int:
    """Return the id of an address, inserting it if new, and lock it until the transaction ends."""
    statement = text("INSERT INTO endpoints (address) VALUES (:address) ON CONFLICT DO NOTHING")
    query = select(endpoints.c.id).where(endpoints.c.address == address)
    held = query.with_for_update(read=True, key_share=True)
    while True:
        tx.execute(statement, {"address": address})
        # None when it was deleted in between.
        found = tx.execute(held).scalar()
        if found is not None:
            return int(found)


_INSERTED_FIELDS = (
    *("uuid", "owner", "replica", "type", "query", "callback_url", "method", "encoding"),
    *("payload_form_field", "hmac_key_id", "hmac_secret"),
)


def count_by_owner(tx: Tx, owner: str) -> int:
    """Count an owner's subscriptions of both types in all replicas."""
    query = select(func.count()).select_from(subscriptions)
    owned = (subscriptions.c.owner == owner) & subscriptions.c.deleted_us.is_(None)
    return int(tx.execute(query.where(owned)).scalar_one())


def list_by_owner(
    tx: Tx, owner: str, replica: Replica, kind: SubscriptionType
) -> list[Subscription]:
    """List an owner's live subscriptions, the oldest first."""
    query = (
        select(subscriptions)
        .filter_by(owner=owner, replica=replica)
        .where(subscriptions.c.type == kind, subscriptions.c.deleted_us.is_(None))
        .order_by(subscriptions.c.id)
    )
    return [_subscription_from_row(row) for row in tx.execute(query)]


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription with the times of its latest deliveries that succeeded and that failed."""

    subscription: Subscription
    delivered_us: int | None
    failed_us: int | None


def list_statuses(tx: Tx, owner: str) -> list[SubscriptionStatus]:
    """List an owner's live subscriptions of both types in all replicas, the latest first."""
    live = (subscriptions.c.owner == owner) & subscriptions.c.deleted_us.is_(None)
    query = select(
        subscriptions, _select_finished("delivered"), _select_finished("failed")
    ).order_by(subscriptions.c.id.desc())
    return [
        SubscriptionStatus(_subscription_from_row(row), row.delivered_us, row.failed_us)
        for row in tx.execute(query.where(live))
    ]


def _select_finished(state: str) -> ColumnElement[int]:
    """Read the end of one index range for each event type."""
    ends = (
        "SELECT * FROM (SELECT d.finished_us AS at_us FROM deliveries d"
        f" WHERE d.subscription_id = subscriptions.id AND d.state = '{state}'"
        f" AND d.event_type = '{kind}' ORDER BY d.created_us DESC, d.id DESC LIMIT 1) AS {kind}_end"
        for kind in (*get_args(EventType), TEST_EVENT)
    )
    latest = f"(SELECT max(at_us) FROM ({' UNION ALL '.join(ends)}) AS {state}_ends)"
    return literal_column(latest, BigInteger()).label(f"{state}_us")


def find(tx: Tx, uuid: str) -> Subscription | None:
    """Return the live subscription of a uuid, whatever its owner."""
    live = (subscriptions.c.uuid == uuid) & subscriptions.c.deleted_us.is_(None)
    return sql.find_row(tx, _subscription_from_row, select(subscriptions).where(live))


def mark_deleted(tx: Tx, subscription: Subscription) -> int | None:
    """Mark a subscription deleted; return the time, or None if it was deleted already."""
    now = now_us(tx)
    live = (subscriptions.c.id == subscription.id) & subscriptions.c.deleted_us.is_(None)
    if tx.execute(update(subscriptions).where(live).values(deleted_us=now)).rowcount != 1:
        return None
    count_change(tx, subscription.replica, subscription.type)
    return now


def rotate_secret(
    tx: Tx, subscription: Subscription, *, secret: bytes, key_id: str | None, until_us: int
) -> None:
    """Set a new secret, and keep the previous one valid until `until_us`."""
    overlaps = until_us > now_us(tx)
    signed = subscriptions.c.hmac_secret.is_not(None)
    values: dict[str, Any] = {
        # Read under the row's lock: of two simultaneous rotations, the later keeps the earlier's.
        "hmac_previous": subscriptions.c.hmac_secret if overlaps else None,
        "hmac_previous_us": case((signed, until_us), else_=None) if overlaps else None,
        "hmac_secret": secret,
        "hmac_key_id": subscription.hmac_key_id if key_id is None else key_id,
    }
    tx.execute(update(subscriptions).filter_by(id=subscription.id).values(**values))


def expire_previous_secrets(tx: Tx) -> int:
    """Delete previous secrets that are no longer valid; return how many."""
    expired = subscriptions.c.hmac_previous_us <= now_us(tx)
    statement = (
        update(subscriptions).where(expired).values(hmac_previous=None, hmac_previous_us=None)
    )
    return tx.execute(statement).rowcount


def list_deleted_before(tx: Tx, us: int, *, limit: int) -> list[int]:
    """List ids of subscriptions deleted before a moment, the longest ago first."""
    long_ago = subscriptions.c.deleted_us.is_not(None) & (subscriptions.c.deleted_us < us)
    query = select(subscriptions.c.id).where(long_ago)
    return list(tx.execute(query.order_by(subscriptions.c.deleted_us).limit(limit)).scalars())


def delete(tx: Tx, ident: int) -> bool:
    """Delete the row of a deleted subscription, unless deliveries or replays refer to it."""
    statement = (
        "DELETE FROM subscriptions WHERE id = :id AND deleted_us IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.subscription_id = :id)"
        " AND NOT EXISTS (SELECT 1 FROM replays r WHERE r.subscription_id = :id)"
    )
    return bool(tx.execute(sql.parse(statement), {"id": ident}).rowcount)


def pause(tx: Tx, ident: int) -> None:
    """Pause an active subscription; a disabled one stays disabled."""
    active = (subscriptions.c.id == ident) & (subscriptions.c.state == "active")
    values = {"state": "paused", "state_us": sql.clock(tx)}
    tx.execute(update(subscriptions).where(active).values(**values))


def resume(tx: Tx, ident: int) -> None:
    """Activate a subscription and reset its failures."""
    fresh = {"state": "active", "state_reason": None, "state_us": None}
    failures = {"failures": 0, "failing_us": None}
    statement = update(subscriptions).filter_by(id=ident)
    tx.execute(statement.values(**fresh, **failures))


def read_changes(tx: Tx, replica: Replica, kind: SubscriptionType) -> int:
    """Return how often the subscriptions of a replica and type changed."""
    return versions.read_changes(tx, CHANGES_HEAD, f"{replica}/{kind}")


def list_live_ids(tx: Tx, replica: Replica, kind: SubscriptionType) -> list[int]:
    """List the ids of live subscriptions that events of a replica may match, in order."""
    return sorted(tx.execute(_select_live(replica, kind)).scalars())


def has_live(tx: Tx, replica: Replica, kind: SubscriptionType) -> bool:
    """Return whether a replica has any live subscription of a type."""
    return tx.execute(_select_live(replica, kind).limit(1)).scalar() is not None


def _select_live(replica: Replica, kind: SubscriptionType) -> Select[Any]:
    return (
        select(subscriptions.c.id)
        .where(subscriptions.c.replica == replica, subscriptions.c.type == kind)
        .where(subscriptions.c.deleted_us.is_(None))
    )


def find_inactive(tx: Tx, ids: Collection[int]) -> dict[int, Literal["deleted", "halted"]]:
    """Return which subscriptions are deleted, and which are paused or disabled."""
    if not ids:
        return {}
    same = "s.id = wanted.id AND (s.deleted_us IS NOT NULL OR s.state <> 'active')"
    columns = "s.id, s.deleted_us IS NOT NULL AS deleted"
    wanted = {"id": ("bigint", sorted(ids))}
    rows = sql.look_up_rows(tx, columns, wanted, ("subscriptions", "s", same))
    return {row.id: "deleted" if row.deleted else "halted" for row in rows}


def find_all(tx: Tx, ids: Collection[int]) -> list[Subscription]:
    """Return subscriptions by id, in any order."""
    ordered = sorted(ids)
    chunks = [ordered[start : start + 500] for start in range(0, len(ordered), 500)]
    queries = [select(subscriptions).where(subscriptions.c.id.in_(chunk)) for chunk in chunks]
    return [_subscription_from_row(row) for query in queries for row in tx.execute(query)]


def count_change(tx: Tx, replica: Replica, kind: SubscriptionType) -> None:
    """Count a change, so that caches of compiled stored queries are refreshed."""
    versions.count_change(tx, CHANGES_HEAD, f"{replica}/{kind}")


def _subscription_from_row(row: Row[Any]) -> Subscription:
    return sql.map_row(
        Subscription,
        row,
        form_fields=json.loads(row.form_fields),
        attachments=None if row.attachments is None else json.loads(row.attachments),
    )


MIN_FAILURES = 5
"""Least failures that disable: a few spread over a long time do not prove a dead receiver."""


@dataclass(frozen=True, slots=True)
class _FailureCount:
    """Results of a batch for one subscription, and its count of failures before."""

    id: int
    before: int
    taken: int
    failed: int
    began_us: int
    reason: str

    @property
    def has_changes(self) -> bool:
        return bool(self.failed) if not self.taken else bool(self.before)


_SELECT_FAILURE_COUNTS = """
    SELECT s.id, s.failures, sum(CASE WHEN done.state = 'delivered' THEN 1 ELSE 0 END),
        sum(CASE WHEN done.state <> 'delivered' AND d.event_type <> 'TEST' THEN 1 ELSE 0 END),
        min(done.at_us), coalesce(max(done.reason), '')
    FROM {source} JOIN deliveries d ON d.id = done.delivery_id
    JOIN subscriptions s ON s.id = d.subscription_id
    WHERE s.deleted_us IS NULL GROUP BY s.id, s.failures
"""


def count_failures(
    tx: Tx, results: Sequence[AttemptResult], *, disable_after_s: float
) -> list[str]:
    """Count successes and failures of a batch; return the uuids of subscriptions it disables.

    A subscription is disabled after `disable_after_s` seconds of failures only; 0 disables none.
    Deliveries that their owner resent do not count.
    """
    results = [result for result in results if not result.is_resend]
    if not results:
        return []
    columns = sql.attribute_columns(results, bigint="delivery_id at_us", text="state reason")
    rows = sql.execute_with(tx, _SELECT_FAILURE_COUNTS, "done", columns)
    changed = [count for count in (_FailureCount(*row) for row in rows) if count.has_changes]
    if not changed:
        return []
    _lock_subscriptions(tx, [count.id for count in changed])
    if successful := [count.id for count in changed if count.taken]:
        cleared = (
            "UPDATE subscriptions SET failures = 0, failing_us = NULL FROM {source}"
            " WHERE subscriptions.id = fine.id"
        )
        sql.execute_with(tx, cleared, "fine", {"id": ("bigint", successful)})
    failing = [count for count in changed if not count.taken]
    if not failing:
        return []
    _record_failures(tx, failing)
    return _disable_failing(tx, failing, disable_after_s) if disable_after_s > 0 else []


def _lock_subscriptions(tx: Tx, ids: Sequence[int]) -> None:
    """Lock subscriptions in the order of their ids and before any delivery, as all writers do."""
    if tx.dialect.name == "sqlite":
        return
    query = "SELECT id FROM subscriptions WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE"
    tx.execute(sql.parse(query), {"ids": sorted(ids)})


def _record_failures(tx: Tx, failing: Sequence[_FailureCount]) -> None:
    columns = sql.attribute_columns(failing, bigint="id began_us", integer="failed")
    counted = (
        "UPDATE subscriptions SET failures = subscriptions.failures + bad.failed,"
        " failing_us = coalesce(subscriptions.failing_us, bad.began_us)"
        " FROM {source} WHERE subscriptions.id = bad.id"
    )
    sql.execute_with(tx, counted, "bad", columns)


def _disable_failing(tx: Tx, failing: Sequence[_FailureCount], after_s: float) -> list[str]:
    days = after_s / 86_400
    duration = f"{days:g} days" if days >= 1 else f"{after_s:g} s"
    prefix = f"Only failures for {duration}; the latest: "
    reasons = [(count.id, prefix + count.reason) for count in failing]
    columns = sql.tuple_columns(reasons, id="bigint", reason="text")
    statement = (
        "UPDATE subscriptions SET state = 'disabled', state_us = :now, state_reason = bad.reason"
        " FROM {source} WHERE subscriptions.id = bad.id AND subscriptions.state = 'active'"
        " AND subscriptions.failures >= :least AND subscriptions.failing_us <= :now - :span_us"
        " RETURNING subscriptions.uuid"
    )
    limits = {"least": MIN_FAILURES, "span_us": int(after_s * 1e6)}
    return list(sql.execute_with(tx, statement, "bad", columns, **limits).scalars())


class SealedSecrets(NamedTuple):
    """The encrypted signing keys of one subscription."""

    id: int
    uuid: str
    hmac_secret: bytes | None
    hmac_previous: bytes | None


def list_sealed_secrets(tx: Tx, *, after_id: int, limit: int) -> list[SealedSecrets]:
    """List encrypted signing keys by id; of deleted subscriptions, too."""
    columns = (getattr(subscriptions.c, name) for name in SealedSecrets._fields)
    sealed = subscriptions.c.hmac_secret.is_not(None) | subscriptions.c.hmac_previous.is_not(None)
    query = select(*columns).where(subscriptions.c.id > after_id, sealed)
    rows = tx.execute(query.order_by(subscriptions.c.id).limit(limit))
    return [SealedSecrets(*row) for row in rows]


def replace_sealed_secret(tx: Tx, ident: int, column: str, old: bytes, new: bytes) -> bool:
    """Replace an encrypted signing key; False if it has changed meanwhile."""
    held = subscriptions.c[column]
    changed = update(subscriptions).where(subscriptions.c.id == ident, held == old)
    return tx.execute(changed.values({column: new})).rowcount == 1
