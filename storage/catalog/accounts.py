"""Users, groups and roles: records with a policy each. Who is a member of what is in `memberships`.

Whoever changes any of them holds all of them until the unit of work ends: such changes are rare,
and each may concern records of every kind. What policies mean is not known here.
"""

from collections.abc import Collection
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
    source, parameters = derived(tx, "wanted", names)
    join = bulk.one_each(tx, "accounts", "a", "a.kind = wanted.kind AND a.id = wanted.id")
    rows = tx.execute(sql(f"SELECT a.kind, a.id FROM {source} {join}"), parameters)
    return set(names) - {Name(*row) for row in rows}


def derived(tx: Tx, name: str, names: Collection[Name]) -> tuple[str, dict[str, Any]]:
    """These names as rows of a query, in order."""
    order = sorted(names)
    columns: bulk.Columns = {
        "kind": ("text", [one.kind for one in order]),
        "id": ("text", [one.id for one in order]),
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
