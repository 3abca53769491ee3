"""What somebody may do: their own policy, those of their roles, of their groups and of the groups'
roles, as the records and the settings have them at this moment.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from auth.accounts import builtin
from auth.accounts.changing import By, note
from auth.accounts.documents import kept
from auth.accounts.names import is_user_id
from auth.accounts.rights import Rights
from auth.policies.evaluator import Compiled
from auth.policies.limits import GROUPS, ROLES, USER_EMAIL
from auth.policies.model import Holding
from storage.catalog import accounts
from storage.catalog.accounts import Account, Held, Membership, Name
from storage.catalog.engine import Tx
from storage.errors import Forbidden
from storage.model import one_spelling


@dataclass(frozen=True, slots=True)
class Effective:
    """A principal as the records know it; everybody is in `user_default`, known or not."""

    email: str
    known: bool
    enabled: bool
    groups: tuple[str, ...]
    roles: tuple[str, ...]
    compiled: Compiled


def effective(tx: Tx, email: str, claimed_groups: Collection[str], rights: Rights) -> Effective:
    """All that holds for somebody whose token claims these groups: one query."""
    claimed = {*claimed_groups, builtin.USER_DEFAULT}
    held = accounts.effective(tx, email, claimed)
    users = [one for one in held if one.kind == "user"]
    held += [_given(role) for role in _of_settings(email, claimed_groups, rights)]
    groups = _ids(held, "group")
    roles = _ids(held, "role")
    return Effective(
        email=email,
        known=bool(users),
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


def is_enabled(tx: Tx, email: str) -> bool:
    """Whether somebody may do anything at all; who has no record may."""
    found = accounts.find(tx, Name("user", email))
    return found is None or found.status == "enabled"


def first_login(tx: Tx, email: str, request_id: str = "") -> None:
    """Make the user's record if there is none; Forbidden when it is disabled, or for an identity
    that no record may go by."""
    admit(tx, email, By(who=email, what="first_login", request_id=request_id))


def admit(tx: Tx, email: str, by: By) -> None:
    """The same, for whoever lets the user in."""
    name = Name("user", email)
    found = accounts.find(tx, name)
    if found is None:
        accounts.hold(tx)
        found = accounts.find(tx, name) or _made(tx, name, by)
    if found.status != "enabled":
        raise Forbidden("This user is disabled.")


def _made(tx: Tx, name: Name, by: By) -> Account:
    if not is_user_id(name.id):
        raise Forbidden("Nobody can log in by this identity: it is no e-mail address of a user.")
    made = accounts.add(tx, name, None)
    accounts.join(tx, [Membership(name, builtin.EVERYBODY)])
    note(tx, by, name, before=None, after={"groups": [builtin.USER_DEFAULT]})
    return made
