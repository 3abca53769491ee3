"""Users, groups and roles: making, changing and removing them. Each call is one unit of work."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from auth.accounts import builtin
from auth.accounts.changing import By, change, existing, protected, record_change
from auth.accounts.documents import same
from auth.accounts.limits import AUDITED_NAMES
from auth.accounts.memberships import check_room, require_named
from auth.policies.model import Policy
from storage.catalog import Catalog, accounts, logins, memberships
from storage.catalog.accounts import Account, Kind, Name, Status
from storage.catalog.engine import Tx
from storage.catalog.memberships import Membership
from storage.errors import Conflict


@dataclass(frozen=True, slots=True)
class New:
    """A record to be made, and what it is a member of from the first."""

    name: Name
    policy: Policy | None = None
    groups: Sequence[str] = ()
    roles: Sequence[str] = ()


def create(catalog: Catalog, new: New, by: By) -> Account:
    """Make a record; Conflict when there is one, NotFound naming every group and role that there is
    not."""
    named = {
        "groups": [Name("group", each) for each in new.groups],
        "roles": [Name("role", each) for each in new.roles],
    }
    with change(catalog) as tx:
        if accounts.find(tx, new.name) is not None:
            raise Conflict(f"There is a {new.name.kind} {new.name.id} already.")
        require_named(tx, named)
        made = accounts.add(tx, new.name, _text(new.policy))
        _join(tx, new.name, [*named["groups"], *named["roles"]])
        record_change(tx, by, new.name, before=None, after=_said_of(tx, made))
    return made


def _join(tx: Tx, member: Name, of: Iterable[Name]) -> None:
    everybody = [builtin.EVERYBODY] if member.kind == "user" else []
    pairs = {Membership(member, one) for one in [*of, *everybody]}
    memberships.join(tx, pairs)
    check_room(tx, pairs)


def _text(policy: Policy | None) -> str | None:
    return None if policy is None else policy.text


def _said_of(tx: Tx, account: Account) -> dict[str, Any]:
    """A record whole, as far as its members are not counted in thousands."""
    name = Name(account.kind, account.id)
    said: dict[str, Any] = {"policy": _document(account.policy)}
    if account.kind == "user":
        said = {"status": account.status, **said, "groups": _held(tx, name, "group")}
    if account.kind != "role":
        said["roles"] = _held(tx, name, "role")
    return said


def _held(tx: Tx, name: Name, kind: Kind) -> list[str]:
    return memberships.held(tx, name, kind, after="", limit=AUDITED_NAMES)


def _document(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def set_status(catalog: Catalog, user_id: str, status: Status, by: By) -> bool:
    """Enable or disable a user, from now on; False when it was so before."""
    name = Name("user", user_id)
    with change(catalog) as tx:
        found = existing(tx, name)
        if found.status == status:
            return False
        accounts.set_status(tx, name, status)
        if status == "disabled":
            # Who is enabled again logs in again, and so do their applications.
            logins.end_all(tx, user_id)
        record_change(tx, by, name, before={"status": found.status}, after={"status": status})
    return True


def set_policy(catalog: Catalog, name: Name, policy: Policy | None, by: By) -> bool:
    """Give a record this policy, or none; False when it had it before."""
    with change(catalog) as tx:
        found = existing(tx, name)
        if found.built_in:
            raise protected(name, "its policy cannot be changed")
        text = _text(policy)
        if same(found.policy, text):
            return False
        accounts.set_policy(tx, name, text)
        before, after = ({"policy": _document(one)} for one in (found.policy, text))
        record_change(tx, by, name, before=before, after=after)
    return True


def delete(catalog: Catalog, name: Name, by: By) -> None:
    """Remove a group or role, from every user and group that has it."""
    with change(catalog) as tx:
        found = existing(tx, name)
        if found.built_in:
            raise protected(name, "it cannot be deleted")
        said = _said_of(tx, found) | _members_of(tx, name)
        accounts.remove(tx, name)
        record_change(tx, by, name, before=said, after=None)


def _members_of(tx: Tx, name: Name) -> dict[str, Any]:
    """Who had it: how many, and the names of as many as a log should hold."""
    kinds: tuple[Kind, ...] = ("user",) if name.kind == "group" else ("user", "group")
    counted = memberships.count_members(tx, name)
    said: dict[str, Any] = {f"{kind}s_total": counted.get(kind, 0) for kind in kinds}
    for kind in kinds:
        said[f"{kind}s"] = memberships.members(tx, name, kind, after="", limit=AUDITED_NAMES)
    return said
