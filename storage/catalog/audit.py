"""The audit log: who changed what in accounts, policies and logins."""

from dataclasses import asdict, dataclass
from uuid import uuid4

from sqlalchemy import select

from storage.catalog import sql
from storage.catalog.sql import Tx
from storage.catalog.tables.accounts import audit

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


def append(tx: Tx, change: AuditChange) -> None:
    """Record a change."""
    sql.execute(
        tx,
        "INSERT INTO audit (uuid, at_us, who, what, target, before, after, request_id)"
        " VALUES (:uuid, :now, :who, :what, :target, :before, :after, :request_id)",
        {**asdict(change), "uuid": str(uuid4())},
    ).close()


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Author, action, target, start and end of changes to list; None means any."""

    who: str | None = None
    what: str | None = None
    since_us: int | None = None
    target: str | None = None
    until_us: int | None = None
    """Exclusive."""


def list_records(
    tx: Tx, filter_: AuditFilter, *, before_id: int | None, limit: int
) -> list[AuditRecord]:
    """List changes with ids below `before_id`, the newest first."""
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if filter_.who is not None:
        query = query.where(audit.c.who == filter_.who)
    if filter_.what is not None:
        query = query.where(audit.c.what == filter_.what)
    if filter_.since_us is not None:
        query = query.where(audit.c.at_us >= filter_.since_us)
    if filter_.target is not None:
        query = query.where(audit.c.target == filter_.target)
    if filter_.until_us is not None:
        query = query.where(audit.c.at_us < filter_.until_us)
    if before_id is not None:
        query = query.where(audit.c.id < before_id)
    return sql.map_rows(AuditRecord, tx.execute(query))


_EXPIRE = sql.parse(
    "DELETE FROM audit WHERE at_us < :before AND id IN"
    " (SELECT id FROM audit WHERE what = :what ORDER BY id LIMIT :limit)"
)


def expire(tx: Tx, before_us: int) -> int:
    """Delete old records of expiring actions, a bounded number of each; return the most of one."""
    parameters = {"before": before_us, "limit": EXPIRE_BATCH}
    return max(
        tx.execute(_EXPIRE, {**parameters, "what": what}).rowcount for what in EXPIRING_ACTIONS
    )
