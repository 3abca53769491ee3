"""Service accounts and applications, for the pages of administrators: one transaction each."""

from collections.abc import Mapping, Sequence

from auth.accounts import AuditContext
from auth.oauth import clients
from auth.oauth.clients import NewOAuthClient
from auth.service_accounts import add_account_key, parse_public_key, remove_account_keys
from auth.settings import AuthSettings
from storage.catalog import Catalog, accounts
from storage.catalog.accounts import ServiceKey
from storage.catalog.oauth import OAuthClient
from storage.model import normalize_identity


def list_service_accounts(catalog: Catalog) -> Mapping[str, Sequence[ServiceKey]]:
    """List the keys of every service account; administrators add them by hand, so there are few."""
    with catalog.read() as tx:
        keys = accounts.list_service_keys(tx)
    return {
        email: [key for key in keys if key.email == email] for email in {k.email: 0 for k in keys}
    }


def add_service_key(catalog: Catalog, email: str, text: str, by: AuditContext) -> str:
    """Register a public key (PEM or JWK) of an account; return its id. Invalid, ConflictError."""
    key = parse_public_key(text)
    with catalog.write() as tx:
        add_account_key(tx, email, key, by=by)
    return key.kid


def remove_service_key(catalog: Catalog, email: str, kid: str, by: AuditContext) -> bool:
    """Remove a key; return whether the account has others. NotFoundError if it has no such key."""
    with catalog.write() as tx:
        remove_account_keys(tx, email, kid, by=by)
        return bool(accounts.list_service_keys(tx, normalize_identity(email)))


def list_applications(catalog: Catalog, settings: AuthSettings) -> list[OAuthClient]:
    """List all applications, built-in ones first."""
    with catalog.read() as tx:
        return clients.list_clients(tx, clients.built_in_clients(settings))


def add_application(
    catalog: Catalog, settings: AuthSettings, new: NewOAuthClient, by: AuditContext, now: float
) -> str | None:
    """Add an application; return its secret, or None if it is public. Invalid, ConflictError."""
    with catalog.write() as tx:
        return clients.add_client(tx, new, int(now * 1e6), taken=settings.audiences, by=by)


def remove_application(catalog: Catalog, client_id: str, by: AuditContext, now: float) -> None:
    """Remove an application and end all its tokens; NotFoundError if none was added."""
    with catalog.write() as tx:
        clients.remove_client(tx, client_id, int(now * 1e6), by)
