"""State shared by the OAuth provider's modules, its errors, and client authentication."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote_plus

from auth.decisions import load_permissions
from auth.oauth.clients import built_in_clients, find_client
from auth.secret_values import is_matching_secret
from auth.settings import AuthSettings
from auth.tokens.signing_keys import SigningKeyFile
from storage.catalog import Catalog, Tx
from storage.catalog.oauth import OAuthClient
from storage.encryption import derive_keys

SCOPES = ("openid", "email", "profile", "groups", "offline_access")
"""Supported scopes; others are not granted."""
DEFAULT_SCOPES = ("openid", "email", "groups")
"""Used if a request has none."""


@dataclass(frozen=True)
class OAuthProvider:
    """Issuer, keys, clients and clock."""

    settings: AuthSettings
    catalog: Catalog
    keys: SigningKeyFile
    secrets: Sequence[str] = field(repr=False)
    """The store's secret, and others that are accepted."""
    clock: Callable[[], float]

    @property
    def issuer(self) -> str:
        """The issuer in tokens."""
        return self.settings.auth_url

    @cached_property
    def own_clients(self) -> Mapping[str, OAuthClient]:
        """The store's own clients."""
        return built_in_clients(self.settings)

    @cached_property
    def refresh_keys(self) -> tuple[bytes, ...]:
        """The key that derives successors of refresh tokens, and others that did."""
        return derive_keys(self.secrets, b"openid refresh tokens")

    def client(self, tx: Tx, client_id: str) -> OAuthClient | None:
        """Find a client by id."""
        return find_client(tx, self.own_clients, client_id)

    def groups(self, tx: Tx, email: str) -> tuple[str, ...]:
        """Return a user's groups for a token, informational: the catalog decides."""
        return load_permissions(tx, email, (), self.settings).groups

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return int(self.clock() * 1e6)


class OAuthError(Exception):
    """An error response to the client."""

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status


class UserFacingError(OAuthError):
    """An error for the user only, because the client or its redirect URI is not valid.

    Redirecting to an unregistered URI would make this service an open redirector.
    """


class RedirectedError(OAuthError):
    """An error that the browser is redirected to the client with."""

    def __init__(self, error: OAuthError, redirect_uri: str, state: str | None) -> None:
        super().__init__(error.error, error.description)
        self.redirect_uri = redirect_uri
        self.state = state


def invalid_request(description: str) -> OAuthError:
    """Return the error for a malformed request."""
    return OAuthError("invalid_request", description)


def invalid_grant(description: str) -> OAuthError:
    """Return the error for a code or refresh token that is not valid."""
    return OAuthError("invalid_grant", description)


FormFields = Mapping[str, str]
"""Unique fields of a form."""

MAX_BASIC_HEADER = 4_096


def authenticate_client(
    provider: OAuthProvider, authorization: str | None, form: FormFields
) -> OAuthClient:
    """Authenticate the client (RFC 6749, 2.3); OAuthError `invalid_client` if it fails."""
    client_id, secret = _read_credentials(authorization, form)
    with provider.catalog.read() as tx:
        client = provider.client(tx, client_id)
    if client is None or not _is_authentic(client, secret):
        raise _client_error("The client is not known, or not proven.")
    return client


def _read_credentials(authorization: str | None, form: FormFields) -> tuple[str, str | None]:
    client_id, secret = form.get("client_id"), form.get("client_secret")
    if authorization is not None:
        if secret is not None:
            raise invalid_request("The client's secret is given in two places.")
        basic_id, secret = _parse_basic(authorization)
        if client_id not in (None, basic_id):
            raise invalid_request("Two clients are named.")
        client_id = basic_id
    if not client_id:
        raise _client_error("The client is not named.")
    return client_id, secret


def _parse_basic(authorization: str) -> tuple[str, str]:
    """Parse Basic credentials, form-encoded parts (RFC 6749, 2.3.1)."""
    scheme, _, raw = authorization.strip().partition(" ")
    try:
        if scheme.lower() != "basic" or len(raw) > MAX_BASIC_HEADER:
            raise ValueError("not what is read here")
        name, colon, secret = base64.b64decode(raw.strip(), validate=True).decode().partition(":")
        if not colon:
            raise ValueError("not two parts")
    except (binascii.Error, ValueError) as error:
        raise _client_error("The Authorization header names no client.") from error
    return unquote_plus(name), unquote_plus(secret)


def _is_authentic(client: OAuthClient, secret: str | None) -> bool:
    if client.secret is None:
        # Some libraries send an empty secret.
        return not secret
    return secret is not None and is_matching_secret(secret, client.secret)


def _client_error(description: str) -> OAuthError:
    return OAuthError("invalid_client", description, status=401)
