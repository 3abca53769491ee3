"""Operator commands to add, change and unlock password users."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface

from auth import accounts
from auth.accounts import AuditContext, MembershipEdit, admit_user, is_user_enabled, normalize_email
from auth.login import lockout
from auth.login.passwords import PasswordHashing
from auth.login.sessions import record_login_event
from storage.catalog import Catalog, Tx, login
from storage.catalog import accounts as catalog_accounts
from storage.catalog.accounts import AccountKey
from storage.catalog.audit import OPERATOR
from storage.catalog.login import LoginFailures, PasswordRow
from storage.errors import ConflictError, Invalid, NotFoundError
from storage.rate_limits import rate_limit_key

MAX_LISTED_ROLES = 100


@dataclass(frozen=True)
class PasswordUser:
    """A user with a password.

    `failures` counts consecutive failures; `until_us` is the end of the longest lockout."""

    email: str
    enabled: bool
    created_us: int
    changed_us: int
    failures: int
    until_us: int
    roles: Sequence[str]
    """Its own, without those of its groups; the last is `…` if there are more."""


def add_user(
    catalog: Catalog,
    passwords: PasswordHashing,
    email: str,
    password: str,
    *,
    now: float,
    roles: Sequence[str] = (),
) -> None:
    """Add a user and its record, with roles.

    Raises Invalid, ConflictError if it has a password, and NotFoundError for an unknown role.
    """
    name, now_us = parse_user_email(email), int(now * 1e6)
    row = PasswordRow(name, passwords.hash(password), now_us, now_us)
    keys = [AccountKey("role", role) for role in dict.fromkeys(roles)]
    by = AuditContext(OPERATOR, "add_user")
    with accounts.begin_change(catalog) as tx:
        admit_user(tx, name, by)
        if not login.insert_password(tx, row):
            raise ConflictError(f"{name} has a password already; `passwd` changes it.")
        record_login_event(tx, OPERATOR, "password_added", name, "")
        if keys:
            edit = MembershipEdit(AccountKey("user", name), "roles", keys, "add")
            accounts.apply_membership_edit(tx, edit, by)


def require_roles(catalog: Catalog, roles: Iterable[str]) -> None:
    """Raise NotFoundError for an unknown role; it names the nearest and the first that exist."""
    with catalog.read() as tx:
        known = catalog_accounts.list_ids(tx, "role", after="", limit=MAX_LISTED_ROLES + 1)
        unknown = sorted(
            one.id
            for one in catalog_accounts.filter_missing(
                tx, {AccountKey("role", role) for role in roles}
            )
        )
    if unknown:
        nearest = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        listed = ", ".join(_mark_cut(known))
        raise NotFoundError(f"There is no role {unknown[0]}.{hint} Roles are: {listed}.")


def _mark_cut(roles: Sequence[str]) -> Sequence[str]:
    """Return the first roles of a list, which end with `…` if there are more."""
    if len(roles) <= MAX_LISTED_ROLES:
        return roles
    return (*roles[:MAX_LISTED_ROLES], "…")


def change_user_password(
    catalog: Catalog, passwords: PasswordHashing, email: str, password: str, now: float
) -> None:
    """Change the password, end all sessions and lockouts; NotFoundError without a password."""
    name, hashed = parse_user_email(email), passwords.hash(password)
    with catalog.write() as tx:
        if not login.change_password(tx, name, hashed, int(now * 1e6)):
            raise _no_password_error(name)
        _forgive_failures(tx, name)
        record_login_event(tx, OPERATOR, "password_changed", name, "")


def remove_password(catalog: Catalog, email: str) -> None:
    """Delete the password and end all sessions; the user's record stays. NotFoundError."""
    name = parse_user_email(email)
    with catalog.write() as tx:
        if not login.delete_password(tx, name):
            raise _no_password_error(name)
        record_login_event(tx, OPERATOR, "password_removed", name, "")


def set_user_status(catalog: Catalog, email: str, *, enabled: bool) -> bool:
    """Enable or disable a user at every provider; return False if unchanged."""
    name = parse_user_email(email)
    by = AuditContext(OPERATOR, "enable_user" if enabled else "disable_user")
    return accounts.set_account_status(catalog, name, "enabled" if enabled else "disabled", by)


def unlock_user(catalog: Catalog, email: str) -> bool:
    """End all lockouts of a user; return False if there were none."""
    name = parse_user_email(email)
    with catalog.write() as tx:
        forgiven = _forgive_failures(tx, name)
        if forgiven:
            record_login_event(tx, OPERATOR, "unlocked", name, "")
    return forgiven


def _forgive_failures(tx: Tx, name: str) -> bool:
    """Clear an account's failures, overall and per address."""
    forgiven = login.clear_failures(tx, lockout.account_key(name))
    return login.clear_all_failures(tx, lockout.pair_key_prefix(name)) or forgiven


def unlock_address(catalog: Catalog, address: str) -> bool:
    """End the lockouts of an address, or of a network counted as one; Invalid for others."""
    counted = _parse_counted_address(address)
    with catalog.write() as tx:
        forgiven = login.clear_failures(tx, lockout.address_key(counted))
        return login.clear_all_failures(tx, "pair:", suffix=f" {counted}") or forgiven


def list_users(catalog: Catalog) -> list[PasswordUser]:
    """List all password users, by e-mail address."""
    with catalog.read() as tx:
        rows = login.list_passwords(tx)
        failures = {row.email: _list_failures(tx, row.email) for row in rows}
        enabled = {row.email: is_user_enabled(tx, row.email) for row in rows}
        roles = {
            row.email: catalog_accounts.list_memberships(
                tx, AccountKey("user", row.email), "role", after="", limit=MAX_LISTED_ROLES + 1
            )
            for row in rows
        }
    return [
        PasswordUser(
            email=row.email,
            enabled=enabled[row.email],
            created_us=row.created_us,
            changed_us=row.changed_us,
            failures=max((each.failures for each in failures[row.email]), default=0),
            until_us=max((each.until_us for each in failures[row.email]), default=0),
            roles=_mark_cut(roles[row.email]),
        )
        for row in rows
    ]


def _list_failures(tx: Tx, name: str) -> list[LoginFailures]:
    """List an account's failures, overall and per address."""
    overall = login.find_failures(tx, lockout.account_key(name))
    return [
        *login.list_failures(tx, lockout.pair_key_prefix(name)),
        *([overall] if overall else []),
    ]


def parse_user_email(email: str) -> str:
    """Normalize an e-mail address to an identity; Invalid if malformed."""
    name = normalize_email(email)
    if name is None:
        raise Invalid(
            "Not an e-mail address that a user can have: letters, digits and . @ _ - $ , ="
        )
    return name


def _no_password_error(name: str) -> NotFoundError:
    return NotFoundError(f"{name} has no password; `ops users add` gives one.")


def _parse_counted_address(address: str) -> str:
    try:
        interface = ip_interface(address)
    except ValueError as error:
        raise Invalid("Not an IP address.") from error
    counted = rate_limit_key(interface.ip)
    if interface.network.num_addresses > 1 and str(interface.network) != counted:
        raise Invalid(f"It is counted as {counted}.")
    return counted
