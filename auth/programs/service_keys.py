"""Keys of service accounts: reading what an operator brings, making what a program takes along."""

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import RSAKey

from storage.errors import Invalid

ALGORITHM = "RS256"
MIN_BITS = 2048
MAX_BITS = 8192
"""Larger ones only make verifying slow."""
MIN_EXPONENT = 65_537
NEW_BITS = 3072
MAX_TEXT = 64 * 1024

_KID = re.compile(r"[A-Za-z0-9._~:/=+-]{1,128}")


@dataclass(frozen=True)
class Registered:
    """A public key that may be put on the list."""

    kid: str
    jwk: str
    """JSON with nothing but what verifying takes."""


def public_key(text: str, *, kid: str = "") -> Registered:
    """The public key in a PEM or a JWK; Invalid when it is private, weak, or of another kind."""
    key, named = _imported(text)
    if key.is_private:
        raise Invalid("This is a private key: keep it where it is used, and give its public half")
    return _registered(key, kid or named)


@dataclass(frozen=True)
class Account:
    """What a credentials file lets its holder sign as."""

    email: str
    audience: str
    kid: str
    key: RSAKey = field(repr=False)


def account_of(credentials: str) -> Account:
    """The account of a credentials file, with its private key; Invalid when it cannot sign."""
    given = _object(credentials)
    email, audience = given.get("client_email"), given.get("audience")
    if not (isinstance(email, str) and email and isinstance(audience, str) and audience):
        raise Invalid("The credentials file names no account, or no audience")
    key = _private(given)
    registered = _registered(key, str(given.get("private_key_id") or ""))
    return Account(email, audience, registered.kid, key)


def key_of(credentials: str, *, email: str) -> Registered:
    """The public half of the key in a credentials file of this account."""
    given = _object(credentials)
    if given.get("client_email") != email:
        raise Invalid("The credentials file is another account's")
    return _registered(_private(given), str(given.get("private_key_id") or ""))


def credentials(email: str, *, audience: str, token_uri: str) -> tuple[str, Registered]:
    """A credentials file with a new key, as programs read it, and the key's public half."""
    key = RSAKey.generate_key(NEW_BITS)
    registered = _registered(key, "")
    given = {
        "type": "service_account",
        "client_email": email,
        "private_key_id": registered.kid,
        "private_key": key.as_pem(private=True).decode(),
        "audience": audience,
        "token_uri": token_uri,
    }
    return json.dumps(given, indent=2) + "\n", registered


def _private(given: Mapping[str, Any]) -> RSAKey:
    """The key of a credentials file."""
    private = given.get("private_key")
    if not isinstance(private, str) or "PRIVATE KEY-----" not in private:
        raise Invalid("The credentials file holds no private key")
    return _rsa(private)


def _imported(text: str) -> tuple[RSAKey, str]:
    if text.lstrip().startswith("-----BEGIN "):
        return _rsa(text), ""
    given = _object(text)
    if given.get("use", "sig") != "sig" or given.get("alg", ALGORITHM) != ALGORITHM:
        raise Invalid(f"The JWK is not for signatures with {ALGORITHM}")
    return _rsa(given), str(given.get("kid") or "")


def _object(text: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text) if len(text) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise Invalid("This is neither a PEM nor a JSON object")
    return given


def _rsa(given: str | Mapping[str, Any]) -> RSAKey:
    try:
        with warnings.catch_warnings():
            # Of weak keys, which are refused below.
            warnings.simplefilter("ignore", SecurityWarning)
            return RSAKey.import_key(given if isinstance(given, str) else dict(given))
    except (JoseError, UnsupportedAlgorithm, ValueError, TypeError, LookupError) as error:
        raise Invalid("This is no RSA key that can be used") from error


def _registered(key: RSAKey, kid: str) -> Registered:
    numbers = key.public_key.public_numbers()
    if not MIN_BITS <= numbers.n.bit_length() <= MAX_BITS:
        raise Invalid(f"The key must have {MIN_BITS} to {MAX_BITS} bits")
    if numbers.e < MIN_EXPONENT:
        raise Invalid(f"The key's public exponent must be {MIN_EXPONENT} or more")
    name = kid or key.thumbprint()
    if not _KID.fullmatch(name):
        raise Invalid("The name of a key has 1 to 128 letters, digits and `._~:/=+-`")
    kept = {**key.as_dict(private=False), "kid": name}
    wanted = {member: kept[member] for member in ("kty", "n", "e", "kid")}
    return Registered(name, json.dumps(wanted, separators=(",", ":"), sort_keys=True))
