"""The audit log: who changed what in accounts, policies and logins."""

from dataclasses import asdict, dataclass
from uuid import uuid4

from storage.catalog.statements import Tx, execute, sql

OPERATOR = "the operator"
"""Author of changes made at a terminal.

No token can name it, since identities contain no space.
"""
EXPIRING_ACTIONS = ("login", "login_failed", "locked_out", "logout")
"""Actions that change nothing and anyone can cause; their records expire."""
EXPIRE_BATCH = 1_000
"""Records of one action that `expire` deletes, the oldest first."""


@dataclass(frozen=True, slots=True)
class AuditChange:
    """A change to be recorded.

    `what` was done to `target`, spelled `<kind>/<id>`. `before` and `after` are JSON; None stands
    for an absent object.
    """

    who: str
    what: str
    target: str
    before: str | None
    after: str | None
    request_id: str


@dataclass(frozen=True, slots=True)
class AuditRecord(AuditChange):
    """A recorded change."""

    id: int
    uuid: str
    at_us: int


_ADD = (
    "INSERT INTO audit (uuid, at_us, who, what, target, before, after, request_id)"
    " VALUES (:uuid, :now, :who, :what, :target, :before, :after, :request_id)"
)


def append(tx: Tx, change: AuditChange) -> None:
    """Record a change."""
    execute(tx, _ADD, {**asdict(change), "uuid": str(uuid4())}).close()


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Author, action and start time of changes to list; None means any."""

    who: str | None = None
    what: str | None = None
    since_us: int | None = None


_CONDITIONS = {
    "who": "who = :who",
    "what": "what = :what",
    "since_us": "at_us >= :since_us",
    "before_id": "id < :before_id",
}


def list_records(
    tx: Tx, filter_: AuditFilter, *, before_id: int | None, limit: int
) -> list[AuditRecord]:
    """List changes with ids below `before_id`, the newest first."""
    values = {**asdict(filter_), "before_id": before_id}
    conditions = [condition for name, condition in _CONDITIONS.items() if values[name] is not None]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT * FROM audit {where} ORDER BY id DESC LIMIT :limit"
    rows = tx.execute(sql(query), {**values, "limit": limit})
    return [AuditRecord(**row._mapping) for row in rows]


_EXPIRE = sql(
    "DELETE FROM audit WHERE at_us < :before AND id IN"
    " (SELECT id FROM audit WHERE what = :what ORDER BY id LIMIT :limit)"
)


def expire(tx: Tx, before_us: int) -> int:
    """Delete old records of expiring actions, a bounded number of each; return the most of one."""
    parameters = {"before": before_us, "limit": EXPIRE_BATCH}
    return max(
        tx.execute(_EXPIRE, {**parameters, "what": what}).rowcount for what in EXPIRING_ACTIONS
    )
