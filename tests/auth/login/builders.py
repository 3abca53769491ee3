"""Cheap password hashes, and builders of login requests."""

from typing import Any

from auth.login.lockout import LockoutPolicy
from auth.login.passwords import LoginAttempt, PasswordHashing, PasswordLogin
from config import Settings
from storage.catalog import Catalog, login
from storage.catalog.login import PasswordRow

NOW = 1_700_000_000.0
CHEAP = Settings(password_memory_kib=64, password_passes=1, password_lanes=1)
ADA = "ada@example.org"
RIGHT = "correct horse battery"


def local_of(catalog: Catalog, patience: LockoutPolicy = LockoutPolicy()) -> PasswordLogin:  # noqa: B008
    """The local provider of a catalog."""
    return PasswordLogin(catalog, PasswordHashing(CHEAP), patience)


def tried(**changed: Any) -> LoginAttempt:
    """Somebody's try, with some of it changed."""
    ordinary = {
        "email": ADA,
        "address": "192.0.2.1",
        "browser": None,
        "at": NOW,
        "request_id": "request",
    }
    return LoginAttempt(**{**ordinary, **changed})


def with_password(catalog: Catalog) -> None:
    """A user of the local provider."""
    hashed = PasswordHashing(CHEAP).hash(RIGHT)
    with catalog.write() as tx:
        login.insert_password(tx, PasswordRow(ADA, hashed, int(NOW * 1e6), int(NOW * 1e6)))
