"""Cached public keys of one issuer.

The operator chooses their URL; nothing in a token influences it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from auth.http_client import HttpClient
from storage.errors import Unauthorized, Unavailable

log = logging.getLogger(__name__)

VerificationKey = RSAKey | ECKey
KeyFetch = Callable[[], Mapping[str, Any]]
"""Return a JWK set; raise Unavailable if it cannot be read."""

MAX_ISSUER_KEYS = 100
FETCH_TIMEOUT_S = 5.0
MIN_RSA_MODULUS_LENGTH = 342
"""Length of a 2,048-bit modulus in base64url; shorter keys are ignored."""


@dataclass(frozen=True)
class KeyAges:
    """How old keys may be, in seconds."""

    refresh_s: float
    cooldown_s: float
    usable_s: float = 86_400.0
    """Maximum age of keys that could not be refreshed."""

    waiting_s: float = 1.0
    """How long a token with an unknown key waits for a fetch that another thread is making."""


@dataclass(frozen=True)
class _CachedKeys:
    keys: Mapping[str, VerificationKey] = field(default_factory=dict)
    document: Mapping[str, Any] | None = None
    """The JWK set. While it is unchanged, keys stay the same objects, so that cached verifications
    remain valid."""
    fetched_at: float | None = None
    tried_at: float | None = None
    failed: bool = False


class KeyRing:
    """One issuer's keys, for many threads; fetches at most once per cooldown."""

    def __init__(self, fetch: KeyFetch, clock: Callable[[], float], ages: KeyAges) -> None:
        self._fetch = fetch
        self._clock = clock
        self._ages = ages
        self._cached = _CachedKeys()
        self._lock = threading.Lock()

    def find(self, key_id: str) -> VerificationKey:
        """Return a key; Unauthorized if unknown, Unavailable if the keys cannot be read."""
        settled = self._refresh(key_id)
        held = self._cached
        key = held.keys.get(key_id)
        if key is not None and _is_within(held.fetched_at, self._clock(), self._ages.usable_s):
            return key
        if held.failed:
            wait_s = max(1, round(self._ages.cooldown_s))
            raise Unavailable("The keys of the token's issuer cannot be read", retry_after_s=wait_s)
        if not settled:
            raise Unavailable("The keys of the token's issuer are being read", retry_after_s=1)
        raise Unauthorized("The token's key is unknown to its issuer")

    def _refresh(self, key_id: str) -> bool:
        """Fetch keys if due; False if another thread has not finished its fetch in time."""
        if not self._is_refresh_due(key_id):
            return True
        # With a usable key, do not wait for the thread that fetches.
        wait_s = 0.0 if key_id in self._cached.keys else self._ages.waiting_s
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            if self._is_refresh_due(key_id):
                self._cached = self._fetch_keys()
        finally:
            self._lock.release()
        return True

    def _is_refresh_due(self, key_id: str) -> bool:
        held, now = self._cached, self._clock()
        if _is_within(held.tried_at, now, self._ages.cooldown_s):
            return False
        return key_id not in held.keys or not _is_within(held.fetched_at, now, self._ages.refresh_s)

    def _fetch_keys(self) -> _CachedKeys:
        held = self._cached
        try:
            document = self._fetch()
            keys = held.keys if document == held.document else _parse_key_set(document)
        except Unavailable as error:
            log.warning("keys of an issuer cannot be read: %s", error.detail)
            return replace(self._cached, tried_at=self._clock(), failed=True)
        now = self._clock()
        return _CachedKeys(keys=keys, document=document, fetched_at=now, tried_at=now)


def _is_within(since: float | None, now: float, span_s: float) -> bool:
    """Return whether less than the span has passed; False if the clock was set back."""
    return since is not None and 0 <= now - since < span_s


def _parse_key_set(document: Mapping[str, Any]) -> dict[str, VerificationKey]:
    """Return the usable keys of a JWK set by id; skip all others."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise Unavailable("not a JWK set")
    found = (_parse_public_key(data) for data in listed[:MAX_ISSUER_KEYS])
    return {key.kid: key for key in found if key is not None and key.kid}


def _parse_public_key(data: object) -> VerificationKey | None:
    """Parse a public key; None if it is symmetric, weak or invalid."""
    if not isinstance(data, dict):
        return None
    if data.get("kty") == "RSA" and len(str(data.get("n", ""))) < MIN_RSA_MODULUS_LENGTH:
        return None
    if data.get("use", "sig") != "sig" or not isinstance(data.get("kid"), str):
        return None
    try:
        key = JWKRegistry.import_key(data)
    except (JoseError, UnsupportedAlgorithm, ValueError, TypeError, LookupError):
        return None
    return key if isinstance(key, RSAKey | ECKey) else None


def fetch_json(url: str, *, timeout_s: float = FETCH_TIMEOUT_S) -> Mapping[str, Any]:
    """Return the JSON object at a URL that the operator chose; Unavailable if there is none."""
    return HttpClient(timeout_s).request("GET", url, {}).object()
