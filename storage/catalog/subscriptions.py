"""Subscriptions: whom to tell of which events. Owners count theirs under a lock.

Every change bumps a counter of its replica and type, so that whoever keeps compiled stored queries
sees from one row whether they are still all there is.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import Row, Select, case, func, insert, select, text, update

from storage.catalog import bulk, endpoints, heads
from storage.catalog.engine import Tx, now_us
from storage.catalog.schema import subscriptions
from storage.model import Replica

SubscriptionType = Literal["jmespath", "elasticsearch"]
Standing = Literal["active", "paused", "disabled"]
JMESPATH: Final = "jmespath"
ELASTICSEARCH: Final = "elasticsearch"

OWNER, CHANGES = "subscriber", "subscriptions"
"""Kinds of head rows: one an owner, locked to count; one a replica and type, counting changes."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """`query` is JMESPath text or the JSON of an es_query; secrets are sealed. What is not
    `active` is sent nothing but tests; `failing_us` is when its failures began."""

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
    state: Standing = "active"
    state_reason: str | None = None
    state_us: int | None = None
    failing_us: int | None = None


def add(tx: Tx, fresh: Subscription, *, address: str, limit: int) -> Subscription | None:
    """Record it, due to be told of every later event; None when its owner has `limit` already."""
    heads.lock(tx, OWNER, [fresh.owner])
    if count(tx, fresh.owner) >= limit:
        return None
    values = _values(fresh) | {
        "endpoint_id": endpoints.known(tx, address),
        "created_us": now_us(tx),
    }
    made = insert(subscriptions).values(**values).returning(subscriptions)
    row = tx.execute(made).one()
    changed(tx, fresh.replica, fresh.type)
    return _subscription(row)


def _values(fresh: Subscription) -> dict[str, Any]:
    return {
        "uuid": fresh.uuid,
        "owner": fresh.owner,
        "replica": fresh.replica,
        "type": fresh.type,
        "query": fresh.query,
        "callback_url": fresh.callback_url,
        "method": fresh.method,
        "encoding": fresh.encoding,
        "form_fields": json.dumps(dict(fresh.form_fields)),
        "payload_form_field": fresh.payload_form_field,
        "hmac_key_id": fresh.hmac_key_id,
        "hmac_secret": fresh.hmac_secret,
        "attachments": None if fresh.attachments is None else json.dumps(fresh.attachments),
    }


def count(tx: Tx, owner: str) -> int:
    """How many an owner has, of both types and in all replicas."""
    query = select(func.count()).select_from(subscriptions)
    mine = (subscriptions.c.owner == owner) & subscriptions.c.deleted_us.is_(None)
    return int(tx.execute(query.where(mine)).scalar_one())


def of_owner(tx: Tx, owner: str, replica: Replica, kind: SubscriptionType) -> list[Subscription]:
    """An owner's live subscriptions, the oldest first."""
    query = (
        select(subscriptions)
        .where(subscriptions.c.owner == owner, subscriptions.c.replica == replica)
        .where(subscriptions.c.type == kind, subscriptions.c.deleted_us.is_(None))
        .order_by(subscriptions.c.id)
    )
    return [_subscription(row) for row in tx.execute(query)]


def find(tx: Tx, uuid: str) -> Subscription | None:
    """The live subscription of that uuid, whosoever it is."""
    live = (subscriptions.c.uuid == uuid) & subscriptions.c.deleted_us.is_(None)
    row = tx.execute(select(subscriptions).where(live)).first()
    return None if row is None else _subscription(row)


def remove(tx: Tx, gone: Subscription) -> int | None:
    """Mark it deleted; the time of it, or None when somebody else did so just now."""
    now = now_us(tx)
    live = (subscriptions.c.id == gone.id) & subscriptions.c.deleted_us.is_(None)
    if tx.execute(update(subscriptions).where(live).values(deleted_us=now)).rowcount != 1:
        return None
    changed(tx, gone.replica, gone.type)
    return now


def rotate(tx: Tx, one: Subscription, *, secret: bytes, key_id: str | None, until_us: int) -> None:
    """Sign by a new secret from now on, and by the one before it too until then."""
    overlaps = until_us > now_us(tx)
    signed = subscriptions.c.hmac_secret.is_not(None)
    values: dict[str, Any] = {
        # The one there is when the row is locked: of two changes the later keeps the earlier's.
        "hmac_previous": subscriptions.c.hmac_secret if overlaps else None,
        "hmac_previous_us": case((signed, until_us), else_=None) if overlaps else None,
        "hmac_secret": secret,
        "hmac_key_id": one.hmac_key_id if key_id is None else key_id,
    }
    tx.execute(update(subscriptions).where(subscriptions.c.id == one.id).values(**values))


def forget_previous(tx: Tx) -> int:
    """Remove the secrets that sign no more; returns how many."""
    past = subscriptions.c.hmac_previous_us <= now_us(tx)
    gone = update(subscriptions).where(past).values(hmac_previous=None, hmac_previous_us=None)
    return tx.execute(gone).rowcount


