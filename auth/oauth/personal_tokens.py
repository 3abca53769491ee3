"""Personal tokens: bearer tokens that a user creates for scripts.

Each is an access token of one grant with a name. So it ends as all grants do: when it is revoked or
expires, and when its user is disabled, changes the password or logs out everywhere.
"""

import uuid
from dataclasses import dataclass

from auth.accounts import AuditContext, admit_at_login, begin_change, record_audit
from auth.oauth.clients import PERSONAL_TOKENS_CLIENT
from auth.oauth.provider import DEFAULT_SCOPES
from auth.oauth.tokens import ACCESS_TOKEN_TYPE
from auth.settings import AuthSettings
from auth.tokens.issuance import sign_claims
from auth.tokens.signing_keys import SigningKeys, read_keys_until
from storage.catalog import Catalog, oauth
from storage.catalog.oauth import ActiveGrantRow, GrantRow
from storage.errors import ConflictError, Invalid

MAX_PERSONAL_TOKENS = 50
"""Per user."""
MAX_TOKEN_NAME = 100
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class NewPersonalToken:
    """A new token; `text` is shown once."""

    id: str
    text: str
    ends_us: int


def create_personal_token(
    catalog: Catalog,
    settings: AuthSettings,
    name: str,
    lifetime_s: int,
    by: AuditContext,
    now: float,
) -> NewPersonalToken:
    """Create a token of the user `by.who`; Invalid for a bad name or lifetime.

    ConflictError if the user has a token of that name or too many; Forbidden if disabled.
    """
    _check_token(name, lifetime_s, settings.personal_token_s)
    now_us = int(now * 1e6)
    grant = GrantRow(
        id=str(uuid.uuid4()),
        client=PERSONAL_TOKENS_CLIENT,
        email=by.who,
        scope=" ".join(DEFAULT_SCOPES),
        auth_us=now_us,
        created_us=now_us,
        redeemed_us=now_us,
        ends_us=now_us + lifetime_s * 1_000_000,
        name=name,
    )
    keys = read_keys_until(settings.home, now + lifetime_s, settings.secret_keys)
    # Of two at once, the second sees the first.
    with begin_change(catalog) as tx:
        admit_at_login(tx, by.who, by.request_id)
        held = [row.name for row in oauth.list_personal_tokens(tx, by.who, now_us)]
        if name in held:
            raise _name_error(ConflictError, "is taken by another of your tokens")
        if len(held) >= MAX_PERSONAL_TOKENS:
            raise ConflictError(f"You have {len(held)} tokens, the most possible: revoke some.")
        oauth.insert_grant(tx, grant)
        record_audit(tx, by, f"token/{grant.id}", before=None, after=_audit_state(grant))
    return NewPersonalToken(grant.id, _sign_token(settings, keys, grant), grant.ends_us)


def _sign_token(settings: AuthSettings, keys: SigningKeys, grant: GrantRow) -> str:
    claims = {
        "iss": settings.auth_url,
        "iat": grant.created_us // 1_000_000,
        "exp": grant.ends_us // 1_000_000,
        "sub": grant.email,
        "aud": list(settings.audiences),
        "client_id": grant.client,
        "email": grant.email,
        "scope": grant.scope,
        "grant": grant.id,
        "jti": grant.id,
    }
    return sign_claims(keys, claims, kind=ACCESS_TOKEN_TYPE)


def _check_token(name: str, lifetime_s: int, most_s: int) -> None:
    if not 0 < len(name) <= MAX_TOKEN_NAME or not name.isprintable() or name != name.strip():
        raise _name_error(Invalid, f"must be 1 to {MAX_TOKEN_NAME} printable characters")
    if most_s <= 0:
        raise Invalid("Personal tokens are disabled (STORE_PERSONAL_TOKEN_S is 0).")
    if not 0 < lifetime_s <= most_s:
        reason = f"must be 1 to {most_s // DAY_S} days"
        raise Invalid(f"lifetime: {reason}", errors={"lifetime": [reason]})


def _name_error(kind: type[Invalid] | type[ConflictError], reason: str) -> Exception:
    return kind(f"name: {reason}", errors={"name": [reason]})


def list_personal_tokens(catalog: Catalog, email: str, now: float) -> list[ActiveGrantRow]:
    """List a user's valid tokens, the newest first."""
    with catalog.read() as tx:
        return oauth.list_personal_tokens(tx, email, int(now * 1e6))


def _audit_state(grant: GrantRow) -> dict[str, object]:
    return {"name": grant.name, "ends_us": grant.ends_us}
