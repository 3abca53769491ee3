"""How subscriptions fare: failures without a success between them, and whom they disable.

Counted for each subscription by itself: one that is dead says nothing of others at its endpoint.
Only what changes is written, so attempts that are taken cost one read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from storage.catalog import bulk
from storage.catalog.deliveries import Result
from storage.catalog.engine import Tx, execute_sql, now_us, sql

LEAST_FAILURES = 5
"""Failures that disable at the least: few and far between are no sign of a dead receiver."""


@dataclass(frozen=True, slots=True)
class _Fared:
    """What a batch of results says of one subscription, and what was known of it before."""

    id: int
    uuid: str
    taken: int
    failed: int
    began_us: int
    before: int
    reason: str

    @property
    def changes(self) -> bool:
        return bool(self.failed) if not self.taken else bool(self.before)


_FARED = """
    SELECT s.id, s.uuid, s.failures AS before,
        sum(CASE WHEN done.state = 'delivered' THEN 1 ELSE 0 END) AS taken,
        sum(CASE WHEN done.state <> 'delivered' AND d.event_type <> 'TEST' THEN 1 ELSE 0 END)
            AS failed,
        min(done.at_us) AS began_us, max(done.reason) AS reason
    FROM {source} JOIN deliveries d ON d.id = done.id
    JOIN subscriptions s ON s.id = d.subscription_id
    WHERE s.deleted_us IS NULL GROUP BY s.id, s.uuid, s.failures
"""


def count(tx: Tx, results: Sequence[Result], *, disable_after_s: float) -> list[str]:
    """Count what these attempts say of their subscriptions; returns the uuids of those that are
    disabled by it: after so long of nothing but failures, never when it is 0."""
    changed = [fared for fared in _fared(tx, results) if fared.changes]
    if not changed:
        return []
    _lock(tx, [fared.id for fared in changed])
    _clear(tx, [fared.id for fared in changed if fared.taken])
    failing = [fared for fared in changed if not fared.taken]
    _fail(tx, failing)
    return _disable(tx, failing, disable_after_s) if disable_after_s > 0 else []


def _fared(tx: Tx, results: Sequence[Result]) -> list[_Fared]:
    if not results:
        return []
    columns: bulk.Columns = {
        "id": ("bigint", [result.delivery_id for result in results]),
        "state": ("text", [result.state for result in results]),
        "at_us": ("bigint", [result.at_us for result in results]),
        "reason": ("text", [result.reason for result in results]),
    }
    source, parameters = bulk.derived(tx, "done", columns)
    rows = execute_sql(tx, _FARED.format(source=source), parameters)
    return [
        _Fared(row.id, row.uuid, row.taken, row.failed, row.began_us, row.before, row.reason or "")
        for row in rows
    ]


def _lock(tx: Tx, ids: Sequence[int]) -> None:
    """In the order of their ids, before any delivery: as everybody else does."""
    if tx.dialect.name == "sqlite":
        return
    held = "SELECT id FROM subscriptions WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE"
    tx.execute(sql(held), {"ids": sorted(ids)})


def _clear(tx: Tx, ids: Sequence[int]) -> None:
    if not ids:
        return
    source, parameters = bulk.derived(tx, "fine", {"id": ("bigint", ids)})
    cleared = f"UPDATE subscriptions SET failures = 0, failing_us = NULL FROM {source}"
    tx.execute(text(cleared + " WHERE subscriptions.id = fine.id"), parameters)


def _fail(tx: Tx, failing: Sequence[_Fared]) -> None:
    if not failing:
        return
    columns: bulk.Columns = {
        "id": ("bigint", [fared.id for fared in failing]),
        "failed": ("integer", [fared.failed for fared in failing]),
        "began_us": ("bigint", [fared.began_us for fared in failing]),
    }
    source, parameters = bulk.derived(tx, "bad", columns)
    counted = (
        "UPDATE subscriptions SET failures = subscriptions.failures + bad.failed,"
        " failing_us = coalesce(subscriptions.failing_us, bad.began_us)"
        f" FROM {source} WHERE subscriptions.id = bad.id"
    )
    tx.execute(text(counted), parameters)


def _disable(tx: Tx, failing: Sequence[_Fared], after_s: float) -> list[str]:
    if not failing:
        return []
    told = f"Nothing but failures for {_span(after_s)}; the latest: "
    columns: bulk.Columns = {
        "id": ("bigint", [fared.id for fared in failing]),
        "reason": ("text", [told + fared.reason for fared in failing]),
    }
    source, parameters = bulk.derived(tx, "bad", columns)
    disabled = (
        "UPDATE subscriptions SET state = 'disabled', state_us = :now, state_reason = bad.reason"
        f" FROM {source} WHERE subscriptions.id = bad.id AND subscriptions.state = 'active'"
        " AND subscriptions.failures >= :least AND subscriptions.failing_us <= :since"
        " RETURNING subscriptions.uuid"
    )
    now = now_us(tx)
    limits = {"now": now, "least": LEAST_FAILURES, "since": now - int(after_s * 1e6)}
    return list(tx.execute(text(disabled), {**parameters, **limits}).scalars())


def _span(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days:g} days" if days >= 1 else f"{seconds:g} s"
