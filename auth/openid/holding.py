"""What applications have of a person, for that person to see and to end."""

from collections.abc import Mapping
from dataclasses import dataclass

from auth.accounts.changing import By, record_audit
from auth.openid import clients
from auth.openid.clients import Client
from storage.catalog import grants, logins
from storage.catalog.engine import Tx

MOST = 100
"""The newest of them are shown; all of them can be ended at once."""


@dataclass(frozen=True, slots=True)
class Held:
    """A grant: whose it is, since when, when tokens of it were last had, and for what."""

    id: str
    client: str
    since_us: int
    used_us: int
    scopes: tuple[str, ...]


def of(tx: Tx, own: Mapping[str, Client], email: str, now_us: int) -> list[Held]:
    """What applications have of this person, the newest first."""
    rows = grants.standing(tx, email, now_us, limit=MOST)
    names = {one: _name(tx, own, one) for one in {row.client for row in rows}}
    return [
        Held(row.id, names[row.client], row.since_us, row.used_us, tuple(row.scope.split()))
        for row in rows
    ]


def _name(tx: Tx, own: Mapping[str, Client], client_id: str) -> str:
    found = clients.find(tx, own, client_id)
    return found.name if found else client_id


def end(tx: Tx, email: str, grant_id: str, now_us: int, request_id: str) -> bool:
    """End one that is this person's, and have them be asked before there is another; False for any
    other."""
    grant = grants.find(tx, grant_id)
    if grant is None or grant.email != email or not grants.revoke(tx, grant_id, now_us):
        return False
    before = {"scope": sorted(grants.agreed(tx, email, grant.client))}
    grants.disagree(tx, email, grant.client)
    logins.forget_session_consents(tx, grant.client, email=email)
    by = By(email, "end_grant", request_id)
    record_audit(tx, by, f"client/{grant.client}", before=before, after=None)
    return True
