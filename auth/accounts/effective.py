"""What somebody may do: their own policy, those of their roles, of their groups and of the groups'
roles, as the records and the settings have them at this moment.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from auth.accounts import builtin
from auth.accounts.documents import kept
from auth.accounts.rights import Rights
from auth.policies.evaluator import Compiled
from auth.policies.keys import GROUPS, ROLES, USER_EMAIL
from auth.policies.model import Holding
from storage.catalog import accounts, grants, memberships
from storage.catalog.accounts import Name
from storage.catalog.engine import Tx
from storage.catalog.memberships import Held
from storage.model import one_spelling


@dataclass(frozen=True, slots=True)
class Effective:
    """What holds for a principal; everybody is in `user_default`, with a record or without."""

    enabled: bool
    groups: tuple[str, ...]
    roles: tuple[str, ...]
    compiled: Compiled


def effective(tx: Tx, email: str, claimed_groups: Collection[str], rights: Rights) -> Effective:
    """All that holds for somebody whose token claims these groups: one query."""
    claimed = {*claimed_groups, builtin.USER_DEFAULT}
    held = memberships.effective(tx, email, claimed)
    users = [one for one in held if one.kind == "user"]
    held += [_given(role) for role in _of_settings(email, claimed_groups, rights)]
    groups = _ids(held, "group")
    roles = _ids(held, "role")
    return Effective(
        enabled=all(one.status == "enabled" for one in users),
        groups=groups,
        roles=roles,
        compiled=Compiled(
            list(_holdings(held, rights.deployment)),
            {USER_EMAIL: email, GROUPS: groups, ROLES: roles},
        ),
    )


def _of_settings(email: str, claimed: Collection[str], rights: Rights) -> Iterator[str]:
    """Roles that no record gives, and none takes away."""
    yield builtin.USER_DEFAULT
    if not set(claimed).isdisjoint(rights.ingest_groups):
        yield builtin.STORE_INGEST
    if email in map(one_spelling, rights.administrators) or not set(claimed).isdisjoint(
        rights.admin_groups
    ):
        yield builtin.STORE_ADMIN


def _given(role: str) -> Held:
    via = builtin.USER_DEFAULT if role == builtin.USER_DEFAULT else ""
    return Held("role", via, role, "enabled", None)


def _ids(held: Iterable[Held], kind: str) -> tuple[str, ...]:
    return tuple(sorted({one.id for one in held if one.kind == kind}))


def _holdings(held: Iterable[Held], deployment: str) -> Iterator[Holding]:
    """Each policy once: a role that somebody has in several ways counts for the first."""
    seen: set[Name] = set()
    for one in held:
        name = Name(one.kind, one.id)
        policy = None if name in seen else kept(name, one.policy, deployment)
        seen.add(name)
        if policy is not None:
            yield Holding(_source(one), policy)


def _source(held: Held) -> str:
    own = f"{held.kind} {held.id}"
    return f"group {held.via}, {own}" if held.via else own


def policy_version(tx: Tx) -> int:
    """A number that every change of a record makes greater: one row of one index."""
    return accounts.version(tx)


def logins_version(tx: Tx) -> int:
    """The same of logins that end before their time."""
    return grants.version(tx)
