"""Quotas of users and groups, and counters of what they use.

A counter changes in the transaction that changes what it counts. A change locks the rows of the
user and of their groups until the transaction ends, so deposits that compete for what is left
wait for each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sqlalchemy import delete, func, insert, select

from storage.catalog import sql
from storage.catalog.sql import Tx, now_us
from storage.catalog.tables.accounts import quota_reservations, quotas

OwnerKind = Literal["user", "group"]
NO_LIMIT = -1
"""A quota without a limit, whatever the default is."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes and files."""

    bytes: int = 0
    files: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.bytes + other.bytes, self.files + other.files)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.bytes - other.bytes, self.files - other.files)


NO_AMOUNT = Amount()


class Limits(NamedTuple):
    """Limits of bytes and files; None where there is none."""

    bytes: int | None = None
    files: int | None = None


class DefaultQuotas(NamedTuple):
    """Limits of users and of groups that have no quota of their own."""

    user: Limits
    group: Limits


class Quota(NamedTuple):
    """A quota that an operator set: None stands for the default, NO_LIMIT for no limit."""

    kind: OwnerKind
    name: str
    bytes: int | None
    files: int | None


class QuotaUsage(NamedTuple):
    """What a user or group uses, its limits, and the quota that an operator set."""

    kind: OwnerKind
    name: str
    used: Amount
    limits: Limits
    quota: Quota | None = None


def set_quota(tx: Tx, quota: Quota) -> None:
    """Set or replace the quota of a user or group."""
    sql.upsert(tx, quotas, quota._asdict())


def find_quota(tx: Tx, kind: OwnerKind, name: str) -> Quota | None:
    """Return the quota that an operator set for a user or group."""
    query = select(quotas).filter_by(kind=kind, name=name)
    return sql.find_row(tx, Quota, query)


def remove_quota(tx: Tx, kind: OwnerKind, name: str) -> None:
    """Remove the quota of a user or group, so that the default holds."""
    tx.execute(delete(quotas).filter_by(kind=kind, name=name))


_QUOTA_COLUMNS = ", ".join(
    f"(SELECT q.{column} FROM quotas AS q"
    f" WHERE q.kind = quota_usage.kind AND q.name = quota_usage.name) AS quota_{column}"
    for column in ("bytes", "files")
)
# Groups are counted only if they have a limit: a counter is locked by each deposit of a member.
# All users are in the built-in group, so the default of groups does not apply to it.
_ADD_USAGE = f"""
INSERT INTO quota_usage (kind, name, bytes, files)
SELECT kind, name, sum(bytes), sum(files) FROM (
  SELECT 'user' AS kind, added.owner AS name, added.bytes, added.files FROM {{source}}
  UNION ALL
  SELECT 'group', m.name, added.bytes, added.files FROM {{source}}
  JOIN memberships AS m
    ON m.member_kind = 'user' AND m.member = added.owner AND m.kind = 'group'
  WHERE EXISTS (SELECT 1 FROM quotas AS q WHERE q.kind = 'group' AND q.name = m.name)
  OR (:has_default AND NOT EXISTS (
    SELECT 1 FROM accounts AS a WHERE a.kind = 'group' AND a.id = m.name AND a.built_in
  ))
) AS counted WHERE true GROUP BY kind, name ORDER BY kind, name
ON CONFLICT (kind, name) DO UPDATE
SET bytes = quota_usage.bytes + excluded.bytes, files = quota_usage.files + excluded.files
RETURNING kind, name, bytes, files, {_QUOTA_COLUMNS}
"""


def add_usage(tx: Tx, added: Mapping[str, Amount], defaults: DefaultQuotas) -> Sequence[QuotaUsage]:
    """Add to the counters of users and of their groups, which stay locked; return the new values.

    An amount may be negative, or zero to lock the counters only. One statement.
    """
    if not added:
        return ()
    columns = sql.tuple_columns(
        [(owner, amount.bytes, amount.files) for owner, amount in added.items()],
        owner="text",
        bytes="bigint",
        files="bigint",
    )
    has_default = defaults.group != Limits()
    rows = sql.execute_with(tx, _ADD_USAGE, "added", columns, has_default=has_default)
    return [_usage_from_row(tuple(row), defaults) for row in rows]


def _usage_from_row(
    row: tuple[OwnerKind, str, int, int, int | None, int | None], defaults: DefaultQuotas
) -> QuotaUsage:
    kind, name, size, files, quota_bytes, quota_files = row
    default = defaults.user if kind == "user" else defaults.group
    limits = Limits(
        _choose_limit(quota_bytes, default.bytes), _choose_limit(quota_files, default.files)
    )
    return QuotaUsage(kind, name, Amount(size, files), limits)


def _choose_limit(quota: int | None, default: int | None) -> int | None:
    if quota is None:
        return default
    return None if quota == NO_LIMIT else quota


