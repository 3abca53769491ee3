"""Authorization codes, consents, and the active grants of a person."""

from collections.abc import Mapping
from dataclasses import dataclass

from auth.accounts import AuditContext, record_audit
from auth.login.sessions import BrowserSession
from auth.oauth import clients
from auth.oauth.authorize import AuthorizationRequest
from auth.oauth.clients import OAuthClient
from auth.oauth.provider import OAuthProvider
from auth.secret_values import create_secret, hash_secret
from storage.catalog import Tx, login, oauth


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    """The user who grants access, and when they logged in."""

    email: str
    auth_us: int


def resource_owner(session: BrowserSession) -> ResourceOwner:
    """Return the user of a browser session."""
    return ResourceOwner(session.email, int(session.at_s * 1e6))


def issue_code(
    tx: Tx,
    provider: OAuthProvider,
    request: AuthorizationRequest,
    person: ResourceOwner,
    grant_id: str,
) -> str:
    """Create a grant with an authorization code; Forbidden if the user is disabled."""
    provider.people.admit(tx, person.email)
    code, now = create_secret(), provider.now_us()
    ends = now + provider.settings.code_s * 1_000_000
    row = oauth.GrantRow(
        id=grant_id,
        client=request.client.id,
        email=person.email,
        scope=" ".join(request.scopes),
        auth_us=person.auth_us,
        code=hash_secret(code),
        code_ends_us=ends,
        redirect_uri=request.redirect_uri if request.redirect_named else None,
        challenge=request.challenge,
        nonce=request.nonce,
        created_us=now,
        redeemed_us=None,
        revoked_us=None,
        ends_us=ends,
    )
    oauth.insert_grant(tx, row)
    return code


def record_consent(
    tx: Tx,
    provider: OAuthProvider,
    request: AuthorizationRequest,
    session: BrowserSession,
    request_id: str,
) -> None:
    """Record consent to these scopes, for this session and permanently, with an audit entry."""
    scopes, client_id, email = frozenset(request.scopes), request.client.id, session.email
    login.insert_session_consent(tx, session.id, client_id, scopes)
    before = sorted(oauth.find_consent(tx, email, client_id))
    oauth.record_consent(tx, email, client_id, scopes, provider.now_us())
    record_audit(
        tx,
        AuditContext(email, "consent", request_id),
        f"client/{client_id}",
        before={"scope": before} if before else None,
        after={"scope": sorted(scopes.union(before))},
    )


MAX_GRANTS_SHOWN = 100
"""The page shows the newest grants only."""


@dataclass(frozen=True, slots=True)
class ApplicationGrant:
    """An active grant, as the account page shows it; `used_us` is the last token refresh."""

    id: str
    client: str
    since_us: int
    used_us: int
    scopes: tuple[str, ...]


def list_application_grants(
    tx: Tx, own: Mapping[str, OAuthClient], email: str, now_us: int
) -> list[ApplicationGrant]:
    """List the active grants of a user, newest first."""
    rows = oauth.list_active_grants(tx, email, now_us, limit=MAX_GRANTS_SHOWN)
    names = {id_: _client_name(tx, own, id_) for id_ in {row.client for row in rows}}
    return [
        ApplicationGrant(
            row.id, names[row.client], row.since_us, row.used_us, tuple(row.scope.split())
        )
        for row in rows
    ]


def _client_name(tx: Tx, own: Mapping[str, OAuthClient], client_id: str) -> str:
    found = clients.find_client(tx, own, client_id)
    return found.name if found else client_id


def revoke_grant(tx: Tx, email: str, grant_id: str, now_us: int, request_id: str) -> bool:
    """Revoke a user's grant and the consents to its client; False if it is not theirs."""
    grant = oauth.find_grant(tx, grant_id)
    if grant is None or grant.email != email or not oauth.revoke_grant(tx, grant_id, now_us):
        return False
    before = {"scope": sorted(oauth.find_consent(tx, email, grant.client))}
    oauth.delete_consent(tx, email, grant.client)
    login.delete_session_consents(tx, grant.client, email=email)
    by = AuditContext(email, "end_grant", request_id)
    record_audit(tx, by, f"client/{grant.client}", before=before, after=None)
    return True
