"""One-time login links, which an operator creates for a person without another way to log in.

The token is random, stored as a digest, and works once. A new link ends the user's earlier ones.
"""

from dataclasses import dataclass
from typing import Literal

from auth.accounts import AuditContext, admit_user, begin_change, record_audit, record_change
from auth.builtin_roles import STORE_ADMIN
from auth.login.users import parse_user_email
from auth.secret_values import create_secret, hash_secret
from auth.settings import AuthSettings
from auth.tokens.issuance import administrator_email
from storage.catalog import Catalog, Tx, accounts, login
from storage.catalog.accounts import AccountKey, Membership
from storage.catalog.audit import OPERATOR
from storage.errors import Forbidden, Invalid

LINK_PATH = "/login/link"
LINK_PROVIDER = "link"
"""The provider of a session that a link began."""
ACTION = "create_login_link"
LINK_ERRORS = {
    "unknown": "This login link is not valid. A newer link may have replaced it.",
    "used": "This login link has been used already. It works only once.",
    "expired": "This login link has expired.",
}


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A new link; only its address has the token."""

    url: str
    email: str
    ends_us: int


def create_login_link(
    catalog: Catalog, settings: AuthSettings, email: str | None, *, now: float
) -> LoginLink:
    """Create a link for a user, by default for the administrator, who gets the role store_admin.

    Invalid for a malformed address; Forbidden if the user is disabled.
    """
    if settings.login_link_s <= 0:
        raise Forbidden("Login links are disabled (STORE_LOGIN_LINK_S is 0).")
    name = parse_user_email(email or administrator_email(settings))
    token, now_us = create_secret(), int(now * 1e6)
    ends_us = now_us + settings.login_link_s * 1_000_000
    by = AuditContext(OPERATOR, ACTION)
    with begin_change(catalog) as tx:
        admit_user(tx, name, by)
        if name == parse_user_email(administrator_email(settings)):
            _make_administrator(tx, name, by)
        login.insert_login_link(tx, login.LoginLinkRow(hash_secret(token), name, now_us, ends_us))
        record_audit(tx, by, f"user/{name}", before=None, after={"ends_us": ends_us})
    return LoginLink(f"{settings.auth_url}{LINK_PATH}?token={token}", name, ends_us)


def _make_administrator(tx: Tx, name: str, by: AuditContext) -> None:
    """Give the role of the administrator's token, whose groups count in that token only."""
    user, role = AccountKey("user", name), AccountKey("role", STORE_ADMIN)
    if accounts.insert_memberships(tx, [Membership(user, role)]):
        record_change(tx, by, user, before={"roles": []}, after={"roles": [STORE_ADMIN]})


LinkState = Literal["valid", "unknown", "used", "expired"]


def read_link(catalog: Catalog, token: str, now: float) -> str:
    """Return the user of a valid link, without using it; else Invalid."""
    with catalog.read() as tx:
        row = login.find_login_link(tx, hash_secret(token))
    state = _link_state(row, int(now * 1e6))
    if row is None or state != "valid":
        raise Invalid(LINK_ERRORS[state])
    return row.email


def use_link(catalog: Catalog, token: str, now: float) -> str:
    """Use up a link and return its user; Invalid if it is unknown, used or expired."""
    link_id = hash_secret(token)
    with catalog.write() as tx:
        used = login.use_login_link(tx, link_id, int(now * 1e6))
        row = login.find_login_link(tx, link_id)
    if row is None or not used:
        raise Invalid(LINK_ERRORS[_link_state(row, int(now * 1e6))])
    return row.email


def _link_state(row: login.LoginLinkRow | None, now_us: int) -> LinkState:
    if row is None:
        return "unknown"
    if row.used_us is not None:
        return "used"
    return "valid" if now_us < row.ends_us else "expired"
