"""Users, groups and roles: policies, memberships, what they own, and keys of service accounts.

Every change locks all accounts until the transaction ends: changes are rare, and one may concern
accounts of every kind. Policies are stored uninterpreted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Row, select

from storage.catalog import versions
from storage.catalog.statements import (
    Tx,
    attribute_columns,
    execute,
    execute_with,
    find_row,
    look_up_rows,
    make_mapper,
    sql,
    tuple_columns,
)
from storage.catalog.tables.accounts import memberships

AccountKind = Literal["user", "group", "role"]
AccountStatus = Literal["enabled", "disabled"]

ACCOUNTS_HEAD, ALL_ACCOUNTS = "accounts", "all"
"""The head that every change locks, and that counts them."""


@dataclass(frozen=True, slots=True)
class AccountRow:
    """A user, a group or a role; `policy` is JSON."""

    kind: AccountKind
    id: str
    status: AccountStatus
    policy: str | None
    built_in: bool
    created_us: int
    changed_us: int


class AccountKey(NamedTuple):
    """Kind and id of an account."""

    kind: AccountKind
    id: str


_map_account = make_mapper(AccountRow)


def _account_from_row(row: Row[Any]) -> AccountRow:
    return _map_account(row, built_in=bool(row.built_in))


def lock_all(tx: Tx) -> None:
    """Lock all accounts until the transaction ends."""
    versions.lock_heads(tx, ACCOUNTS_HEAD, [ALL_ACCOUNTS])


def count_change(tx: Tx) -> int:
    """Count a change of the locked accounts; return the count."""
    return versions.count_change_by_clock(tx, ACCOUNTS_HEAD, ALL_ACCOUNTS)


def read_change_count(tx: Tx) -> int:
    """Return a number that grows with every change of an account and never repeats."""
    return versions.read_changes(tx, ACCOUNTS_HEAD, ALL_ACCOUNTS)


_FIND = sql("SELECT * FROM accounts WHERE kind = :kind AND id = :id")


def find(tx: Tx, name: AccountKey) -> AccountRow | None:
    """Return an account."""
    return find_row(tx, _account_from_row, _FIND, name._asdict())


def filter_missing(tx: Tx, names: Collection[AccountKey]) -> set[AccountKey]:
    """Return those accounts that do not exist: one query."""
    if not names:
        return set()
    wanted = attribute_columns(sorted(names), text="kind id")
    same = "a.kind = wanted.kind AND a.id = wanted.id"
    rows = look_up_rows(tx, "a.kind, a.id", wanted, ("accounts", "a", same))
    return set(names) - {AccountKey(row.kind, row.id) for row in rows}


_ADD = (
    "INSERT INTO accounts (kind, id, status, policy, created_us, changed_us)"
    " VALUES (:kind, :id, 'enabled', :policy, :now, :now) RETURNING *"
)


def insert(tx: Tx, name: AccountKey, policy: str | None) -> AccountRow:
    """Insert an account; the caller holds the lock and checked that it is new."""
    row = execute(tx, _ADD, {**name._asdict(), "policy": policy})
    return _account_from_row(row.one())


_SET = "UPDATE accounts SET {column} = :value, changed_us = :now WHERE kind = :kind AND id = :id"


def set_status(tx: Tx, name: AccountKey, status: AccountStatus) -> None:
    """Enable or disable an account."""
    execute(tx, _SET.format(column="status"), {**name._asdict(), "value": status})


def set_policy(tx: Tx, name: AccountKey, policy: str | None) -> None:
    """Set or remove the policy of an account."""
    execute(tx, _SET.format(column="policy"), {**name._asdict(), "value": policy})


def delete(tx: Tx, account: AccountKey) -> None:
    """Delete an account and all its memberships."""
    for condition in (
        "memberships WHERE member_kind = :kind AND member = :id",
        "memberships WHERE kind = :kind AND name = :id",
        "accounts WHERE kind = :kind AND id = :id",
    ):
        tx.execute(sql(f"DELETE FROM {condition}"), account._asdict())


def list_ids(tx: Tx, kind: AccountKind, *, after: str, limit: int) -> list[str]:
    """List ids in byte order, after a given one: one index range."""
    query = "SELECT id FROM accounts WHERE kind = :kind AND id > :after ORDER BY id LIMIT :limit"
    rows = tx.execute(sql(query), {"kind": kind, "after": after, "limit": limit})
    return list(rows.scalars())


class Membership(NamedTuple):
    """Membership of a user in a group, or a role of a user or group."""

    member: AccountKey
    of: AccountKey


def _change_memberships(tx: Tx, statement: str, pairs: Collection[Membership]) -> list[Membership]:
    if not pairs:
        return []
    rows_given = [(*pair.member, *pair.of) for pair in sorted(pairs)]
    columns = tuple_columns(rows_given, member_kind="text", member="text", kind="text", name="text")
    rows = execute_with(tx, statement, "given", columns)
    return sorted(
        Membership(AccountKey(row.member_kind, row.member), AccountKey(row.kind, row.name))
        for row in rows
    )


def insert_memberships(tx: Tx, pairs: Collection[Membership]) -> list[Membership]:
    """Insert memberships; return those that are new, in order."""
    statement = (
        "INSERT INTO memberships (member_kind, member, kind, name)"
        " SELECT member_kind, member, kind, name FROM {source} WHERE true"
        " ON CONFLICT DO NOTHING RETURNING member_kind, member, kind, name"
    )
    return _change_memberships(tx, statement, pairs)


def delete_memberships(tx: Tx, pairs: Collection[Membership]) -> list[Membership]:
    """Delete memberships; return those that existed, in order."""
    statement = (
        "DELETE FROM memberships WHERE (member_kind, member, kind, name) IN"
        " (SELECT member_kind, member, kind, name FROM {source})"
        " RETURNING member_kind, member, kind, name"
    )
    return _change_memberships(tx, statement, pairs)


def list_memberships(
    tx: Tx, member: AccountKey, kind: AccountKind, *, after: str, limit: int
) -> list[str]:
    """List what an account is a member of, in byte order after a given one."""
    c = memberships.c
    mine = (c.member_kind == member.kind) & (c.member == member.id) & (c.kind == kind)
    query = select(c.name).where(mine, c.name > after).order_by(c.name).limit(limit)
    return list(tx.execute(query).scalars())


def list_members(
    tx: Tx, group: AccountKey, kind: AccountKind, *, after: str, limit: int
) -> list[str]:
    """List the members of an account, in byte order after a given one."""
    c = memberships.c
    theirs = (c.kind == group.kind) & (c.name == group.id) & (c.member_kind == kind)
    query = select(c.member).where(theirs, c.member > after).order_by(c.member).limit(limit)
    return list(tx.execute(query).scalars())


def count_members(tx: Tx, group: AccountKey) -> Mapping[str, int]:
    """Count the members of an account by kind."""
    query = (
        "SELECT member_kind, count(*) FROM memberships WHERE kind = :kind AND name = :id"
        " GROUP BY member_kind"
    )
    return {row[0]: row[1] for row in tx.execute(sql(query), group._asdict())}


def find_overfull(
    tx: Tx, names: Collection[AccountKey], kind: AccountKind, *, most: int
) -> list[str]:
    """Return those accounts with more than `most` memberships of a kind: one query."""
    if not names:
        return []
    wanted = attribute_columns(sorted(names), text="kind id")
    query = (
        "SELECT wanted.id FROM {source} JOIN memberships AS m ON m.member_kind = wanted.kind"
        " AND m.member = wanted.id AND m.kind = :of"
        " GROUP BY wanted.id HAVING count(*) > :most ORDER BY wanted.id"
    )
    return [*execute_with(tx, query, "wanted", wanted, of=kind, most=most).scalars()]


class EffectiveAccount(NamedTuple):
    """An account whose policy applies to a user; `via` is the group that has the role, else empty.

    The status is None when the account does not exist.
    """

    kind: AccountKind
    via: str
    id: str
    status: AccountStatus | None
    policy: str | None


_SELECT_EFFECTIVE = """
WITH mine AS (
  SELECT m.name AS name FROM memberships m
  WHERE m.member_kind = 'user' AND m.member = :email AND m.kind = 'group'
  UNION SELECT claimed.id FROM {source}
)
SELECT 'user' AS kind, '' AS via, a.id AS id, a.status AS status, a.policy AS policy
FROM accounts a WHERE a.kind = 'user' AND a.id = :email
UNION ALL
SELECT 'group', '', mine.name, a.status, a.policy
FROM mine LEFT JOIN accounts a ON a.kind = 'group' AND a.id = mine.name
UNION ALL
SELECT 'role', '', m.name, a.status, a.policy
FROM memberships m JOIN accounts a ON a.kind = 'role' AND a.id = m.name
WHERE m.member_kind = 'user' AND m.member = :email AND m.kind = 'role'
UNION ALL
SELECT 'role', mine.name, m.name, a.status, a.policy
FROM mine JOIN memberships m ON m.member_kind = 'group' AND m.member = mine.name AND m.kind = 'role'
JOIN accounts a ON a.kind = 'role' AND a.id = m.name
"""


def list_effective_accounts(tx: Tx, email: str, claimed: Collection[str]) -> list[EffectiveAccount]:
    """List the accounts that apply to a user who claims these groups, too: one query."""
    groups = {"id": ("text", sorted(claimed))}
    rows = execute_with(tx, _SELECT_EFFECTIVE, "claimed", groups, email=email)
    return sorted(
        (EffectiveAccount(*row) for row in rows), key=lambda one: (one.kind, one.via, one.id)
    )


OwnedType = Literal["area", "collection", "subscription"]


class OwnedResource(NamedTuple):
    """A resource with an owner."""

    type: OwnedType
    uuid: str


_OWNED_QUERIES: dict[OwnedType, str] = {
    "area": "SELECT uuid FROM areas WHERE owner = :owner AND state <> 'DELETED'",
    "collection": "SELECT DISTINCT uuid FROM owned WHERE owner = :owner",
    "subscription": "SELECT uuid FROM subscriptions WHERE owner = :owner AND deleted_us IS NULL",
}
OWNED_TYPES: tuple[OwnedType, ...] = tuple(_OWNED_QUERIES)
"""In the order of listings."""


def list_owned(
    tx: Tx, owner: str, types: tuple[OwnedType, ...], *, after: OwnedResource | None, limit: int
) -> list[OwnedResource]:
    """List what a user owns, by type, then uuid; at most one query per type."""
    resources: list[OwnedResource] = []
    for type_ in types:
        if (after is None or type_ >= after.type) and len(resources) < limit:
            begin = after.uuid if after is not None and type_ == after.type else ""
            query = f"{_OWNED_QUERIES[type_]} AND uuid > :after ORDER BY uuid LIMIT :limit"
            span = {"owner": owner, "after": begin, "limit": limit - len(resources)}
            rows = tx.execute(sql(query), span)
            resources += [OwnedResource(type_, uuid) for uuid in rows.scalars()]
    return resources


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """A public key of an account; `jwk` is JSON."""

    email: str
    kid: str
    jwk: str
    created_us: int


_SELECT_USABLE_KEY = (
    "SELECT jwk FROM service_keys WHERE email = :email AND kid = :kid AND NOT EXISTS (SELECT 1"
    " FROM accounts WHERE kind = 'user' AND id = :email AND status = 'disabled')"
)


def find_usable_service_key(tx: Tx, email: str, kid: str) -> str | None:
    """Return a key, unless its account is disabled: one query."""
    return tx.execute(sql(_SELECT_USABLE_KEY), {"email": email, "kid": kid}).scalar_one_or_none()


def insert_service_key(tx: Tx, email: str, kid: str, jwk: str) -> bool:
    """Insert a key; False when the account has one with this id."""
    statement = (
        "INSERT INTO service_keys (email, kid, jwk, created_us) VALUES (:email, :kid, :jwk, :now)"
        " ON CONFLICT (email, kid) DO NOTHING"
    )
    return execute(tx, statement, {"email": email, "kid": kid, "jwk": jwk}).rowcount == 1


def delete_service_keys(tx: Tx, email: str, kid: str | None = None) -> list[str]:
    """Delete one key, or all keys if `kid` is None; return the ids of deleted ones."""
    query = "DELETE FROM service_keys WHERE email = :email" + (" AND kid = :kid" if kid else "")
    return sorted(tx.execute(sql(f"{query} RETURNING kid"), {"email": email, "kid": kid}).scalars())


def list_service_keys(tx: Tx, email: str | None = None) -> list[ServiceKey]:
    """List all keys, or those of one account, by account and then by age."""
    where = "WHERE email = :email" if email else ""
    query = sql(f"SELECT * FROM service_keys {where} ORDER BY email, created_us, kid")
    return [ServiceKey(**row._mapping) for row in tx.execute(query, {"email": email})]