def list_usage(
    tx: Tx, defaults: DefaultQuotas, *, kind: OwnerKind, after: str, limit: int
) -> list[QuotaUsage]:
    """List users or groups that have a counter or a quota, by name after a given one."""
    query = f"""
    SELECT quota_usage.kind, quota_usage.name, coalesce(c.bytes, 0), coalesce(c.files, 0),
      {_QUOTA_COLUMNS}, EXISTS(
        SELECT 1 FROM quotas AS q WHERE q.kind = quota_usage.kind AND q.name = quota_usage.name
      )
    FROM (
      SELECT kind, name FROM quota_usage WHERE kind = :kind AND name > :after
      UNION SELECT kind, name FROM quotas WHERE kind = :kind AND name > :after
      ORDER BY name LIMIT :limit
    ) AS quota_usage
    LEFT JOIN quota_usage AS c ON c.kind = quota_usage.kind AND c.name = quota_usage.name
    ORDER BY quota_usage.name
    """
    rows = tx.execute(sql.parse(query), {"kind": kind, "after": after, "limit": limit})
    found = []
    for *row, is_set in rows:
        usage = _usage_from_row(tuple(row), defaults)
        quota = Quota(kind, usage.name, *row[4:]) if is_set else None
        found.append(usage._replace(quota=quota))
    return found


class Reservation(NamedTuple):
    """Room of an owner's quotas for an upload that is under way."""

    id: str
    owner: str
    amount: Amount


def insert_reservation(tx: Tx, reservation: Reservation, *, lease_s: float) -> None:
    """Insert a reservation, whose amount the counters have, and which expires in `lease_s`."""
    ident, owner, amount = reservation
    row = {"id": ident, "owner": owner, "bytes": amount.bytes, "files": amount.files}
    expires_us = now_us(tx) + int(lease_s * 1e6)
    tx.execute(insert(quota_reservations).values(**row, expires_us=expires_us))


def find_reservation(tx: Tx, ident: str) -> Amount:
    """Return the amount of a reservation; none if it ended or expired."""
    c = quota_reservations.c
    row = tx.execute(select(c.bytes, c.files).where(c.id == ident)).one_or_none()
    return Amount(*row) if row else NO_AMOUNT


def delete_reservation(tx: Tx, ident: str, *, expired_us: int | None = None) -> Amount:
    """Delete a reservation and return its amount; none if it is gone.

    With `expired_us` only if it has expired by then. Transactions call this before they change
    counters, so that none waits for another one that waits for it.
    """
    c = quota_reservations.c
    matches = c.id == ident
    if expired_us is not None:
        matches &= c.expires_us <= expired_us
    statement = delete(quota_reservations).where(matches).returning(c.bytes, c.files)
    row = tx.execute(statement).one_or_none()
    return Amount(*row) if row else NO_AMOUNT


def list_expired_reservations(tx: Tx, us: int, *, limit: int = 100) -> list[tuple[str, str]]:
    """List ids and owners of reservations that have expired by a moment."""
    c = quota_reservations.c
    query = select(c.id, c.owner).where(c.expires_us <= us).order_by(c.expires_us).limit(limit)
    return [(ident, owner) for ident, owner in tx.execute(query)]


def sum_reservations(tx: Tx) -> dict[str, Amount]:
    """Return what is reserved for the uploads of each owner."""
    c = quota_reservations.c
    query = select(c.owner, func.sum(c.bytes), func.sum(c.files)).group_by(c.owner)
    return {owner: Amount(int(size), int(files)) for owner, size, files in tx.execute(query)}


def read_counters(tx: Tx) -> dict[str, Amount]:
    """Return the counters of all users."""
    rows = tx.execute(sql.parse("SELECT name, bytes, files FROM quota_usage WHERE kind = 'user'"))
    return {name: Amount(size, files) for name, size, files in rows}


def count_groups(tx: Tx, names: Sequence[str]) -> None:
    """Set the counters of groups to the sum of those of their members, if anything is counted."""
    for statement in _COUNT_GROUPS:
        sql.execute_with(tx, statement, "counted", {"name": ("text", sorted(names))})


_COUNT_GROUPS = (
    # Locks the counters first, so that the sums contain deposits that were under way.
    "INSERT INTO quota_usage (kind, name, bytes, files)"
    " SELECT 'group', name, 0, 0 FROM {source}"
    " WHERE EXISTS (SELECT 1 FROM quota_usage) ORDER BY name"
    " ON CONFLICT (kind, name) DO UPDATE SET bytes = quota_usage.bytes",
    "UPDATE quota_usage SET (bytes, files) = ("
    " SELECT coalesce(sum(u.bytes), 0), coalesce(sum(u.files), 0) FROM memberships AS m"
    " JOIN quota_usage AS u ON u.kind = 'user' AND u.name = m.member"
    " WHERE m.kind = 'group' AND m.name = quota_usage.name AND m.member_kind = 'user')"
    " WHERE kind = 'group' AND name IN (SELECT name FROM {source})",
)


def list_counted_groups(tx: Tx, *, has_default: bool) -> list[str]:
    """List the groups whose use is counted: those with a limit, and those counted before."""
    query = sql.parse(
        "SELECT name FROM quota_usage WHERE kind = 'group'"
        " UNION SELECT name FROM quotas WHERE kind = 'group'"
        " UNION SELECT id FROM accounts WHERE :has_default AND kind = 'group' AND NOT built_in"
        " ORDER BY 1"
    )
    return list(tx.execute(query, {"has_default": has_default}).scalars())