def deleted_before(tx: Tx, us: int, *, limit: int) -> list[int]:
    """The ids of those that were deleted before then, the longest ago first."""
    long_ago = subscriptions.c.deleted_us.is_not(None) & (subscriptions.c.deleted_us < us)
    query = select(subscriptions.c.id).where(long_ago)
    return list(tx.execute(query.order_by(subscriptions.c.deleted_us).limit(limit)).scalars())


def forget(tx: Tx, ident: int) -> bool:
    """Remove a deleted one, unless anything still refers to it."""
    gone = (
        "DELETE FROM subscriptions WHERE id = :id AND deleted_us IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.subscription_id = :id)"
        " AND NOT EXISTS (SELECT 1 FROM replays r WHERE r.subscription_id = :id)"
    )
    return bool(tx.execute(text(gone), {"id": ident}).rowcount)


def halt(tx: Tx, ident: int) -> None:
    """Have it sent nothing until it is resumed; one that was disabled stays so."""
    active = (subscriptions.c.id == ident) & (subscriptions.c.state == "active")
    paused = {"state": "paused", "state_us": now_us(tx)}
    tx.execute(update(subscriptions).where(active).values(**paused))


def resume(tx: Tx, ident: int) -> None:
    """Have it sent again what is due; its failures are forgotten."""
    fresh = {"state": "active", "state_reason": None, "state_us": None}
    forgotten = {"failures": 0, "failing_us": None}
    which = update(subscriptions).where(subscriptions.c.id == ident)
    tx.execute(which.values(**fresh, **forgotten))


def changes(tx: Tx, replica: Replica, kind: SubscriptionType) -> int:
    """How often the subscriptions of a replica and type changed."""
    return heads.changes(tx, CHANGES, f"{replica}/{kind}")


def live(tx: Tx, replica: Replica, kind: SubscriptionType) -> list[int]:
    """The ids of all that an event of the replica may match, in order."""
    return sorted(tx.execute(_select_live(replica, kind)).scalars())


def any_live(tx: Tx, replica: Replica, kind: SubscriptionType) -> bool:
    """Whether an event of the replica may match any of this type."""
    return tx.execute(_select_live(replica, kind).limit(1)).scalar() is not None


def _select_live(replica: Replica, kind: SubscriptionType) -> Select[Any]:
    return (
        select(subscriptions.c.id)
        .where(subscriptions.c.replica == replica, subscriptions.c.type == kind)
        .where(subscriptions.c.deleted_us.is_(None))
    )


def stopped(tx: Tx, ids: Collection[int]) -> dict[int, Literal["deleted", "halted"]]:
    """Which of these are deleted, and which are paused or disabled."""
    if not ids:
        return {}
    source, parameters = bulk.derived(tx, "asked", {"id": ("bigint", sorted(ids))})
    query = text(
        f"SELECT s.id, s.deleted_us IS NOT NULL AS deleted FROM {source}"
        f" {bulk.one_each(tx, 'subscriptions', 's', 's.id = asked.id')}"
        " WHERE s.deleted_us IS NOT NULL OR s.state <> 'active'"
    )
    rows = tx.execute(query, parameters)
    return {row.id: "deleted" if row.deleted else "halted" for row in rows}


def by_ids(tx: Tx, ids: Collection[int]) -> list[Subscription]:
    """Those subscriptions, in no promised order."""
    listed = sorted(ids)
    chunks = [listed[start : start + 500] for start in range(0, len(listed), 500)]
    queries = [select(subscriptions).where(subscriptions.c.id.in_(chunk)) for chunk in chunks]
    return [_subscription(row) for query in queries for row in tx.execute(query)]


def changed(tx: Tx, replica: Replica, kind: SubscriptionType) -> None:
    """Count a change of them: whoever keeps compiled stored queries looks again."""
    counted = text(
        "INSERT INTO heads (kind, uuid, changes) VALUES (:kind, :name, 1)"
        " ON CONFLICT (kind, uuid) DO UPDATE SET changes = heads.changes + 1"
    )
    tx.execute(counted, {"kind": CHANGES, "name": f"{replica}/{kind}"})


def _subscription(row: Row[Any]) -> Subscription:
    return Subscription(
        uuid=row.uuid,
        owner=row.owner,
        replica=row.replica,
        type=row.type,
        query=row.query,
        callback_url=row.callback_url,
        method=row.method,
        encoding=row.encoding,
        form_fields=json.loads(row.form_fields),
        payload_form_field=row.payload_form_field,
        hmac_key_id=row.hmac_key_id,
        hmac_secret=row.hmac_secret,
        attachments=None if row.attachments is None else json.loads(row.attachments),
        id=row.id,
        endpoint_id=row.endpoint_id,
        created_us=row.created_us,
        hmac_previous=row.hmac_previous,
        hmac_previous_us=row.hmac_previous_us,
        state=row.state,
        state_reason=row.state_reason,
        state_us=row.state_us,
        failing_us=row.failing_us,
    )
