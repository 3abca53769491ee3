"""The public keys of one issuer: read, cached, read again when they are old or a key is unknown.

Where they are read from is the operator's choice alone; nothing in a token has a say in it.
"""

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpcore
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from auth.bounding import FAILURES, asking
from storage.errors import Unauthorized, Unavailable

log = logging.getLogger(__name__)

PublicKey = RSAKey | ECKey
Fetch = Callable[[], Mapping[str, Any]]
"""Reads a JWK set; raises Unavailable when it cannot."""

MAX_SET_BYTES = 256 * 1024
MAX_KEYS = 100
FETCH_TIMEOUT_S = 5.0
MIN_RSA_CHARACTERS = 342
"""A modulus of 2,048 bits in base64url; shorter ones are not accepted."""


@dataclass(frozen=True)
class Ages:
    """How old keys may be, in seconds."""

    refresh_s: float
    cooldown_s: float
    usable_s: float = 86_400.0
    """Beyond this age keys that could not be refreshed are no longer believed."""

    waiting_s: float = 1.0
    """How long a token with an unknown key waits for a fetch that another thread is making."""


@dataclass(frozen=True)
class _Held:
    keys: Mapping[str, PublicKey] = field(default_factory=dict)
    document: Mapping[str, Any] | None = None
    """What the keys were made of. They stay the same objects while it does, so that a signature
    that was verified with one need not be verified again."""
    fetched_at: float | None = None
    tried_at: float | None = None
    failed: bool = False


class KeyRing:
    """One issuer's keys, for many threads; at most one fetch per cool-down, whatever is asked."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float], ages: Ages) -> None:
        self._fetch = fetch
        self._clock = clock
        self._ages = ages
        self._held = _Held()
        self._lock = threading.Lock()

    def find(self, key_id: str) -> PublicKey:
        """The key; Unauthorized when its issuer has none such, Unavailable when none can tell."""
        settled = self._refresh(key_id)
        held = self._held
        key = held.keys.get(key_id)
        if key is not None and _within(held.fetched_at, self._clock(), self._ages.usable_s):
            return key
        if held.failed:
            wait_s = max(1, round(self._ages.cooldown_s))
            raise Unavailable("The keys of the token's issuer cannot be read", retry_after_s=wait_s)
        if not settled:
            raise Unavailable("The keys of the token's issuer are being read", retry_after_s=1)
        raise Unauthorized("The token's key is not one of its issuer")

    def _refresh(self, key_id: str) -> bool:
        """Fetch if that is due; False when another thread is at it and took too long for us."""
        if not self._due(key_id):
            return True
        # Whoever has a usable key goes on with it while somebody else fetches.
        wait_s = 0.0 if key_id in self._held.keys else self._ages.waiting_s
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            if self._due(key_id):
                self._held = self._fetched()
        finally:
            self._lock.release()
        return True

    def _due(self, key_id: str) -> bool:
        held, now = self._held, self._clock()
        if _within(held.tried_at, now, self._ages.cooldown_s):
            return False
        return key_id not in held.keys or not _within(held.fetched_at, now, self._ages.refresh_s)

    def _fetched(self) -> _Held:
        held = self._held
        try:
            document = self._fetch()
            keys = held.keys if document == held.document else _usable(document)
        except Unavailable as error:
            log.warning("keys of an issuer cannot be read: %s", error.detail)
            return replace(self._held, tried_at=self._clock(), failed=True)
        now = self._clock()
        return _Held(keys=keys, document=document, fetched_at=now, tried_at=now)


def _within(since: float | None, now: float, span_s: float) -> bool:
    """Whether less than the span has passed; a clock that was set back counts as passed."""
    return since is not None and 0 <= now - since < span_s


def _usable(document: Mapping[str, Any]) -> dict[str, PublicKey]:
    """The keys of a JWK set that can verify, by id; those that are not understood are left out."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise Unavailable("not a JWK set")
    found = (_public(data) for data in listed[:MAX_KEYS])
    return {key.kid: key for key in found if key is not None and key.kid}


def _public(data: object) -> PublicKey | None:
    """A public key that signatures are verified with; symmetric, weak and broken ones are none."""
    if not isinstance(data, dict):
        return None
    if data.get("kty") == "RSA" and len(str(data.get("n", ""))) < MIN_RSA_CHARACTERS:
        return None
    if data.get("use", "sig") != "sig" or not isinstance(data.get("kid"), str):
        return None
    try:
        key = JWKRegistry.import_key(data)
    except (JoseError, UnsupportedAlgorithm, ValueError, TypeError, LookupError):
        return None
    return key if isinstance(key, RSAKey | ECKey) else None


def fetch_json(url: str, *, timeout_s: float = FETCH_TIMEOUT_S) -> Mapping[str, Any]:
    """The JSON object at an operator's URL: no redirect, no proxy, bounded in time and size."""
    try:
        document = json.loads(_download(url, timeout_s))
    except (*FAILURES, RecursionError) as error:
        raise Unavailable(f"{url} cannot be read: {type(error).__name__}") from error
    if not isinstance(document, dict):
        raise Unavailable(f"{url} is not a JSON object")
    return document


def _download(url: str, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
    with (
        httpcore.ConnectionPool(ssl.create_default_context()) as pool,
        pool.stream("GET", url, headers=asking({}), extensions={"timeout": timeouts}) as response,
    ):
        if response.status != 200:
            raise ValueError(f"status {response.status}")
        return _bounded(response.iter_stream(), deadline)


def _bounded(chunks: Iterable[bytes], deadline: float) -> bytes:
    """All chunks; the time-out of a socket alone would let a slow sender go on for ever."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_SET_BYTES or time.monotonic() > deadline:
            raise ValueError("too large or too slow")
    return bytes(body)
