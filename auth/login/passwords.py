"""Passwords of the local provider: argon2id, so many at once as there is memory for.

Who is unknown costs as much time as who is known: a password is then checked against a hash that
nobody has the password of.
"""

import secrets
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from storage.errors import Invalid, Unavailable

MAX_BYTES = 1024
"""Of a password: more is no safer, and hashing it costs."""


@dataclass(frozen=True)
class Costs:
    """What a hash takes, how many are made at once, how short a password may be, and how long a
    login waits until others have been hashed."""

    memory_kib: int = 65_536
    passes: int = 3
    lanes: int = 4
    at_once: int = 2
    least: int = 12
    patience_s: float = 10.0


class CostSettings(Protocol):
    """The part of Settings that says what a hash takes."""

    @property
    def password_memory_kib(self) -> int: ...
    @property
    def password_passes(self) -> int: ...
    @property
    def password_lanes(self) -> int: ...
    @property
    def passwords_at_once(self) -> int: ...
    @property
    def password_min(self) -> int: ...


def costs(settings: CostSettings) -> Costs:
    """As the settings have them."""
    return Costs(
        memory_kib=settings.password_memory_kib,
        passes=settings.password_passes,
        lanes=settings.password_lanes,
        at_once=settings.passwords_at_once,
        least=settings.password_min,
    )


@dataclass(frozen=True)
class Checked:
    """Whether a password is right, and its hash as it would be made today if it should be anew."""

    right: bool
    renewed: str | None = None


class Passwords:
    """Hashes and checks, for many threads."""

    def __init__(self, costs: Costs) -> None:
        self._least = costs.least
        self._patience_s = costs.patience_s
        self._hasher = PasswordHasher(costs.passes, costs.memory_kib, costs.lanes)
        self._turns = threading.BoundedSemaphore(costs.at_once)
        # Whoever waits holds a thread that others need: as many may as are served.
        self._places = threading.BoundedSemaphore(2 * costs.at_once)

    def hash(self, password: str) -> str:
        """The hash of a new password; Invalid when it may not be one."""
        self._check_new(password)
        with self._turn():
            return self._hasher.hash(_normal(password))

    def check(self, stored: str | None, password: str) -> Checked:
        """Whether the password is the stored one's; without one stored it never is."""
        given = _normal(password)
        nobodys = self._nobodys
        if len(given) > MAX_BYTES:
            stored, given = None, given[:MAX_BYTES]
        with self._turn():
            right = self._verified(stored or nobodys, given) and stored is not None
            if not right or stored is None or not self._hasher.check_needs_rehash(stored):
                return Checked(right)
            return Checked(True, self._hasher.hash(given))

    def _check_new(self, password: str) -> None:
        if len(password) < self._least:
            raise Invalid(f"A password has at least {self._least} characters.")
        if len(_normal(password)) > MAX_BYTES:
            raise Invalid(f"A password has at most {MAX_BYTES} bytes.")
        if any(unicodedata.category(one) == "Cc" for one in password):
            raise Invalid("A password has no control characters.")
        if len(set(password)) < min(self._least, 5):
            raise Invalid("A password is more than a few characters again and again.")

    @cached_property
    def _nobodys(self) -> str:
        with self._turn():
            return self._hasher.hash(secrets.token_bytes())

    def _verified(self, stored: str, given: bytes) -> bool:
        try:
            return self._hasher.verify(stored, given)
        except (VerificationError, InvalidHashError):
            return False

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with ExitStack() as held:
            for gate, wait_s in ((self._places, 0.0), (self._turns, self._patience_s)):
                if not gate.acquire(timeout=wait_s):
                    raise Unavailable("Too many are logging in.", retry_after_s=2)
                held.callback(gate.release)
            yield


def _normal(password: str) -> bytes:
    """One spelling of what keyboards write differently."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
