"""Users, groups and roles: records with a policy each, and who is a member of what.

Whoever changes any of them holds all of them until the unit of work ends: such changes are rare,
and each may concern records of every kind. What policies mean is not known here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Row

from storage.catalog import bulk, heads
from storage.catalog.engine import Tx, execute_now, sql

Kind = Literal["user", "group", "role"]
Status = Literal["enabled", "disabled"]

HEAD, ALL = "accounts", "all"
"""The one head that every change holds, and that counts them."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user, a group or a role; `policy` is JSON."""

    kind: Kind
    id: str
    status: Status
    policy: str | None
    built_in: bool
    created_us: int
    changed_us: int


class Name(NamedTuple):
    """What names a record."""

    kind: Kind
    id: str


class Membership(NamedTuple):
    """That a user is in a group, or that a user or group has a role."""

    member: Name
    of: Name


def _account(row: Row[Any]) -> Account:
    return Account(
        kind=row.kind,
        id=row.id,
        status=row.status,
        policy=row.policy,
        built_in=bool(row.built_in),
        created_us=row.created_us,
        changed_us=row.changed_us,
    )


def hold(tx: Tx) -> None:
    """Hold every record; what is read after this is still so when the unit of work ends."""
    heads.lock(tx, HEAD, [ALL])


def changed(tx: Tx) -> int:
    """Count one more change of what is held."""
    return heads.change_by_clock(tx, HEAD, ALL)


def version(tx: Tx) -> int:
    """A number that is greater after every change of a record, and never comes back."""
    return heads.changes(tx, HEAD, ALL)


_FIND = sql("SELECT * FROM accounts WHERE kind = :kind AND id = :id")


def find(tx: Tx, name: Name) -> Account | None:
    """The record of that name."""
    row = tx.execute(_FIND, name._asdict()).first()
    return None if row is None else _account(row)


def absent(tx: Tx, names: Collection[Name]) -> set[Name]:
    """Those of these that do not exist: one query."""
    if not names:
        return set()
    source, parameters = _derived(tx, "wanted", sorted(names))
    join = bulk.one_each(tx, "accounts", "a", "a.kind = wanted.kind AND a.id = wanted.id")
    rows = tx.execute(sql(f"SELECT a.kind, a.id FROM {source} {join}"), parameters)
    return set(names) - {Name(*row) for row in rows}


def _derived(tx: Tx, name: str, names: Sequence[Name]) -> tuple[str, dict[str, Any]]:
    columns: bulk.Columns = {
        "kind": ("text", [one.kind for one in names]),
        "id": ("text", [one.id for one in names]),
    }
    return bulk.derived(tx, name, columns)


_ADD = (
    "INSERT INTO accounts (kind, id, status, policy, created_us, changed_us)"
    " VALUES (:kind, :id, 'enabled', :policy, :now, :now) RETURNING *"
)


def add(tx: Tx, name: Name, policy: str | None) -> Account:
    """Make a record; the caller holds them and saw that there is none."""
    row = execute_now(tx, _ADD, {**name._asdict(), "policy": policy})
    return _account(row.one())


_SET = "UPDATE accounts SET {column} = :value, changed_us = :now WHERE kind = :kind AND id = :id"


def set_status(tx: Tx, name: Name, status: Status) -> None:
    """Have a record be enabled or disabled."""
    execute_now(tx, _SET.format(column="status"), {**name._asdict(), "value": status})


def set_policy(tx: Tx, name: Name, policy: str | None) -> None:
    """Give a record another policy, or none."""
    execute_now(tx, _SET.format(column="policy"), {**name._asdict(), "value": policy})


def remove(tx: Tx, name: Name) -> None:
    """Remove a record, and from wherever it is a member or has some."""
    given = name._asdict()
    tx.execute(sql("DELETE FROM memberships WHERE member_kind = :kind AND member = :id"), given)
    tx.execute(sql("DELETE FROM memberships WHERE kind = :kind AND name = :id"), given)
    tx.execute(sql("DELETE FROM accounts WHERE kind = :kind AND id = :id"), given)


def listing(tx: Tx, kind: Kind, *, after: str, limit: int) -> list[str]:
    """Ids in byte order, after a given one: one range of one index."""
    query = "SELECT id FROM accounts WHERE kind = :kind AND id > :after ORDER BY id LIMIT :limit"
    rows = tx.execute(sql(query), {"kind": kind, "after": after, "limit": limit})
    return list(rows.scalars())


