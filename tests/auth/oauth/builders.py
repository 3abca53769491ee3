"""Builders of OAuth requests."""

from typing import Any

from auth.login.sessions import BrowserSession
from auth.oauth import authorize
from auth.oauth.clients import CLI_CLIENT, NewOAuthClient, add_client
from auth.oauth.provider import OAuthProvider
from auth.oauth.tokens import exchange_tokens
from auth.secret_values import pkce_challenge
from storage.catalog.oauth import OAuthClient

VERIFIER = "a-verifier-of-43-characters-and-more-aaaaaaaaaaa"
ADA = "ada@example.org"
CLI_URI = "http://127.0.0.1:41873/callback"


def asked(**changed: str | list[str] | None) -> dict[str, list[str]]:
    """The parameters of a request by the command-line client, some changed; None takes one away."""
    ordinary: dict[str, str | list[str] | None] = {
        "response_type": "code",
        "client_id": CLI_CLIENT,
        "redirect_uri": CLI_URI,
        "scope": "openid email groups",
        "state": "the state",
        "nonce": "the nonce",
        "code_challenge": pkce_challenge(VERIFIER),
        "code_challenge_method": "S256",
    }
    given = {name: value for name, value in {**ordinary, **changed}.items() if value is not None}
    return {name: [value] if isinstance(value, str) else value for name, value in given.items()}


def session(at_s: float, email: str = ADA) -> BrowserSession:
    """Somebody at a browser."""
    return BrowserSession("session 1", email, "local", at_s, "a form's token")


def client_of(provider: OAuthProvider, client_id: str = CLI_CLIENT) -> OAuthClient:
    with provider.catalog.read() as tx:
        found = provider.client(tx, client_id)
    assert found is not None
    return found


def added(provider: OAuthProvider, client_id: str, *uris: str, public: bool = False) -> str:
    """A client that an operator added; its secret."""
    new = NewOAuthClient(client_id, client_id.title(), uris, public)
    with provider.catalog.write() as tx:
        return add_client(tx, new, provider.now_us()) or ""


def code_for(provider: OAuthProvider, email: str = ADA, **changed: str | list[str] | None) -> str:
    """A code that a person granted just now."""
    with provider.catalog.write() as tx:
        request = authorize.read_request(tx, provider, asked(**changed))
        person = session(provider.clock(), email)
        grant_id = f"grant of {changed.get('state', '1')} {provider.now_us()} {email}"
        return authorize.issue_code(tx, provider, request, person, grant_id)


def redeem(
    provider: OAuthProvider, code: str, client_id: str = CLI_CLIENT, **changed: str | None
) -> dict[str, Any]:
    """Redeem a code as its client would."""
    ordinary: dict[str, str | None] = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": CLI_URI,
        "code_verifier": VERIFIER,
    }
    form = {name: value for name, value in {**ordinary, **changed}.items() if value is not None}
    return exchange_tokens(provider, client_of(provider, client_id), form)


def refresh(
    provider: OAuthProvider, token: str, client_id: str = CLI_CLIENT, **more: str
) -> dict[str, Any]:
    form = {"grant_type": "refresh_token", "refresh_token": token, **more}
    return exchange_tokens(provider, client_of(provider, client_id), form)
