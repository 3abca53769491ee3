"""Verify id tokens, and sign tokens of service accounts; needs joserfc.

A service account signs a token for the base URL that is used, whatever the file or a server says:
so another store can do nothing with the tokens that it receives.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import KeySet, RSAKey

from store_client.atomic_files import parse_json_object
from store_client.auth.claims import NEARLY_S
from store_client.auth.credentials import CREDENTIALS_VARIABLE, make_private
from store_client.auth.oauth import CLIENT_ID
from store_client.errors import Misused, Refused
from store_client.http.retries import MAX_SMALL_ANSWER
from store_client.http.session import HttpSession

ID_TOKEN_ALGORITHMS = ["RS256", "ES256"]


def verify_id_token(
    session: HttpSession, token: str, *, issuer: str, jwks_uri: str, nonce: str
) -> None:
    """Verify an id token: signature, issuer, audience and nonce; Refused if invalid.

    This guards against an injected authorization code.
    """
    try:
        answer = session.request("GET", jwks_uri, authorize=False, limit=MAX_SMALL_ANSWER)
        document: Any = parse_json_object(answer.content) or {}
        keys = KeySet.import_key_set(document)
        said = jwt.decode(token, keys, algorithms=ID_TOKEN_ALGORITHMS).claims
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise Refused("the id token of this login cannot be verified") from error
    audience = said.get("aud")
    ours = audience == CLIENT_ID or (isinstance(audience, list) and CLIENT_ID in audience)
    if said.get("iss") != issuer or not ours or said.get("nonce") != nonce:
        raise Refused("the id token is of another login")


ALGORITHM = "RS256"
LIFE_S = 600
"""Seconds from `iat` to `exp`; stores accept an hour by default."""
BACKDATED_S = 60
"""Backdating by this many seconds allows for clock differences."""
MIN_BITS = 2048
MAX_FILE = 64 * 1024
HINT = (
    f"{CREDENTIALS_VARIABLE} names a file that `python -m ops service-accounts add` made at the"
    " store"
)


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The account and key of a credentials file."""

    email: str
    kid: str
    key: RSAKey = field(repr=False)


def parse_account(text: str, name: str) -> ServiceAccount:
    """Parse a credentials file; Misused, without repeating its content, if invalid."""
    found = parse_json_object(text)
    if found is None:
        raise Misused(f"{name} is not a credentials file: it holds no JSON object", hint=HINT)
    email, key = found.get("client_email"), found.get("private_key")
    if found.get("type", "service_account") != "service_account":
        raise Misused(f"{name} is not a credentials file of a service account", hint=HINT)
    if not isinstance(email, str) or "@" not in email:
        raise Misused(f"{name} names no account: its `client_email` is missing", hint=HINT)
    if not isinstance(key, str) or "PRIVATE KEY-----" not in key:
        raise Misused(f"{name} holds no private key: its `private_key` is missing", hint=HINT)
    imported = _import_key(key, name)
    kid = found.get("private_key_id") or imported.thumbprint()
    return ServiceAccount(email, str(kid), imported)


def sign_token(account: ServiceAccount, audience: str, now_s: float) -> str:
    """Sign a token for this store, valid for a few minutes."""
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
class _SignedToken:
    token: str = field(repr=False)
    text: str = field(repr=False)
    at_s: float


class ServiceAccountTokens:
    """Signs tokens; threads share it.

    The file is read again for each token, so that a new key is used soon.
    """

    def __init__(self, path: Path, audience: str, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._audience = audience
        self._now = now
        self._current: _SignedToken | None = None
        self._lock = Lock()

    @property
    def account(self) -> ServiceAccount:
        """The account of the file; Misused if it is invalid."""
        return parse_account(self._read_file(), self._path.name)

    def bearer(self) -> str:
        """A token that stays valid for a while."""
        with self._lock:
            held, now = self._current, self._now()
            left = 0.0 if held is None else held.at_s - BACKDATED_S + LIFE_S - now
            # A clock that was set back makes a token one of the future.
            if held is None or not NEARLY_S <= left <= LIFE_S:
                held = self._current = self._sign(now)
            return held.token

    def renew(self, refused: str) -> str | None:
        """A new token if the key, the clock or the current token changed; else None."""
        with self._lock:
            held, now = self._current, self._now()
            if held is not None and held.token != refused:
                return held.token
            if (
                held is not None
                and held.text == self._read_file()
                and abs(now - held.at_s) < NEARLY_S
            ):
                return None
            self._current = self._sign(now)
            return self._current.token

    def _sign(self, now: float) -> _SignedToken:
        text = self._read_file()
        account = parse_account(text, self._path.name)
        return _SignedToken(sign_token(account, self._audience, now), text, now)

    def _read_file(self) -> str:
        make_private(self._path)
        try:
            data = self._path.read_bytes()
        except OSError as error:
            said = error.strerror or "cannot be read"
            raise Misused(
                f"{CREDENTIALS_VARIABLE} names {self._path}: {said}", hint=HINT
            ) from error
        try:
            return data.decode() if len(data) <= MAX_FILE else ""
        except UnicodeDecodeError:
            return ""


def _import_key(pem: str, name: str) -> RSAKey:
    try:
        with warnings.catch_warnings():
            # Of weak keys, which are refused below.
            warnings.simplefilter("ignore", SecurityWarning)
            key = RSAKey.import_key(pem)
            bits = key.public_key.key_size
    except Exception as error:  # whatever a foreign file makes the library trip over
        raise Misused(f"the `private_key` of {name} is not an RSA key", hint=HINT) from error
    if bits < MIN_BITS:
        raise Misused(f"the key of {name} has {bits} bits; stores want {MIN_BITS}", hint=HINT)
    return key
