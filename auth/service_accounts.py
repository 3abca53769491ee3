"""Service accounts: programs that sign their own tokens, and their registered public keys.

The catalog holds an account's permissions, as for every user; groups claimed by its tokens are
ignored. Every token looks up its key, so revocation takes effect at once.
"""

import ipaddress
import json
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import RSAKey

from auth.accounts import AuditContext, is_user_id, record_audit
from storage.catalog import Catalog, Tx, accounts
from storage.catalog.accounts import ServiceKey
from storage.errors import ConflictError, Invalid, NotFoundError, Unauthorized
from storage.model import normalize_identity

SERVICE_ACCOUNT_ALGORITHM = "RS256"
MIN_KEY_BITS = 2048
MAX_KEY_BITS = 8192
"""Larger keys only slow down verifying."""
MIN_EXPONENT = 65_537
NEW_KEY_BITS = 3072
MAX_KEY_TEXT = 64 * 1024

_KEY_ID_REGEX = re.compile(r"[A-Za-z0-9._~:/=+-]{1,128}")


@dataclass(frozen=True)
class RegisteredKey:
    """A checked public key."""

    kid: str
    jwk: str
    """JSON of the public members only."""


def parse_public_key(text: str, *, kid: str = "") -> RegisteredKey:
    """Parse a public key, PEM or JWK; Invalid if it is private, weak, or not RSA."""
    key, jwk_kid = _import_key(text)
    if key.is_private:
        raise Invalid("This is a private key: keep it where it is used, and give its public half")
    return _register_key(key, kid or jwk_kid)


@dataclass(frozen=True)
class ServiceAccountIdentity:
    """The account and key of a credentials file."""

    email: str
    audience: str
    kid: str
    key: RSAKey = field(repr=False)


def parse_credentials(credentials: str) -> ServiceAccountIdentity:
    """Parse a credentials file with its private key; Invalid if malformed."""
    members = _parse_object(credentials)
    email, audience = members.get("client_email"), members.get("audience")
    if not (isinstance(email, str) and email and isinstance(audience, str) and audience):
        raise Invalid("The credentials file names no account, or no audience")
    key = _parse_private_key(members)
    registered = _register_key(key, str(members.get("private_key_id") or ""))
    return ServiceAccountIdentity(email, audience, registered.kid, key)


def parse_credentials_key(credentials: str, *, email: str) -> RegisteredKey:
    """Return the public key of this account's credentials file."""
    members = _parse_object(credentials)
    if members.get("client_email") != email:
        raise Invalid("The credentials file is another account's")
    return _register_key(_parse_private_key(members), str(members.get("private_key_id") or ""))


def create_credentials(email: str, *, audience: str, token_uri: str) -> tuple[str, RegisteredKey]:
    """Create a credentials file with a new key, and return both."""
    key = RSAKey.generate_key(NEW_KEY_BITS)
    registered = _register_key(key, "")
    members = {
        "type": "service_account",
        "client_email": email,
        "private_key_id": registered.kid,
        "private_key": key.as_pem(private=True).decode(),
        "audience": audience,
        "token_uri": token_uri,
    }
    return json.dumps(members, indent=2) + "\n", registered


def _parse_private_key(members: Mapping[str, Any]) -> RSAKey:
    """Parse a file's private key."""
    private = members.get("private_key")
    if not isinstance(private, str) or "PRIVATE KEY-----" not in private:
        raise Invalid("The credentials file holds no private key")
    return _import_rsa_key(private)


def _import_key(text: str) -> tuple[RSAKey, str]:
    if text.lstrip().startswith("-----BEGIN "):
        return _import_rsa_key(text), ""
    jwk = _parse_object(text)
    if (
        jwk.get("use", "sig") != "sig"
        or jwk.get("alg", SERVICE_ACCOUNT_ALGORITHM) != SERVICE_ACCOUNT_ALGORITHM
    ):
        raise Invalid(f"The JWK is not for signatures with {SERVICE_ACCOUNT_ALGORITHM}")
    return _import_rsa_key(jwk), str(jwk.get("kid") or "")


def _parse_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text) if len(text) <= MAX_KEY_TEXT else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Invalid("This is neither a PEM nor a JSON object")
    return value


def _import_rsa_key(source: str | Mapping[str, Any]) -> RSAKey:
    try:
        with warnings.catch_warnings():
            # `_register_key` rejects weak keys.
            warnings.simplefilter("ignore", SecurityWarning)
            return RSAKey.import_key(source if isinstance(source, str) else dict(source))
    except (JoseError, UnsupportedAlgorithm, ValueError, TypeError, LookupError) as error:
        raise Invalid("This is no RSA key that can be used") from error


def _register_key(key: RSAKey, kid: str) -> RegisteredKey:
    numbers = key.public_key.public_numbers()
    if not MIN_KEY_BITS <= numbers.n.bit_length() <= MAX_KEY_BITS:
        raise Invalid(f"The key must have {MIN_KEY_BITS} to {MAX_KEY_BITS} bits")
    if numbers.e < MIN_EXPONENT:
        raise Invalid(f"The key's public exponent must be {MIN_EXPONENT} or more")
    name = kid or key.thumbprint()
    if not _KEY_ID_REGEX.fullmatch(name):
        raise Invalid("The name of a key has 1 to 128 letters, digits and `._~:/=+-`")
    members = {**key.as_dict(private=False), "kid": name}
    jwk = {member: members[member] for member in ("kty", "n", "e", "kid")}
    return RegisteredKey(name, json.dumps(jwk, separators=(",", ":"), sort_keys=True))


