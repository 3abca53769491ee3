"""Who is a member of what: users of groups, users and groups of roles; and all that somebody holds
by it. Whoever changes any of it holds the records, as `accounts` has it.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Row

from storage.catalog import bulk
from storage.catalog.accounts import Kind, Name, Status, derived
from storage.catalog.engine import Tx, sql


class Membership(NamedTuple):
    """That a user is in a group, or that a user or group has a role."""

    member: Name
    of: Name


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
    source, parameters = derived(tx, "wanted", names)
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
