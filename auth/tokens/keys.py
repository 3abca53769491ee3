"""The service's own signing keys: the first signs, all of them verify. Where they are kept is in
`key_file`.

A key that signs no more is kept until the last token that it signed has ended: those that
applications get live as long as a setting says, and of those that an operator signs the end is
written down beside the key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from joserfc.jwk import ECKey, JWKRegistry, RSAKey

SigningKey = RSAKey | ECKey
Algorithm = Literal["RS256", "ES256"]

MARGIN_S = 86_400
"""How much longer a retired key is kept: its file may reach another machine later."""
UNKNOWN_S = 366 * 86_400
"""How long a key is kept of which nobody wrote down what it signed: an administrator's token lives
for a year."""


@dataclass(frozen=True)
class SigningKeys:
    """The service's private keys: the first one signs, all of them verify."""

    keys: tuple[SigningKey, ...]
    until: Mapping[str, float] = field(default_factory=dict)
    """By key id: when the last token ends that an operator signed with it."""

    @property
    def signing(self) -> SigningKey:
        """The key that new tokens are signed with."""
        return self.keys[0]

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """Signature algorithms of all keys, each once, the signing key's first."""
        return tuple(dict.fromkeys(algorithm_of(key) for key in self.keys))

    def jwks(self) -> dict[str, Any]:
        """The public halves as a JWK set."""
        return {"keys": [_published(key) for key in self.keys]}


def algorithm_of(key: SigningKey) -> Algorithm:
    """The one algorithm that a key of ours signs with."""
    return "RS256" if isinstance(key, RSAKey) else "ES256"


def new_keys(algorithm: Algorithm = "RS256") -> SigningKeys:
    """A new key, which has signed nothing yet."""
    key = _generated(algorithm)
    return SigningKeys((key,), {key_id(key): 0.0})


def followed(held: SigningKeys, made: SigningKeys, now: float, life_s: float) -> SigningKeys:
    """A new key before those whose tokens have not all ended, none of which signs any more."""
    signed = held.until.get(key_id(held.signing), now + UNKNOWN_S)
    until = {key_id(key): held.until.get(key_id(key), now + UNKNOWN_S) for key in held.keys}
    until[key_id(held.signing)] = max(signed, now + life_s) + MARGIN_S
    kept = tuple(key for key in held.keys if until[key_id(key)] > now)
    return SigningKeys(
        (*made.keys, *kept), {**made.until, **{key_id(key): until[key_id(key)] for key in kept}}
    )


def lasting(held: SigningKeys, until: float) -> SigningKeys:
    """The same keys, of which the first signs a token that ends then; they themselves where nothing
    is to be written down."""
    kid = key_id(held.signing)
    if kid not in held.until or held.until[kid] >= until:
        return held
    return SigningKeys(held.keys, {**held.until, kid: until})


def key_id(key: SigningKey) -> str:
    """What a key goes by in tokens."""
    return str(key.kid)


def document(keys: SigningKeys) -> dict[str, Any]:
    """The keys as JSON, private members and all."""
    return {"keys": [key.as_dict(private=True) for key in keys.keys], "until": dict(keys.until)}


def read(document: Mapping[str, Any]) -> SigningKeys:
    """The keys of such a document; whatever joserfc or Python raises where it is none."""
    first, *others = (_imported(data) for data in document["keys"])
    until = {str(kid): float(at) for kid, at in document.get("until", {}).items()}
    return SigningKeys((first, *others), until)


def _imported(data: dict[str, Any]) -> SigningKey:
    return _parsed(json.dumps(data, sort_keys=True))


# To see that numbers are an RSA key takes longer than to sign with it, and a file is read by every
# part of a process that signs or verifies.
@lru_cache(maxsize=16)
def _parsed(text: str) -> SigningKey:
    data: dict[str, Any] = json.loads(text)
    key = JWKRegistry.import_key(data)
    if not isinstance(key, RSAKey | ECKey) or not key.is_private:
        raise ValueError("not a private key that signs")
    if isinstance(key, ECKey) and key.curve_name != "P-256":
        raise ValueError("not a curve that ES256 signs with")
    key.ensure_kid()
    return key


def _generated(algorithm: Algorithm) -> SigningKey:
    if algorithm == "RS256":
        return RSAKey.generate_key(2048, auto_kid=True)
    return ECKey.generate_key("P-256", auto_kid=True)


def _published(key: SigningKey) -> dict[str, Any]:
    return key.as_dict(private=False, use="sig", alg=algorithm_of(key))