MAX_KEYS = 10
"""Per account: two during a rotation, and some for separate machines."""


class ServiceAccounts:
    """Registered service accounts and their token lifetime."""

    def __init__(self, catalog: Catalog, *, lifetime_s: int) -> None:
        self._catalog = catalog
        self._lifetime_s = lifetime_s

    def find(self, email: str, kid: str) -> RSAKey | None:
        """Find the account's key; None if missing or the account is disabled."""
        if not is_user_id(email):
            return None
        with self._catalog.read() as tx:
            jwk = accounts.find_usable_service_key(tx, normalize_identity(email), kid)
        return None if jwk is None else _load_key(jwk)

    def check(self, algorithm: str, claims: Mapping[str, Any]) -> None:
        """Check verified claims of a service account; Unauthorized if invalid."""
        if algorithm != SERVICE_ACCOUNT_ALGORITHM:
            raise Unauthorized("The token's algorithm is not accepted")
        issuer = claims["iss"]
        if claims.get("sub") != issuer or claims.get("email", issuer) != issuer:
            raise Unauthorized("The token names others than the account that signed it")
        issued, expires = claims.get("iat"), claims["exp"]
        if issued is None or not 0 < expires - issued <= self._lifetime_s:
            raise Unauthorized(f"The token is not one of at most {self._lifetime_s} seconds")


@lru_cache(maxsize=256)
def _load_key(jwk: str) -> RSAKey:
    return RSAKey.import_key(json.loads(jwk))


def own_address_check(external_url: str, allowed_hosts: Collection[str]) -> Callable[[str], bool]:
    """Return a check whether an audience is this store's base URL.

    Without an external URL, loopback addresses and the allowed hosts are accepted."""
    hosts = {host.lower() for host in allowed_hosts}
    own = _split_base_url(external_url)

    def is_own(audience: str) -> bool:
        parts = _split_base_url(audience)
        if parts is None or own is not None:
            return parts is not None and parts == own
        _, host, place, path = parts
        return not path and (_is_loopback(host) or host in hosts or place in hosts)

    return is_own


def _split_base_url(url: str) -> tuple[str, str, str, str] | None:
    """Split into scheme, host, host with any non-default port, path; None if invalid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    if usual is None or not host or parts.query or parts.fragment or parts.username is not None:
        return None
    place = host if port in (None, usual) else f"{host}:{port}"
    return parts.scheme, host, place, parts.path.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def add_account_key(tx: Tx, email: str, key: RegisteredKey, *, by: AuditContext) -> None:
    """Register a key, and the account if new; an identical key changes nothing."""
    email = normalize_identity(email)
    if not is_user_id(email):
        raise Invalid("An account is named by an e-mail address of at most 128 characters")
    registered = {each.kid: each.jwk for each in accounts.list_service_keys(tx, email)}
    if registered.get(key.kid) == key.jwk:
        return
    if key.kid in registered:
        raise ConflictError(f"{email} has another key {key.kid}")
    if len(registered) >= MAX_KEYS:
        raise ConflictError(f"{email} has {MAX_KEYS} keys already; remove one first")
    if not accounts.insert_service_key(tx, email, key.kid, key.jwk):
        raise ConflictError(f"{email} has just got another key {key.kid}")
    record_audit(tx, by, _audit_target(email), before=None, after={"kid": key.kid})


def remove_account_keys(tx: Tx, email: str, kid: str | None, *, by: AuditContext) -> list[str]:
    """Remove one key, or all keys of the account; NotFoundError if there are none."""
    email = normalize_identity(email)
    removed = accounts.delete_service_keys(tx, email, kid)
    if not removed:
        raise NotFoundError(
            f"{email} has no key {kid}" if kid else f"{email} is no service account"
        )
    for each in removed:
        record_audit(tx, by, _audit_target(email), before={"kid": each}, after=None)
    return removed


def _audit_target(email: str) -> str:
    return f"service_account/{email}"


def list_service_accounts(catalog: Catalog) -> Mapping[str, Sequence[ServiceKey]]:
    """List the keys of every service account; administrators add them by hand, so there are few."""
    with catalog.read() as tx:
        keys = accounts.list_service_keys(tx)
    return {
        email: [key for key in keys if key.email == email] for email in {k.email: 0 for k in keys}
    }


def add_service_key(catalog: Catalog, email: str, text: str, by: AuditContext) -> str:
    """Register a public key (PEM or JWK) of an account; return its id. Invalid, ConflictError."""
    key = parse_public_key(text)
    with catalog.write() as tx:
        add_account_key(tx, email, key, by=by)
    return key.kid


def remove_service_key(catalog: Catalog, email: str, kid: str, by: AuditContext) -> bool:
    """Remove a key; return whether the account has others. NotFoundError if it has no such key."""
    with catalog.write() as tx:
        remove_account_keys(tx, email, kid, by=by)
        return bool(accounts.list_service_keys(tx, normalize_identity(email)))
