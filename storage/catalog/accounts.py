"""Users, groups and roles: policies, memberships, what they own, and keys of service accounts.

Every change locks all accounts until the transaction ends: changes are rare, and one may concern
accounts of every kind. Policies are stored uninterpreted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sqlalchemy import delete, func, select, update

from storage.catalog import sql, versions
from storage.catalog.sql import Tx
from storage.catalog.tables.accounts import accounts, memberships, service_keys

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


def lock_all(tx: Tx) -> None:
    """Lock all accounts until the transaction ends."""
    versions.lock_heads(tx, ACCOUNTS_HEAD, [ALL_ACCOUNTS])


def count_change(tx: Tx) -> int:
    """Count a change of the locked accounts; return the count."""
    return versions.count_change_by_clock(tx, ACCOUNTS_HEAD, ALL_ACCOUNTS)


def read_change_count(tx: Tx) -> int:
    """Return a number that grows with every change of an account and never repeats."""
    return versions.read_changes(tx, ACCOUNTS_HEAD, ALL_ACCOUNTS)


_COLUMNS = sql.list_columns(accounts, "accounts")
_FIND = sql.parse(f"SELECT {_COLUMNS} FROM accounts WHERE kind = :kind AND id = :id")


def find(tx: Tx, name: AccountKey) -> AccountRow | None:
    """Return an account."""
    return sql.find_row(tx, AccountRow, _FIND, name._asdict())


def filter_missing(tx: Tx, names: Collection[AccountKey]) -> set[AccountKey]:
    """Return those accounts that do not exist: one query."""
    if not names:
        return set()
    wanted = sql.attribute_columns(sorted(names), text="kind id")
    same = "a.kind = wanted.kind AND a.id = wanted.id"
    rows = sql.look_up_rows(tx, "a.kind, a.id", wanted, ("accounts", "a", same))
    return set(names) - {AccountKey(row.kind, row.id) for row in rows}


def insert(tx: Tx, name: AccountKey, policy: str | None) -> AccountRow:
    """Insert an account; the caller holds the lock and checked that it is new."""
    row = sql.execute(
        tx,
        "INSERT INTO accounts (kind, id, status, policy, created_us, changed_us)"
        f" VALUES (:kind, :id, 'enabled', :policy, :now, :now) RETURNING {_COLUMNS}",
        {**name._asdict(), "policy": policy},
    )
    return sql.map_row(AccountRow, row.one())


def set_status(tx: Tx, name: AccountKey, status: AccountStatus) -> None:
    """Enable or disable an account."""
    _update(tx, name, status=status)


def set_policy(tx: Tx, name: AccountKey, policy: str | None) -> None:
    """Set or remove the policy of an account."""
    _update(tx, name, policy=policy)


def _update(tx: Tx, name: AccountKey, **values: str | None) -> None:
    account = update(accounts).filter_by(**name._asdict())
    tx.execute(account.values(**values, changed_us=sql.clock(tx)))


def delete_account(tx: Tx, account: AccountKey) -> None:
    """Delete an account and all its memberships."""
    tx.execute(delete(memberships).filter_by(member_kind=account.kind, member=account.id))
    tx.execute(delete(memberships).filter_by(kind=account.kind, name=account.id))
    tx.execute(delete(accounts).filter_by(**account._asdict()))


def list_ids(tx: Tx, kind: AccountKind, *, after: str, limit: int) -> list[str]:
    """List ids in byte order, after a given one: one index range."""
    query = select(accounts.c.id).where(accounts.c.kind == kind, accounts.c.id > after)
    return list(tx.execute(query.order_by(accounts.c.id).limit(limit)).scalars())


def list_rows(
    tx: Tx, kind: AccountKind, *, prefix: str, after: str, limit: int
) -> list[AccountRow]:
    """List accounts whose id has a prefix, in byte order after a given one: one index range."""
    c = accounts.c
    query = select(accounts).where(c.kind == kind, c.id > after, c.id >= prefix)
    if prefix:
        query = query.where(c.id < prefix[:-1] + chr(ord(prefix[-1]) + 1))
    return sql.map_rows(AccountRow, tx.execute(query.order_by(c.id).limit(limit)))


class Membership(NamedTuple):
    """Membership of a user in a group, or a role of a user or group."""

    member: AccountKey
    of: AccountKey


def _change_memberships(tx: Tx, statement: str, pairs: Collection[Membership]) -> list[Membership]:
    if not pairs:
        return []
    rows_given = [(*pair.member, *pair.of) for pair in sorted(pairs)]
    columns = sql.tuple_columns(
        rows_given, member_kind="text", member="text", kind="text", name="text"
    )
    rows = sql.execute_with(tx, statement, "given", columns)
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
    c = memberships.c
    query = select(c.member_kind, func.count()).where(c.kind == group.kind, c.name == group.id)
    return {row[0]: row[1] for row in tx.execute(query.group_by(c.member_kind))}


def find_overfull(
    tx: Tx, names: Collection[AccountKey], kind: AccountKind, *, most: int
) -> list[str]:
    """Return those accounts with more than `most` memberships of a kind: one query."""
    if not names:
        return []
    wanted = sql.attribute_columns(sorted(names), text="kind id")
    query = (
        "SELECT wanted.id FROM {source} JOIN memberships AS m ON m.member_kind = wanted.kind"
        " AND m.member = wanted.id AND m.kind = :of"
        " GROUP BY wanted.id HAVING count(*) > :most ORDER BY wanted.id"
    )
    return [*sql.execute_with(tx, query, "wanted", wanted, of=kind, most=most).scalars()]


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
    rows = sql.execute_with(tx, _SELECT_EFFECTIVE, "claimed", groups, email=email)
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
            rows = tx.execute(sql.parse(query), span)
            resources += [OwnedResource(type_, uuid) for uuid in rows.scalars()]
    return resources


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """A public key of an account; `jwk` is JSON."""

    email: str
    kid: str
    jwk: str
    created_us: int


def find_usable_service_key(tx: Tx, email: str, kid: str) -> str | None:
    """Return a key, unless its account is disabled: one query."""
    return sql.execute(
        tx,
        "SELECT jwk FROM service_keys WHERE email = :email AND kid = :kid AND NOT EXISTS (SELECT 1"
        " FROM accounts WHERE kind = 'user' AND id = :email AND status = 'disabled')",
        {"email": email, "kid": kid},
    ).scalar_one_or_none()


def insert_service_key(tx: Tx, email: str, kid: str, jwk: str) -> bool:
    """Insert a key; False when the account has one with this id."""
    row = {"email": email, "kid": kid, "jwk": jwk, "created_us": sql.clock(tx)}
    return bool(sql.insert_missing(tx, service_keys, [row]))


def delete_service_keys(tx: Tx, email: str, kid: str | None = None) -> list[str]:
    """Delete one key, or all keys if `kid` is None; return the ids of deleted ones."""
    statement = delete(service_keys).filter_by(email=email)
    if kid:
        statement = statement.where(service_keys.c.kid == kid)
    return sorted(tx.execute(statement.returning(service_keys.c.kid)).scalars())


def list_service_keys(tx: Tx, email: str | None = None) -> list[ServiceKey]:
    """List all keys, or those of one account, by account and then by age."""
    c = service_keys.c
    query = select(service_keys).order_by(c.email, c.created_us, c.kid)
    if email:
        query = query.where(c.email == email)
    return sql.map_rows(ServiceKey, tx.execute(query))