def _pairs(tx: Tx, pairs: Collection[Membership]) -> tuple[str, dict[str, Any]]:
    order = sorted(pairs)
    columns: bulk.Columns = {
        "member_kind": ("text", [one.member.kind for one in order]),
        "member": ("text", [one.member.id for one in order]),
        "kind": ("text", [one.of.kind for one in order]),
        "name": ("text", [one.of.id for one in order]),
    }
    return bulk.derived(tx, "given", columns)


def _membership(row: Row[Any]) -> Membership:
    return Membership(Name(row.member_kind, row.member), Name(row.kind, row.name))


def join(tx: Tx, pairs: Collection[Membership]) -> list[Membership]:
    """Make these memberships; those that were new, in order. One statement."""
    if not pairs:
        return []
    source, parameters = _pairs(tx, pairs)
    made = tx.execute(
        sql(
            "INSERT INTO memberships (member_kind, member, kind, name)"
            f" SELECT member_kind, member, kind, name FROM {source} WHERE true"
            " ON CONFLICT DO NOTHING RETURNING member_kind, member, kind, name"
        ),
        parameters,
    )
    return sorted(_membership(row) for row in made)


def leave(tx: Tx, pairs: Collection[Membership]) -> list[Membership]:
    """End these memberships; those that there were, in order. One statement."""
    if not pairs:
        return []
    source, parameters = _pairs(tx, pairs)
    ended = tx.execute(
        sql(
            "DELETE FROM memberships WHERE (member_kind, member, kind, name) IN"
            f" (SELECT member_kind, member, kind, name FROM {source})"
            " RETURNING member_kind, member, kind, name"
        ),
        parameters,
    )
    return sorted(_membership(row) for row in ended)


def held(tx: Tx, member: Name, kind: Kind, *, after: str, limit: int) -> list[str]:
    """What a record is a member of, in byte order after a given one."""
    query = (
        "SELECT name FROM memberships WHERE member_kind = :member_kind AND member = :member"
        " AND kind = :kind AND name > :after ORDER BY name LIMIT :limit"
    )
    given = {"member_kind": member.kind, "member": member.id, "kind": kind}
    return list(tx.execute(sql(query), {**given, "after": after, "limit": limit}).scalars())


def members(tx: Tx, of: Name, kind: Kind, *, after: str, limit: int) -> list[str]:
    """Who is a member of a record, in byte order after a given one."""
    query = (
        "SELECT member FROM memberships WHERE kind = :kind AND name = :name"
        " AND member_kind = :member_kind AND member > :after ORDER BY member LIMIT :limit"
    )
    given = {"kind": of.kind, "name": of.id, "member_kind": kind}
    return list(tx.execute(sql(query), {**given, "after": after, "limit": limit}).scalars())


def count_members(tx: Tx, of: Name) -> Mapping[str, int]:
    """How many members a record has, by their kind."""
    query = (
        "SELECT member_kind, count(*) FROM memberships WHERE kind = :kind AND name = :id"
        " GROUP BY member_kind"
    )
    return {row[0]: row[1] for row in tx.execute(sql(query), of._asdict())}


def overfull(tx: Tx, names: Collection[Name], kind: Kind, *, most: int) -> list[str]:
    """Those of these that are members of more than so many of a kind: one query."""
    if not names:
        return []
    source, parameters = _derived(tx, "wanted", sorted(names))
    query = (
        f"SELECT wanted.id FROM {source} JOIN memberships AS m ON m.member_kind = wanted.kind"
        " AND m.member = wanted.id AND m.kind = :of"
        " GROUP BY wanted.id HAVING count(*) > :most ORDER BY wanted.id"
    )
    return list(tx.execute(sql(query), {**parameters, "of": kind, "most": most}).scalars())


class Held(NamedTuple):
    """A record whose policy holds for somebody; `via` is the group they have a role by, else
    empty. The status is None when there is no such record."""

    kind: Kind
    via: str
    id: str
    status: Status | None
    policy: str | None


_EFFECTIVE = """
WITH mine AS (
  SELECT m.name AS name FROM memberships m
  WHERE m.member_kind = 'user' AND m.member = :email AND m.kind = 'group'
  UNION SELECT claimed.id FROM {claimed}
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


def effective(tx: Tx, email: str, claimed: Collection[str]) -> list[Held]:
    """All that holds for somebody who claims these groups besides their own: one query."""
    source, parameters = bulk.derived(tx, "claimed", {"id": ("text", sorted(claimed))})
    statement = sql(_EFFECTIVE.format(claimed=source))
    rows = tx.execute(statement, {**parameters, "email": email})
    return sorted((Held(*row) for row in rows), key=lambda one: (one.kind, one.via, one.id))
