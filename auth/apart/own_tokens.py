"""Tokens that a program of ours signs for itself, as the account of a credentials file."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from joserfc import jwt

from auth.programs.service_keys import ALGORITHM, Account, account_of
from storage.errors import Invalid, Unavailable

LIFE_S = 120
"""Whoever got hold of one has little of it."""
RENEWED_S = 60
"""So long before its end a token is followed by the next one: clocks differ."""


@dataclass(frozen=True)
class _Signed:
    token: str
    ends_s: float


@lru_cache(maxsize=1)
def _account(text: str) -> Account:
    """To make a key ready takes longer than to sign with it."""
    return account_of(text)


class OwnTokens:
    """Signs for many threads. The file is read each time, so that another key is taken up soon."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._held: _Signed | None = None
        try:
            self._account()
        except Unavailable as error:
            raise Invalid(f"STORE_POLICIES_CREDENTIALS: {error.detail}") from error

    def current(self) -> str:
        """A token that is good for a while yet; Unavailable when the file cannot be read."""
        held, now = self._held, self._clock()
        # A clock that was set back makes a token one of the future.
        if held is None or not RENEWED_S <= held.ends_s - now <= LIFE_S:
            held = self._held = self._signed(now)
        return held.token

    def forget(self) -> None:
        """The next token is a new one: this one was refused."""
        self._held = None

    def _signed(self, now: float) -> _Signed:
        account, issued = self._account(), int(now)
        claims = {
            "iss": account.email,
            "sub": account.email,
            "email": account.email,
            "aud": account.audience,
            "iat": issued,
            "exp": issued + LIFE_S,
        }
        header = {"typ": "JWT", "alg": ALGORITHM, "kid": account.kid}
        token = jwt.encode(header, claims, account.key, algorithms=[ALGORITHM])
        return _Signed(token, issued + LIFE_S)

    def _account(self) -> Account:
        try:
            return _account(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, Invalid) as error:
            why = error.detail if isinstance(error, Invalid) else "The file cannot be read"
            raise Unavailable(f"This store cannot sign for itself: {why}") from error
