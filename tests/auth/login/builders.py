"""Cheap passwords, and somebody at a browser."""

from typing import Any

from auth.login.local import Local, Try
from auth.login.lockout import Patience
from auth.login.passwords import Costs, Passwords
from storage.catalog import Catalog, logins
from storage.catalog.logins import PasswordRow

NOW = 1_700_000_000.0
CHEAP = Costs(memory_kib=64, passes=1, lanes=1, at_once=2, least=12)
ADA = "ada@example.org"
RIGHT = "correct horse battery"


def local_of(catalog: Catalog, patience: Patience = Patience()) -> Local:  # noqa: B008
    """The local provider of a catalog."""
    return Local(catalog, Passwords(CHEAP), patience)


def tried(**changed: Any) -> Try:
    """Somebody's try, with some of it changed."""
    ordinary = {
        "email": ADA,
        "address": "192.0.2.1",
        "browser": None,
        "at": NOW,
        "request_id": "request",
    }
    return Try(**{**ordinary, **changed})


def with_password(catalog: Catalog, email: str = ADA, password: str = RIGHT) -> None:
    """A user of the local provider."""
    hashed = Passwords(CHEAP).hash(password)
    with catalog.write() as tx:
        logins.add_password(tx, PasswordRow(email, hashed, int(NOW * 1e6), int(NOW * 1e6)))
