"""Users of the local provider, as an operator makes and changes them."""

from dataclasses import dataclass
from ipaddress import ip_interface

from auth.accounts import records
from auth.accounts.admitting import admit, is_enabled
from auth.accounts.changing import By
from auth.login import lockout
from auth.login.identity import identity
from auth.login.passwords import Passwords
from auth.login.recording import record_login
from storage.catalog import Catalog, logins, tries
from storage.catalog.audit import OPERATOR
from storage.catalog.engine import Tx
from storage.catalog.logins import PasswordRow
from storage.catalog.tries import Tries
from storage.errors import Conflict, Invalid, NotFound
from storage.rates import counted_as


@dataclass(frozen=True)
class User:
    """A user with a password; `failures` in a row, `until_us`: until when tries from some address,
    or from all of them, have to wait."""

    email: str
    enabled: bool
    created_us: int
    changed_us: int
    failures: int
    until_us: int


def add(catalog: Catalog, passwords: Passwords, email: str, password: str, *, now: float) -> None:
    """A new user, with a record; Invalid, or Conflict when there is a password already."""
    name, now_us = named(email), int(now * 1e6)
    row = PasswordRow(name, passwords.hash(password), now_us, now_us)
    with catalog.write() as tx:
        admit(tx, name, By(OPERATOR, "add_user"))
        if not logins.add_password(tx, row):
            raise Conflict(f"{name} has a password already; `passwd` changes it.")
        record_login(tx, OPERATOR, "password_added", name, "")


def change(catalog: Catalog, passwords: Passwords, email: str, password: str, now: float) -> None:
    """Another password, which ends all sessions and waits of the user; NotFound without one."""
    name, hashed = named(email), passwords.hash(password)
    with catalog.write() as tx:
        if not logins.change_password(tx, name, hashed, int(now * 1e6)):
            raise _absent(name)
        _forgive(tx, name)
        record_login(tx, OPERATOR, "password_changed", name, "")


def remove(catalog: Catalog, email: str) -> None:
    """Take the password away and end all sessions; the user's record stays. NotFound."""
    name = named(email)
    with catalog.write() as tx:
        if not logins.remove_password(tx, name):
            raise _absent(name)
        record_login(tx, OPERATOR, "password_removed", name, "")


def put_status(catalog: Catalog, email: str, *, enabled: bool) -> bool:
    """Let a user in, or shut one out whatever the provider; False when it was so before."""
    name = named(email)
    by = By(OPERATOR, "enable_user" if enabled else "disable_user")
    return records.set_status(catalog, name, "enabled" if enabled else "disabled", by)


def unlock(catalog: Catalog, email: str) -> bool:
    """Nobody has to wait any more to log in as this user; False when nobody had to."""
    name = named(email)
    with catalog.write() as tx:
        forgiven = _forgive(tx, name)
        if forgiven:
            record_login(tx, OPERATOR, "unlocked", name, "")
    return forgiven


def _forgive(tx: Tx, name: str) -> bool:
    """Forget the failures of an account, at all addresses and at each."""
    forgiven = tries.forgive(tx, lockout.account(name))
    return tries.forgive_all(tx, lockout.pair_prefix(name)) or forgiven


def unlock_address(catalog: Catalog, address: str) -> bool:
    """The same of who comes from an address, or a network that counts as one; Invalid for what is
    neither."""
    seen = _counted(address)
    with catalog.write() as tx:
        forgiven = tries.forgive(tx, lockout.address(seen))
        return tries.forgive_all(tx, "pair:", suffix=f" {seen}") or forgiven


def listing(catalog: Catalog) -> list[User]:
    """All users that have a password, by e-mail address."""
    with catalog.read() as tx:
        rows = logins.passwords(tx)
        held = {row.email: _tries_of(tx, row.email) for row in rows}
        enabled = {row.email: is_enabled(tx, row.email) for row in rows}
    return [
        User(
            email=row.email,
            enabled=enabled[row.email],
            created_us=row.created_us,
            changed_us=row.changed_us,
            failures=max((each.failures for each in held[row.email]), default=0),
            until_us=max((each.until_us for each in held[row.email]), default=0),
        )
        for row in rows
    ]


def _tries_of(tx: Tx, name: str) -> list[Tries]:
    """The failures of an account, at all addresses and at each."""
    overall = tries.find(tx, lockout.account(name))
    return [*tries.begin_with(tx, lockout.pair_prefix(name)), *([overall] if overall else [])]


def named(email: str) -> str:
    """The identity that an e-mail address is here; Invalid for what is none."""
    name = identity(email)
    if name is None:
        raise Invalid(
            "Not an e-mail address that a user can have: letters, digits and . @ _ - $ , ="
        )
    return name


def _absent(name: str) -> NotFound:
    return NotFound(f"{name} has no password; `ops users add` gives one.")


def _counted(address: str) -> str:
    try:
        found = ip_interface(address)
    except ValueError as error:
        raise Invalid("Not an IP address.") from error
    seen = counted_as(found.ip)
    if found.network.num_addresses > 1 and str(found.network) != seen:
        raise Invalid(f"It is counted as {seen}.")
    return seen
