"""What somebody owns in the store, of every kind that has owners."""

from typing import Literal, NamedTuple

from storage.catalog.engine import Tx, sql

Owned = Literal["area", "collection", "subscription"]


class Thing(NamedTuple):
    """Something that somebody owns."""

    type: Owned
    uuid: str


_QUERIES: dict[Owned, str] = {
    "area": "SELECT uuid FROM areas WHERE owner = :owner AND state <> 'DELETED'",
    "collection": "SELECT DISTINCT uuid FROM owned WHERE owner = :owner",
    "subscription": "SELECT uuid FROM subscriptions WHERE owner = :owner AND deleted_us IS NULL",
}
TYPES: tuple[Owned, ...] = tuple(_QUERIES)
"""In their order."""


def listing(
    tx: Tx, owner: str, types: tuple[Owned, ...], *, after: Thing | None, limit: int
) -> list[Thing]:
    """What somebody owns of these types, by type, then uuid; at most one query for each type."""
    found: list[Thing] = []
    for type_ in types:
        if (after is None or type_ >= after.type) and len(found) < limit:
            begin = after.uuid if after is not None and type_ == after.type else ""
            found += _of_type(tx, owner, type_, after=begin, limit=limit - len(found))
    return found


def _of_type(tx: Tx, owner: str, type_: Owned, *, after: str, limit: int) -> list[Thing]:
    query = f"{_QUERIES[type_]} AND uuid > :after ORDER BY uuid LIMIT :limit"
    rows = tx.execute(sql(query), {"owner": owner, "after": after, "limit": limit})
    return [Thing(type_, uuid) for uuid in rows.scalars()]
