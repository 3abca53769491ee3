"""Who is let in: the record that a first login makes, and whether somebody is shut out."""

from auth.accounts import builtin
from auth.accounts.changing import By, record_change
from auth.accounts.names import is_user_id
from storage.catalog import accounts, memberships
from storage.catalog.accounts import Account, Name
from storage.catalog.engine import Tx
from storage.catalog.memberships import Membership
from storage.errors import Forbidden


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
    memberships.join(tx, [Membership(name, builtin.EVERYBODY)])
    record_change(tx, by, name, before=None, after={"groups": [builtin.USER_DEFAULT]})
    return made
