"""A person grants something: the code that a client redeems for tokens, once."""

from dataclasses import dataclass

from auth.accounts.changing import By, record_audit
from auth.digests import digest, new_secret
from auth.login.sessions import Session
from auth.openid.authorizing import Request
from auth.openid.provider import Provider
from storage.catalog import grants, logins
from storage.catalog.engine import Tx


@dataclass(frozen=True, slots=True)
class Person:
    """Who grants, and since when that person is logged in."""

    email: str
    auth_us: int


def person_of(session: Session) -> Person:
    """The person at the browser."""
    return Person(session.email, int(session.at_s * 1e6))


def grant_code(tx: Tx, provider: Provider, request: Request, person: Person, grant_id: str) -> str:
    """A code for what was asked; Forbidden when the person is disabled."""
    provider.people.admit(tx, person.email)
    code, now = new_secret(), provider.now_us()
    ends = now + provider.settings.code_s * 1_000_000
    row = grants.GrantRow(
        id=grant_id,
        client=request.client.id,
        email=person.email,
        scope=" ".join(request.scopes),
        auth_us=person.auth_us,
        code=digest(code),
        code_ends_us=ends,
        redirect_uri=request.redirect_uri if request.redirect_named else None,
        challenge=request.challenge,
        nonce=request.nonce,
        created_us=now,
        redeemed_us=None,
        revoked_us=None,
        ends_us=ends,
    )
    grants.add(tx, row)
    return code


def agree(tx: Tx, provider: Provider, request: Request, session: Session, request_id: str) -> None:
    """Remember what the person let this client have, in this browser session and for good."""
    scopes, client_id, email = frozenset(request.scopes), request.client.id, session.email
    logins.add_session_consent(tx, session.id, client_id, scopes)
    before = sorted(grants.agreed(tx, email, client_id))
    grants.agree(tx, email, client_id, scopes, provider.now_us())
    record_audit(
        tx,
        By(email, "consent", request_id),
        f"client/{client_id}",
        before={"scope": before} if before else None,
        after={"scope": sorted(scopes.union(before))},
    )
