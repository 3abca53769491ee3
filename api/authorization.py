"""Token verifier and decision point that the settings select."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from auth.decisions import DecisionPoint, LocalDecisionPoint
from auth.http_client import HttpClient
from auth.remote import DecisionCache, PolicyServiceClient, RemoteDecisionPoint, StoreTokenSigner
from auth.service_accounts import ServiceAccounts, own_address_check
from auth.tokens.signing_keys import SigningKeyFile
from auth.tokens.verification import (
    GrantChecker,
    KeyAges,
    KeyRing,
    TokenVerifier,
    build_own_ring,
    fetch_json,
)
from config import Settings
from storage.catalog import Catalog
from storage.errors import Invalid
from storage.tracing import Tracer


def build_verifier(
    settings: Settings,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]] = fetch_json,
    *,
    accounts: ServiceAccounts | None = None,
    grants: GrantChecker | None = None,
) -> TokenVerifier:
    """Build a verifier from settings; own keys are read from their file."""
    accepted = settings.issuers or {settings.auth_url: ""}
    return TokenVerifier(
        {issuer: _build_key_ring(settings, issuer, clock, fetch) for issuer in accepted},
        audiences=settings.audiences,
        algorithms=settings.token_algorithms,
        clock=clock,
        accounts=accounts,
        grants=grants,
        own=settings.auth_url,
        is_own_address=own_address_check(settings.external_url, settings.allowed_hosts),
    )


def _build_key_ring(
    settings: Settings,
    issuer: str,
    clock: Callable[[], float],
    fetch: Callable[[str], Mapping[str, Any]],
) -> KeyRing:
    # With a remote authorization service, this home has no signing keys.
    if issuer == settings.auth_url and not settings.policies_url:
        return build_own_ring(SigningKeyFile(settings.home, settings.secret_keys), clock)
    address = settings.issuers[issuer]
    if not address.startswith(("https://", "http://")):
        raise Invalid(f"STORE_ISSUERS gives {issuer} no http(s) address of its keys")
    ages = KeyAges(settings.keys_refresh_s, settings.keys_cooldown_s)
    return KeyRing(partial(fetch, address), clock, ages)


def open_decision_point(
    settings: Settings, catalog: Catalog, tracer: Tracer | None = None
) -> DecisionPoint:
    """Open the decision point that the settings select: the catalog or a remote service."""
    if not settings.policies_url:
        return LocalDecisionPoint(catalog, settings)
    url = settings.policies_url.rstrip("/")
    if not _is_base_url(url):
        raise Invalid("STORE_POLICIES_URL: must be an http or https base URL")
    if settings.auth_url not in settings.issuers:
        # Otherwise groups in its tokens would count like those of a foreign issuer.
        raise Invalid(
            "With STORE_POLICIES_URL, STORE_AUTH_EXTERNAL_URL is the issuer of that service, and"
            " STORE_ISSUERS names it with the address of its keys"
        )
    tokens = StoreTokenSigner(Path(settings.policies_credentials))
    # Half of the threads stay free for requests that need no decision of the service.
    http = HttpClient(settings.policies_timeout_s, connections=max(1, settings.api_threads // 2))
    return RemoteDecisionPoint(
        PolicyServiceClient(url, tokens, http, tracer or Tracer()),
        DecisionCache(settings.policies_kept),
        settings.policies_check_ms / 1000,
    )


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = parts.username is None and not parts.query and not parts.fragment
    return named and plain and parts.scheme in ("https", "http") and url.isprintable()
