"""Issue tokens signed with the service's own key, and write the administrator's token."""

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from auth.secret_files import replace_file
from auth.settings import AuthSettings
from auth.tokens.signing_keys import SigningKeys, key_algorithm, read_keys_until
from auth.tokens.verification import GROUPS_BY_CLAIM, GROUPS_BY_OPERATOR, parse_token
from storage.errors import Unauthorized


@dataclass(frozen=True)
class TokenSpec:
    """User, groups, scopes and lifetime of a token."""

    email: str
    groups: tuple[str, ...]
    lifetime_s: int
    scope: tuple[str, ...] = ()


def issue_token(
    keys: SigningKeys,
    grant: TokenSpec,
    *,
    issuer: str,
    audience: Iterable[str],
    now: float,
    token_id: str,
) -> str:
    """Sign a bearer token with the newest key; its groups count, as an operator chose them."""
    claims = {
        "iss": issuer,
        "sub": grant.email,
        "aud": list(audience),
        "email": grant.email,
        "groups": list(grant.groups),
        GROUPS_BY_CLAIM: GROUPS_BY_OPERATOR,
        "scope": " ".join(grant.scope),
        "iat": int(now),
        "exp": int(now) + grant.lifetime_s,
        "jti": token_id,
    }
    return sign_claims(keys, claims)


def sign_claims(keys: SigningKeys, claims: Mapping[str, Any], *, kind: str = "JWT") -> str:
    """Sign claims as a JWT with the newest key; `kind` is its header `typ`."""
    algorithm = key_algorithm(keys.signing_key)
    header = {"typ": kind, "alg": algorithm, "kid": keys.signing_key.kid}
    return jwt.encode(header, dict(claims), keys.signing_key, algorithms=[algorithm])


def verify_own_claims(keys: SigningKeys, text: str, *, kind: str) -> dict[str, Any]:
    """Verify a JWT of `sign_claims`; Unauthorized for another key or kind."""
    try:
        public = KeySet(list(keys.keys))
        token = jwt.decode(text, public, algorithms=list(keys.algorithms))
    except (JoseError, ValueError) as error:
        raise Unauthorized("No key of this service signed it") from error
    if token.header.get("typ") != kind:
        raise Unauthorized(f"typ: must be {kind}")
    return dict(token.claims)


ADMIN_TOKEN_FILE = "admin.token"
ADMIN_TOKEN_S = 365 * 86_400


def create_token(settings: AuthSettings, grant: TokenSpec, *, now: float, token_id: str) -> str:
    """Sign a token for this deployment."""
    return issue_token(
        read_keys_until(settings.home, now + grant.lifetime_s, settings.secret_keys),
        grant,
        issuer=settings.auth_url,
        audience=settings.audiences,
        now=now,
        token_id=token_id,
    )


def administrator_email(settings: AuthSettings) -> str:
    """Return the address of the administrator of this deployment."""
    return f"admin@{settings.deployment}"


def write_admin_token(settings: AuthSettings) -> None:
    """Write the administrator's token, with all groups, unless a current one exists."""
    path = settings.home / ADMIN_TOKEN_FILE
    if not _is_current_token(path, settings.auth_url):
        groups = tuple(dict.fromkeys(settings.admin_groups + settings.ingest_groups))
        spec = TokenSpec(administrator_email(settings), groups, ADMIN_TOKEN_S)
        token = create_token(settings, spec, now=time.time(), token_id=str(uuid.uuid4()))
        replace_file(path, token + "\n")


def _is_current_token(path: Path, issuer: str) -> bool:
    """Return whether the stored token has this issuer and `groups_by`.

    Tokens of another port, or of a release without the claim, are unusable."""
    try:
        token = parse_token(path.read_text().strip())
        return token.issuer == issuer and token.claims.get(GROUPS_BY_CLAIM) == GROUPS_BY_OPERATOR
    except (OSError, Unauthorized):
        return False
