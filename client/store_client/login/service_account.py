"""Programs that sign their own tokens, with the key of a credentials file.

A token is signed for the base URL that the program asks, never for a word of the file or of a
server: so whoever runs another store can do nothing with the tokens that are sent there.
"""

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import RSAKey

from store_client.errors import Misused
from store_client.login.expiry import NEARLY_S
from store_client.login.kept import make_private
from store_client.login.tokens import VARIABLE

ALGORITHM = "RS256"
LIFE_S = 600
"""From `iat` to `exp`: stores take an hour unless they are told otherwise."""
BACKDATED_S = 60
"""Clocks differ: a token of the future would be refused."""
MIN_BITS = 2048
MAX_FILE = 64 * 1024
HINT = f"{VARIABLE} names a file that `python -m ops service-accounts add` made at the store"


@dataclass(frozen=True, slots=True)
class Account:
    """What a credentials file lets its holder sign as."""

    email: str
    kid: str
    key: RSAKey = field(repr=False)


def account_of(text: str, name: str) -> Account:
    """The account of a credentials file; Misused when it cannot sign, in words that repeat nothing
    of the file."""
    found = _object(text, name)
    email, key = found.get("client_email"), found.get("private_key")
    if found.get("type", "service_account") != "service_account":
        raise Misused(f"{name} is no file of a service account", hint=HINT)
    if not isinstance(email, str) or "@" not in email:
        raise Misused(f"{name} names no account: its `client_email` is missing", hint=HINT)
    if not isinstance(key, str) or "PRIVATE KEY-----" not in key:
        raise Misused(f"{name} holds no private key: its `private_key` is missing", hint=HINT)
    imported = _key(key, name)
    kid = found.get("private_key_id") or imported.thumbprint()
    return Account(email, str(kid), imported)


def sign(account: Account, audience: str, now_s: float) -> str:
    """A token that is good for this store alone, for a few minutes."""
    issued = int(now_s) - BACKDATED_S
    said = {
        "iss": account.email,
        "sub": account.email,
        "email": account.email,
        "aud": audience,
        "iat": issued,
        "exp": issued + LIFE_S,
    }
    header = {"typ": "JWT", "alg": ALGORITHM, "kid": account.kid}
    return jwt.encode(header, said, account.key, algorithms=[ALGORITHM])


@dataclass(frozen=True, slots=True)
class _Signed:
    token: str = field(repr=False)
    text: str = field(repr=False)
    at_s: float


class ServiceTokens:
    """Signs for many threads. The file is read again for each token, so that another key is taken
    up soon."""

    def __init__(self, path: Path, audience: str, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._audience = audience
        self._now = now
        self._held: _Signed | None = None
        self._lock = Lock()

    @property
    def account(self) -> Account:
        """The account of the file; Misused when it is none."""
        return account_of(self._text(), self._path.name)

    def bearer(self) -> str:
        """A token that is good for a while yet."""
        with self._lock:
            held, now = self._held, self._now()
            left = 0.0 if held is None else held.at_s - BACKDATED_S + LIFE_S - now
            # A clock that was set back makes a token one of the future.
            if held is None or not NEARLY_S <= left <= LIFE_S:
                held = self._held = self._signed(now)
            return held.token

    def renewed(self, refused: str) -> str | None:
        """Another token if there is a reason why that one was refused: another key, a clock that
        was set, another thread that renewed it; else None."""
        with self._lock:
            held, now = self._held, self._now()
            if held is not None and held.token != refused:
                return held.token
            if held is not None and held.text == self._text() and abs(now - held.at_s) < NEARLY_S:
                return None
            self._held = self._signed(now)
            return self._held.token

    def _signed(self, now: float) -> _Signed:
        text = self._text()
        account = account_of(text, self._path.name)
        return _Signed(sign(account, self._audience, now), text, now)

    def _text(self) -> str:
        make_private(self._path)
        try:
            data = self._path.read_bytes()
        except OSError as error:
            said = error.strerror or "cannot be read"
            raise Misused(f"{VARIABLE} names {self._path}: {said}", hint=HINT) from error
        try:
            return data.decode() if len(data) <= MAX_FILE else ""
        except UnicodeDecodeError:
            return ""


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Misused(f"{name} is no credentials file: it holds no JSON object", hint=HINT)
    return found


def _key(pem: str, name: str) -> RSAKey:
    try:
        with warnings.catch_warnings():
            # Of weak keys, which are refused below.
            warnings.simplefilter("ignore", SecurityWarning)
            key = RSAKey.import_key(pem)
            bits = key.public_key.key_size
    except Exception as error:  # whatever a foreign file makes the library trip over
        raise Misused(f"the `private_key` of {name} is no RSA key", hint=HINT) from error
    if bits < MIN_BITS:
        raise Misused(f"the key of {name} has {bits} bits; stores want {MIN_BITS}", hint=HINT)
    return key
