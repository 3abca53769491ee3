"""Reading records: one of them, their lists, what somebody owns, and what became of them."""

from auth.accounts.changing import existing
from storage.catalog import Catalog, accounts, audit, memberships, owning
from storage.catalog.accounts import Account, Kind, Name
from storage.catalog.audit import Filter, Recorded
from storage.catalog.owning import TYPES, Owned, Thing


def account(catalog: Catalog, name: Name) -> Account:
    """A record; NotFound."""
    with catalog.read() as tx:
        return existing(tx, name)


def ids(catalog: Catalog, kind: Kind, *, after: str, limit: int) -> list[str]:
    """Records of a kind, in byte order after one."""
    with catalog.read() as tx:
        return accounts.listing(tx, kind, after=after, limit=limit)


def held(catalog: Catalog, name: Name, kind: Kind, *, after: str, limit: int) -> list[str]:
    """What a record is a member of; NotFound."""
    with catalog.read() as tx:
        existing(tx, name)
        return memberships.held(tx, name, kind, after=after, limit=limit)


def members(catalog: Catalog, name: Name, kind: Kind, *, after: str, limit: int) -> list[str]:
    """Who is a member of a record; NotFound."""
    with catalog.read() as tx:
        existing(tx, name)
        return memberships.members(tx, name, kind, after=after, limit=limit)


def owned(
    catalog: Catalog, user: Name, only: Owned | None, *, after: Thing | None, limit: int
) -> list[Thing]:
    """What a user owns, of one type or all, by type, then uuid; NotFound for who has neither a
    record nor belongings: whoever brings a foreign token may own things before a record is made."""
    with catalog.read() as tx:
        if not owning.listing(tx, user.id, TYPES, after=None, limit=1):
            existing(tx, user)
        return owning.listing(tx, user.id, (only,) if only else TYPES, after=after, limit=limit)


def thing(type_: str, uuid: str) -> Thing:
    """A thing as a pointer names it."""
    return Thing(next(one for one in TYPES if one == type_), uuid)


def changes(
    catalog: Catalog, wanted: Filter, *, before_id: int | None, limit: int
) -> list[Recorded]:
    """What the audit log tells, the newest first."""
    with catalog.read() as tx:
        return audit.listing(tx, wanted, before_id=before_id, limit=limit)
