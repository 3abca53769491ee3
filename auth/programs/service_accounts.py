"""Programs that sign their own tokens: an allow-list of accounts with registered public keys.

What such an account may do is in the records, as for everybody: its tokens' claims of groups count
for nothing. The list is asked at every token, so what is taken away is away at once.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from joserfc.jwk import RSAKey

from auth.accounts.changing import By, record_audit
from auth.accounts.names import is_user_id
from auth.programs.service_keys import ALGORITHM, Registered
from storage.catalog import Catalog, service_accounts
from storage.catalog.engine import Tx
from storage.errors import Conflict, Invalid, NotFound, Unauthorized
from storage.model import one_spelling

MAX_KEYS = 10
"""Of one account: two while one follows the other, a few more for machines of their own."""


class ServiceAccounts:
    """The accounts that may sign for themselves, and for how long."""

    def __init__(self, catalog: Catalog, *, lifetime_s: int) -> None:
        self._catalog = catalog
        self._lifetime_s = lifetime_s

    def find(self, email: str, kid: str) -> RSAKey | None:
        """The account's key; None when there is none, or the account is disabled."""
        if not is_user_id(email):
            return None
        with self._catalog.read() as tx:
            jwk = service_accounts.usable(tx, one_spelling(email), kid)
        return None if jwk is None else _key(jwk)

    def check(self, algorithm: str, claims: Mapping[str, Any]) -> None:
        """Unauthorized unless verified claims are as such accounts must make them."""
        if algorithm != ALGORITHM:
            raise Unauthorized("The token's algorithm is not accepted")
        issuer = claims["iss"]
        if claims.get("sub") != issuer or claims.get("email", issuer) != issuer:
            raise Unauthorized("The token names others than the account that signed it")
        issued, expires = claims.get("iat"), claims["exp"]
        if issued is None or not 0 < expires - issued <= self._lifetime_s:
            raise Unauthorized(f"The token is not one of at most {self._lifetime_s} seconds")


@lru_cache(maxsize=256)
def _key(jwk: str) -> RSAKey:
    return RSAKey.import_key(json.loads(jwk))


def add(tx: Tx, email: str, key: Registered, *, by: By) -> None:
    """Allow an account, or one more of its keys; the same key again changes nothing."""
    email = one_spelling(email)
    if not is_user_id(email):
        raise Invalid("An account is named by an e-mail address of at most 128 characters")
    held = {each.kid: each.jwk for each in service_accounts.keys(tx, email)}
    if held.get(key.kid) == key.jwk:
        return
    if key.kid in held:
        raise Conflict(f"{email} has another key {key.kid}")
    if len(held) >= MAX_KEYS:
        raise Conflict(f"{email} has {MAX_KEYS} keys already; remove one first")
    if not service_accounts.add(tx, email, key.kid, key.jwk):
        raise Conflict(f"{email} has just got another key {key.kid}")
    record_audit(tx, by, _target(email), before=None, after={"kid": key.kid})


def remove(tx: Tx, email: str, kid: str | None, *, by: By) -> list[str]:
    """Take one key, or the account with all of its keys, from the list; NotFound if not on it."""
    email = one_spelling(email)
    gone = service_accounts.remove(tx, email, kid)
    if not gone:
        raise NotFound(f"{email} has no key {kid}" if kid else f"{email} is no service account")
    for each in gone:
        record_audit(tx, by, _target(email), before={"kid": each}, after=None)
    return gone


def _target(email: str) -> str:
    return f"service_account/{email}"
