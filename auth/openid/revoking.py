"""Giving tokens back (RFC 7009): with any of its tokens a whole grant ends."""

from collections.abc import Mapping
from typing import Any

from auth.digests import digest
from auth.openid.clients import Client
from auth.openid.errors import OAuthError, invalid_request
from auth.openid.presenting import Verified
from auth.openid.provider import Provider
from auth.openid.proving import Form
from storage.catalog import grants
from storage.errors import Unauthorized


def revoke(provider: Provider, verified: Verified, client: Client, form: Form) -> None:
    """End the grant of a token. One that gives nothing, or nothing any more, is no error; one that
    is another client's is."""
    token = form.get("token")
    if not token:
        raise invalid_request("token is missing.")
    by_access = _grant_of(verified, token)
    with provider.catalog.write() as tx:
        grant = grants.hold_by_token(tx, digest(token)) or (
            grants.find(tx, by_access) if by_access else None
        )
        if grant is None:
            return
        if grant.client != client.id:
            raise OAuthError("unauthorized_client", "The token is another client's.")
        grants.revoke(tx, grant.id, provider.now_us())


def _grant_of(verified: Verified, token: str) -> str | None:
    try:
        claims: Mapping[str, Any] = verified(token)
    except Unauthorized:
        return None
    grant_id = claims.get("grant")
    return grant_id if isinstance(grant_id, str) else None
