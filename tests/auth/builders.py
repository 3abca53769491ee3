"""Build tokens as an issuer or a forger would."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from auth.tokens.signing_keys import SigningKeys, key_algorithm
from auth.tokens.verification import KeyAges, KeyRing, TokenVerifier
from storage.errors import Unavailable

ISSUER = "https://issuer.example"
NOW = 1_700_000_000.0
AGES = KeyAges(refresh_s=3600, cooldown_s=30)


def claims(**changed: Any) -> dict[str, Any]:
    """Claims that are accepted at NOW, with some changed; None takes one away."""
    ordinary = {
        "iss": ISSUER,
        "sub": "subject",
        "aud": ["store"],
        "email": "ada@example.org",
        "groups": ["store_ingest"],
        "scope": "openid email",
        "iat": NOW,
        "exp": NOW + 3600,
    }
    return {name: value for name, value in {**ordinary, **changed}.items() if value is not None}


def signed(key: RSAKey | ECKey, body: Any, **header: Any) -> str:
    """A compact JWS over this body; further header members as given, None takes one away."""
    members = {"alg": key_algorithm(key), "kid": key.kid, **header}
    registry = jws.JWSRegistry(algorithms=["RS256", "ES256"], strict_check_header=False)
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    protected = {name: value for name, value in members.items() if value is not None}
    return jws.serialize_compact(protected, payload, key, registry=registry)


def segment(value: Any) -> str:
    """One part of a compact token, written by hand."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass
class Clock:
    """A clock that tests move."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@dataclass
class Issuer:
    """What an issuer's key address answers, how often it was asked, and whether it is down."""

    keys: SigningKeys
    down: bool = False
    asked: int = 0
    document: Mapping[str, Any] | None = None
    before: Callable[[], object] = field(default=lambda: None)

    def __call__(self) -> Mapping[str, Any]:
        self.asked += 1
        self.before()
        if self.down:
            raise Unavailable("no answer")
        return self.keys.jwks() if self.document is None else self.document


def verifier_of(issuer: Issuer, clock: Clock, **options: Any) -> TokenVerifier:
    """A verifier that trusts this issuer alone."""
    accepted: dict[str, Any] = {"audiences": ["store"], "algorithms": ["RS256", "ES256"]}
    rings = {ISSUER: KeyRing(issuer, clock, AGES)}
    return TokenVerifier(rings, clock=clock, **{**accepted, **options})
