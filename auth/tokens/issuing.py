"""Tokens that the service signs itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from auth.tokens.keys import SigningKeys, algorithm_of
from storage.errors import Unauthorized

GROUPS_BY, OPERATOR = "groups_by", "operator"
"""A claim, and what it says where the groups of a token are not those of the records."""


@dataclass(frozen=True)
class Grant:
    """Whom a token names, what it says of them, and for how long."""

    email: str
    groups: tuple[str, ...]
    lifetime_s: int
    scope: tuple[str, ...] = ()


def issue(
    keys: SigningKeys,
    grant: Grant,
    *,
    issuer: str,
    audience: Iterable[str],
    now: float,
    token_id: str,
) -> str:
    """A bearer token, signed with the newest key, whose groups count: an operator chose them."""
    claims = {
        "iss": issuer,
        "sub": grant.email,
        "aud": list(audience),
        "email": grant.email,
        "groups": list(grant.groups),
        GROUPS_BY: OPERATOR,
        "scope": " ".join(grant.scope),
        "iat": int(now),
        "exp": int(now) + grant.lifetime_s,
        "jti": token_id,
    }
    return sign(keys, claims)


def sign(keys: SigningKeys, claims: Mapping[str, Any], *, kind: str = "JWT") -> str:
    """Claims as a JWT of the newest key; `kind` says in its header what it is."""
    algorithm = algorithm_of(keys.signing)
    header = {"typ": kind, "alg": algorithm, "kid": keys.signing.kid}
    return jwt.encode(header, dict(claims), keys.signing, algorithms=[algorithm])


def verified_claims(keys: SigningKeys, text: str, *, kind: str) -> dict[str, Any]:
    """The claims of a JWT that `sign` made; Unauthorized for one of other keys or another kind."""
    try:
        public = KeySet(list(keys.keys))
        token = jwt.decode(text, public, algorithms=list(keys.algorithms))
    except (JoseError, ValueError) as error:
        raise Unauthorized("No key of this service signed it") from error
    if token.header.get("typ") != kind:
        raise Unauthorized(f"typ: must be {kind}")
    return dict(token.claims)
