"""ID tokens that clients bring back as a hint of whom they mean (RP-Initiated Logout 1.0)."""

from dataclasses import dataclass

from joserfc.errors import JoseError
from joserfc.jws import deserialize_compact

from auth.openid.presenting import ALGORITHMS
from auth.openid.provider import Provider
from auth.tokens.claims import read
from auth.tokens.keys import key_id
from auth.tokens.verifying import ID_TOKENS_ALONE
from storage.errors import Invalid, Unauthorized
from storage.model import one_spelling

MAX_HINT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Hint:
    """The client that an ID token was issued to, and the person it is about."""

    client: str
    email: str


def read_hint(provider: Provider, token: str) -> Hint:
    """What an ID token of this service says; it may have expired. Invalid for anything else."""
    try:
        if len(token) > MAX_HINT:
            raise Unauthorized("The token is too long")
        unverified = read(token)
        # The one key is passed, never a set: members of the header cannot choose another.
        keys = {key_id(key): key for key in provider.keys.read().keys}
        deserialize_compact(token, keys[unverified.key_id], algorithms=list(ALGORITHMS))
    except (Unauthorized, JoseError, LookupError, ValueError, TypeError, RecursionError) as error:
        raise _not_ours() from error
    claims = unverified.claims
    client, email = claims.get("aud"), claims.get("sub")
    is_own = claims.get("iss") == provider.issuer and ID_TOKENS_ALONE in claims
    if not is_own or not isinstance(client, str) or not isinstance(email, str):
        raise _not_ours()
    return Hint(client, one_spelling(email))


def _not_ours() -> Invalid:
    told = "It is not an ID token of this service, or its key is no longer known."
    return Invalid(f"id_token_hint: {told}", errors={"id_token_hint": [told]})
