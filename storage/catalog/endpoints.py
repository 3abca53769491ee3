"""Endpoints: the receivers of deliveries, each leased by at most one deliver process at a time.

A process leases an endpoint that has something due, and releases it with what it learnt of its
pace; the endpoints of a process that died are free again when their leases have run out.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import delete, select, text

from storage.catalog import bulk
from storage.catalog.engine import Tx, execute_sql, now_us, sql
from storage.catalog.schema import endpoints

# `'pending'` is spelled out in every statement: the partial indexes want a literal. And the first
# of an index's order is asked for, not a minimum or whether there is any: a planner that has seen
# next to nothing pending looks for those among all.
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


JUST_NOW_US = 1_000_000
"""Longer than an attempt of a lease that has just ended may still begin."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a receiver fares: see `pipelines.notifying.pacing`."""

    id: int
    failures: int
    width: float
    resume_us: int


def known(tx: Tx, address: str) -> int:
    """The id of the endpoint at this address, made when it is new; it stays until the end of the
    transaction, which gives it a subscription."""
    made = text("INSERT INTO endpoints (address) VALUES (:address) ON CONFLICT DO NOTHING")
    query = select(endpoints.c.id).where(endpoints.c.address == address)
    held = query.with_for_update(read=True, key_share=True)
    while True:
        tx.execute(made, {"address": address})
        # None when it was being forgotten just then.
        found = tx.execute(held).scalar()
        if found is not None:
            return int(found)


_UNNAMED = "id NOT IN (SELECT endpoint_id FROM subscriptions)"


def unnamed(tx: Tx, *, limit: int) -> list[int]:
    """Endpoints of which no subscription is left, not even a deleted one."""
    query = text(f"SELECT id FROM endpoints WHERE {_UNNAMED} ORDER BY id LIMIT :limit")
    return list(tx.execute(query, {"limit": limit}).scalars())


def forget(tx: Tx, ids: Collection[int]) -> int:
    """Remove those of the endpoints that still have no subscription, and that nobody holds; returns
    how many."""
    if not ids:
        return 0
    free = select(endpoints.c.id).where(endpoints.c.id.in_(ids), endpoints.c.lease_us < now_us(tx))
    held = free.order_by(endpoints.c.id).with_for_update(skip_locked=True)
    ours = tx.execute(held).scalars().all()
    # Looked at anew: until they were held, another subscription could have been made.
    gone = delete(endpoints).where(endpoints.c.id.in_(ours), text(f"endpoints.{_UNNAMED}"))
    return tx.execute(gone).rowcount


def waiting(tx: Tx, *, limit: int) -> list[int]:
    """Endpoints with something due that nobody leases, the longest unserved first and those that
    keep failing last.

    Walks from one endpoint with anything pending to the next: a million deliveries that wait for
    one dead receiver are one step.
    """
    rows = tx.execute(text(_BUSY), {"now": now_us(tx), "limit": limit})
    return [int(ident) for ident in rows.scalars()]


def lock(tx: Tx, ids: Collection[int]) -> None:
    """Lock these rows in the order of their ids, before any of them is claimed or released.

    Who claims an endpoint waits for a release under way, and who releases it looks for due
    deliveries after the lock: one of them sees what was recorded last.
    """
    if not ids or tx.dialect.name == "sqlite":
        return
    locked = select(endpoints.c.id).where(endpoints.c.id.in_(ids)).order_by(endpoints.c.id)
    tx.execute(locked.with_for_update(key_share=True))


def claim(
    tx: Tx, probes: Mapping[int, bool], *, token: str, lease_s: float, patience: int
) -> list[Endpoint]:
    """Lease those of the endpoints that are free; `probes` says which even if they keep failing.

    An endpoint with `patience` failures is not claimed before its `resume_us`.
    """
    if not probes:
        return []
    columns: bulk.Columns = {
        "id": ("bigint", list(probes)),
        "probe": ("boolean", list(probes.values())),
    }
    source, parameters = bulk.derived(tx, "wanted", columns)
    now = now_us(tx)
    taken = (
        f"UPDATE endpoints SET token = :token, lease_us = :until FROM {source}"
        " WHERE endpoints.id = wanted.id AND endpoints.lease_us < :now"
        " AND (endpoints.failures < :patience OR (wanted.probe AND endpoints.resume_us <= :now))"
        " RETURNING endpoints.id, failures, width, resume_us"
    )
    limits = {"until": now + int(lease_s * 1e6), "now": now, "patience": patience}
    rows = tx.execute(sql(taken), {**parameters, **limits, "token": token})
    return [Endpoint(*row) for row in rows]


def leased(tx: Tx, ids: Collection[int]) -> set[int]:
    """Which of these are leased by any process."""
    query = select(endpoints.c.id).where(
        endpoints.c.id.in_(ids), endpoints.c.lease_us >= now_us(tx)
    )
    return set(tx.execute(query).scalars()) if ids else set()


def in_use(tx: Tx, ident: int) -> bool:
    """Whether a process leases the endpoint, or did a moment ago; waits for a claim under way."""
    query = select(endpoints.c.lease_us).where(
        endpoints.c.id == ident, endpoints.c.token.is_not(None)
    )
    lease_us = tx.execute(query.with_for_update(read=True)).scalar()
    return lease_us is not None and lease_us > now_us(tx) - JUST_NOW_US


def renew(tx: Tx, ids: Collection[int], *, token: str, lease_s: float) -> set[int]:
    """Extend leases; returns the ids, what is missing was taken by another process."""
    if not ids:
        return set()
    source, parameters = bulk.derived(tx, "held", {"id": ("bigint", sorted(ids))})
    kept = (
        f"UPDATE endpoints SET lease_us = :until FROM {source}"
        " WHERE endpoints.id = held.id AND endpoints.token = :token RETURNING endpoints.id"
    )
    until = now_us(tx) + int(lease_s * 1e6)
    return set(execute_sql(tx, kept, {**parameters, "token": token, "until": until}).scalars())


def release(tx: Tx, rows: Iterable[Endpoint], *, token: str) -> None:
    """Release endpoints with what was learnt of them; those lost meanwhile are left alone."""
    listed = sorted(rows, key=lambda row: row.id)
    if not listed:
        return
    columns: bulk.Columns = {
        "id": ("bigint", [row.id for row in listed]),
        "failures": ("integer", [row.failures for row in listed]),
        "width": ("double precision", [row.width for row in listed]),
        "resume_us": ("bigint", [row.resume_us for row in listed]),
    }
    source, parameters = bulk.derived(tx, "back", columns)
    released = (
        "UPDATE endpoints SET token = NULL, lease_us = :now, failures = back.failures,"
        f" width = back.width, resume_us = back.resume_us FROM {source}"
        " WHERE endpoints.id = back.id AND endpoints.token = :token"
    )
    execute_sql(tx, released, {**parameters, "token": token, "now": now_us(tx) - 1})


def wake(tx: Tx, ident: int) -> None:
    """Let the next attempt go out at once, whatever the endpoint's past."""
    woken = text("UPDATE endpoints SET resume_us = 0 WHERE id = :id AND token IS NULL")
    tx.execute(woken, {"id": ident})
