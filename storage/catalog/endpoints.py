"""Webhook endpoints, each leased by at most one deliver process at a time.

A process leases an endpoint that has something due, and releases it with the new pace. When a
process dies, its endpoints are free again once their leases expire.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import delete, select, text

from storage.catalog import bulk
from storage.catalog.engine import Tx, now_us
from storage.catalog.tables.event_log import endpoints

# Every statement spells `'pending'` as a literal: the partial indexes require it. The statements
# select the first row in index order, not min() or EXISTS: a planner with old statistics would
# search all rows for those.
_BUSY = """
    WITH RECURSIVE busy (id) AS (
        SELECT (SELECT endpoint_id FROM deliveries WHERE state = 'pending'
                ORDER BY endpoint_id, due_us LIMIT 1)
        UNION ALL
        SELECT (SELECT endpoint_id FROM deliveries
                WHERE state = 'pending' AND endpoint_id > busy.id
                ORDER BY endpoint_id, due_us LIMIT 1)
        FROM busy WHERE busy.id IS NOT NULL
    )
    SELECT e.id FROM busy JOIN endpoints e ON e.id = busy.id
    WHERE e.lease_us < :now AND e.resume_us <= :now
    AND (SELECT d.due_us FROM deliveries d
         WHERE d.state = 'pending' AND d.endpoint_id = e.id
         ORDER BY d.due_us LIMIT 1) <= :now
    ORDER BY e.resume_us > 0, e.lease_us LIMIT :limit
"""


RECENT_LEASE_US = 1_000_000
"""Longer than an attempt may still begin after its lease ended."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Pace and failures of a receiver; see `pipelines.deliveries`."""

    id: int
    failures: int
    width: float
    resume_us: int


def upsert(tx: Tx, address: str) -> int:
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


_IS_UNREFERENCED = "id NOT IN (SELECT endpoint_id FROM subscriptions)"


def list_unreferenced(tx: Tx, *, limit: int) -> list[int]:
    """List endpoints without any subscription, not even a deleted one."""
    query = text(f"SELECT id FROM endpoints WHERE {_IS_UNREFERENCED} ORDER BY id LIMIT :limit")
    return list(tx.execute(query, {"limit": limit}).scalars())


def delete_unreferenced(tx: Tx, ids: Collection[int]) -> int:
    """Delete those endpoints that still have no subscription and no lease; return how many."""
    if not ids:
        return 0
    free = select(endpoints.c.id).where(endpoints.c.id.in_(ids), endpoints.c.lease_us < now_us(tx))
    held = free.order_by(endpoints.c.id).with_for_update(skip_locked=True)
    unleased = tx.execute(held).scalars().all()
    # Checked again under the lock: a subscription could have been inserted meanwhile.
    statement = delete(endpoints).where(
        endpoints.c.id.in_(unleased), text(f"endpoints.{_IS_UNREFERENCED}")
    )
    return tx.execute(statement).rowcount


def list_waiting(tx: Tx, *, limit: int) -> list[int]:
    """List unleased endpoints with due deliveries, the longest unserved first, failing ones last.

    Walks from one endpoint with pending deliveries to the next, so a million deliveries to one dead
    receiver cost one step.
    """
    rows = tx.execute(text(_BUSY), {"now": now_us(tx), "limit": limit})
    return [int(ident) for ident in rows.scalars()]


def lock(tx: Tx, ids: Collection[int]) -> None:
    """Lock endpoints in the order of their ids, before any of them is claimed or released.

    Claiming waits for a release under way, and releasing looks for due deliveries after the lock:
    so one of the two sees the latest delivery.
    """
    if not ids or tx.dialect.name == "sqlite":
        return
    locked = select(endpoints.c.id).where(endpoints.c.id.in_(ids)).order_by(endpoints.c.id)
    tx.execute(locked.with_for_update(key_share=True))


def claim(
    tx: Tx, probes: Mapping[int, bool], *, token: str, lease_s: float, patience: int
) -> list[Endpoint]:
    """Lease those endpoints that are free; `probes` says which to claim even if they keep failing.

    An endpoint with `patience` failures is otherwise not claimed before its `resume_us`.
    """
    if not probes:
        return []
    columns = bulk.tuple_columns(probes.items(), id="bigint", probe="boolean")
    taken = (
        "UPDATE endpoints SET token = :token, lease_us = :now + :lease_us FROM {source}"
        " WHERE endpoints.id = wanted.id AND endpoints.lease_us < :now"
        " AND (endpoints.failures < :patience OR (wanted.probe AND endpoints.resume_us <= :now))"
        " RETURNING endpoints.id, failures, width, resume_us"
    )
    limits = {"token": token, "lease_us": int(lease_s * 1e6), "patience": patience}
    return [Endpoint(*row) for row in bulk.execute_with(tx, taken, "wanted", columns, **limits)]


def filter_leased(tx: Tx, ids: Collection[int]) -> set[int]:
    """Return which of these endpoints are leased by any process."""
    query = select(endpoints.c.id).where(
        endpoints.c.id.in_(ids), endpoints.c.lease_us >= now_us(tx)
    )
    return set(tx.execute(query).scalars()) if ids else set()


def is_leased(tx: Tx, ident: int) -> bool:
    """Return whether an endpoint is or just was leased; waits for a claim under way."""
    query = select(endpoints.c.lease_us).where(
        endpoints.c.id == ident, endpoints.c.token.is_not(None)
    )
    lease_us = tx.execute(query.with_for_update(read=True)).scalar()
    return lease_us is not None and lease_us > now_us(tx) - RECENT_LEASE_US


def renew(tx: Tx, ids: Collection[int], *, token: str, lease_s: float) -> set[int]:
    """Extend leases; return the ids still leased, without those that another process took."""
    if not ids:
        return set()
    kept = (
        "UPDATE endpoints SET lease_us = :now + :lease_us FROM {source}"
        " WHERE endpoints.id = held.id AND endpoints.token = :token RETURNING endpoints.id"
    )
    held = {"id": ("bigint", sorted(ids))}
    lease_us = int(lease_s * 1e6)
    return {*bulk.execute_with(tx, kept, "held", held, token=token, lease_us=lease_us).scalars()}


def release(tx: Tx, rows: Iterable[Endpoint], *, token: str) -> None:
    """Release endpoints with their new pace, except those whose lease was lost."""
    listed = sorted(rows, key=lambda row: row.id)
    if not listed:
        return
    columns = bulk.attribute_columns(
        listed, bigint="id resume_us", integer="failures", float8="width"
    )
    released = (
        "UPDATE endpoints SET token = NULL, lease_us = :now - 1, failures = back.failures,"
        " width = back.width, resume_us = back.resume_us FROM {source}"
        " WHERE endpoints.id = back.id AND endpoints.token = :token"
    )
    bulk.execute_with(tx, released, "back", columns, token=token)


def wake(tx: Tx, ident: int) -> None:
    """Allow the next attempt at once, whatever the endpoint's past failures."""
    woken = text("UPDATE endpoints SET resume_us = 0 WHERE id = :id AND token IS NULL")
    tx.execute(woken, {"id": ident})
