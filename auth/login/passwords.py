"""Password hashing with argon2id, and login with an e-mail address and a password.

Unknown users take as long as known ones: their password is checked against a dummy hash.
"""

import secrets
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from auth.accounts import normalize_email
from auth.login import lockout
from auth.login.lockout import LockoutPolicy
from auth.login.sessions import LoginFailure, record_login_event, record_login_failure
from auth.settings import AuthSettings
from storage.catalog import Catalog, login
from storage.errors import Invalid, Unauthorized, Unavailable

MAX_PASSWORD_BYTES = 1024
"""Longer passwords are no safer, and cost time to hash."""


@dataclass(frozen=True)
class PasswordCheck:
    """Whether a password is right, and its new hash if the stored one has outdated settings."""

    right: bool
    new_hash: str | None = None


class PasswordHashing:
    """Hashes and checks passwords, for many threads; a login waits `patience_s` for its turn."""

    def __init__(self, settings: AuthSettings, *, patience_s: float = 10.0) -> None:
        self._least = settings.password_min
        self._patience_s = patience_s
        self._hasher = PasswordHasher(
            settings.password_passes, settings.password_memory_kib, settings.password_lanes
        )
        self._turns = threading.BoundedSemaphore(settings.passwords_at_once)
        # A waiting login occupies a thread, so only as many may wait as are running.
        self._places = threading.BoundedSemaphore(2 * settings.passwords_at_once)

    def hash(self, password: str) -> str:
        """Hash a new password; Invalid if it breaks a rule."""
        self._check_new(password)
        with self._limit_concurrency():
            return self._hasher.hash(_normalize_password(password))

    def check(self, stored: str | None, password: str) -> PasswordCheck:
        """Check a password against its stored hash, or against a dummy hash if there is none."""
        entered = _normalize_password(password)
        dummy = self._dummy_hash
        if len(entered) > MAX_PASSWORD_BYTES:
            stored, entered = None, entered[:MAX_PASSWORD_BYTES]
        with self._limit_concurrency():
            right = self._is_match(stored or dummy, entered) and stored is not None
            if not right or stored is None or not self._hasher.check_needs_rehash(stored):
                return PasswordCheck(right)
            return PasswordCheck(True, self._hasher.hash(entered))

    def _check_new(self, password: str) -> None:
        if len(password) < self._least:
            raise Invalid(f"The password must have at least {self._least} characters.")
        if len(_normalize_password(password)) > MAX_PASSWORD_BYTES:
            raise Invalid(f"The password must have at most {MAX_PASSWORD_BYTES} bytes.")
        if any(unicodedata.category(letter) == "Cc" for letter in password):
            raise Invalid("The password must not contain control characters.")
        if len(set(password)) < min(self._least, 5):
            raise Invalid(
                f"The password must have at least {min(self._least, 5)} different characters."
            )

    @cached_property
    def _dummy_hash(self) -> str:
        with self._limit_concurrency():
            return self._hasher.hash(secrets.token_bytes())

    def _is_match(self, stored: str, entered: bytes) -> bool:
        try:
            return self._hasher.verify(stored, entered)
        except (VerificationError, InvalidHashError):
            return False

    @contextmanager
    def _limit_concurrency(self) -> Iterator[None]:
        with ExitStack() as stack:
            for gate, wait_s in ((self._places, 0.0), (self._turns, self._patience_s)):
                if not gate.acquire(timeout=wait_s):
                    raise Unavailable("Too many concurrent logins.", retry_after_s=2)
                stack.callback(gate.release)
            yield


def _normalize_password(password: str) -> bytes:
    """Normalize to NFKC: keyboards encode the same text differently."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")


PASSWORD_PROVIDER = "local"
"""Name of this provider in sessions and URLs."""
WRONG_CREDENTIALS = "Wrong e-mail address or password."


@dataclass(frozen=True)
class PasswordLogin:
    """Services that check passwords; `patience` is the lockout policy."""

    catalog: Catalog
    passwords: PasswordHashing
    patience: LockoutPolicy


@dataclass(frozen=True)
class LoginAttempt:
    """A login attempt; `browser` is the id of a known browser."""

    email: str
    address: str
    browser: str | None
    at: float
    request_id: str


def check_login(local: PasswordLogin, attempt: LoginAttempt, password: str) -> str:
    """Return the user's identity; Unauthorized, or TooManyRequests during a lockout."""
    email = normalize_email(attempt.email) or ""
    counted = lockout.count_attempt(
        local.catalog, _lockout_keys(attempt, email), local.patience, attempt.at
    )
    with local.catalog.read() as tx:
        row = login.find_password(tx, email)
    check = local.passwords.check(row.hash if row else None, password)
    if row is None or not check.right:
        _record_failed_attempt(local, attempt, email, counted)
        raise Unauthorized(WRONG_CREDENTIALS)
    with local.catalog.write(durable=False) as tx:
        lockout.forgive_attempt(tx, counted)
        if check.new_hash:
            login.rehash_password(tx, row.email, before=row.hash, after=check.new_hash)
    return email


def _lockout_keys(attempt: LoginAttempt, email: str) -> tuple[str, ...]:
    """Return the lockout keys of an attempt.

    A known browser has its own key, so that others' attempts do not lock it out.
    """
    if attempt.browser:
        return (lockout.browser_key(attempt.browser),)
    seen = attempt.address
    return lockout.pair_key(email, seen), lockout.account_key(email), lockout.address_key(seen)


def change_own_password(
    local: PasswordLogin, attempt: LoginAttempt, password: str, new: str
) -> None:
    """Change the password of a user who knows the current one; all their sessions end.

    Unauthorized, TooManyRequests, or Invalid if the new password breaks a rule.
    """
    email = check_login(local, attempt, password)
    hashed = local.passwords.hash(new)
    with local.catalog.write() as tx:
        login.change_password(tx, email, hashed, int(attempt.at * 1e6))
        record_login_event(
            tx, email, "password_changed", email, attempt.request_id, address=attempt.address
        )


def _record_failed_attempt(
    local: PasswordLogin, attempt: LoginAttempt, email: str, counted: lockout.CountedAttempt
) -> None:
    failure, seen = LoginFailure(email, attempt.at, attempt.request_id), attempt.address
    keys = (lockout.account_key(email), lockout.address_key(seen))
    with local.catalog.write(durable=False) as tx:
        record_login_failure(
            tx, "login_failed", failure, keys=keys, address=seen, provider=PASSWORD_PROVIDER
        )
        for key, wait_s in lockout.required_waits(counted, local.patience).items():
            record_login_failure(tx, "locked_out", failure, keys=(key,), locked=key, wait_s=wait_s)
