"""Application of the authorization service: operations, OpenAPI definition and CORS.

CORS allows any origin for discovery and keys, origins of public clients' redirect URIs for the
endpoints of browser applications, which use no cookies, and none for pages (RFC 9700, 2.6).
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from flask import Flask, Request, request

from api.authz import accounts, policies, service
from api.authz.context import AuthRequestContext, AuthServices
from api.authz.login import operations
from api.authz.oauth import authorize, device, endpoints
from api.authz.oauth.endpoints import CONFIGURATION_PATH, KEYS_PATH
from api.authz.pages import build_login_services, register_pages, render_message
from api.authz.service import register_front_page
from api.http.auth import PolicyContextBuilder, RequestContext, VerifyToken
from api.http.dispatch import make_view, register_operations
from api.http.examples import Examples
from api.http.limits import ReadOnlyMode
from api.http.metrics import RequestMetrics
from api.http.openapi import ApiInfo, build_definition
from api.http.operation import operations_of
from api.http.paging import Cursors
from api.http.probes import register_probes
from api.http.responses import register_conventions
from auth.account_operations import describe_requirement, require_account_operation
from auth.authorization import list_open_operations
from auth.decisions import LocalDecisionPoint
from auth.oauth import clients
from auth.oauth.clients import is_registered_origin
from auth.oauth.provider import OAuthProvider
from auth.oauth.tokens import build_own_verifier
from auth.tokens.signing_keys import SigningKeyFile, seal_key_file
from auth.tokens.verification import GrantChecker
from config import Settings
from storage.catalog import Catalog
from storage.connect import make_write_probes
from storage.encryption import derive_keys
from storage.metrics import find_shared_folder
from storage.model import Principal
from storage.rate_limits import RateLimiter
from storage.tracing import Tracer

OPERATION_PREFIX = "auth_"
"""Begins the names of operations in metrics and traces."""
PUBLIC_PATHS = frozenset({CONFIGURATION_PATH, "/.well-known/oauth-authorization-server", KEYS_PATH})
CLIENT_PATHS = frozenset({"/oauth/token", "/oauth/revoke", "/oauth/userinfo"})
PAGE_PATHS = ("/oauth/authorize", "/oauth/consent", "/login", "/logout", "/device")


def cors_origins_by_path(
    provider: OAuthProvider, allowed: Collection[str]
) -> Callable[[str], Collection[str]]:
    """Return a lookup of CORS origins by path; `allowed` is configured."""

    def origins_of(path: str) -> Collection[str]:
        if path in PUBLIC_PATHS:
            return allowed if request.headers.get("Origin") in allowed else ("*",)
        if path.startswith(PAGE_PATHS):
            return ()
        if path in CLIENT_PATHS and _is_client_origin(provider, request.headers.get("Origin", "")):
            return (*allowed, request.headers["Origin"])
        return allowed

    return origins_of


def _is_client_origin(provider: OAuthProvider, origin: str) -> bool:
    """Return whether a public client has a redirect URI of this origin."""
    if not origin:
        return False
    with provider.catalog.read() as tx:
        candidates = clients.list_clients(tx, provider.own_clients)
    return any(
        is_registered_origin(origin, client.redirect_uris) for client in candidates if client.public
    )


DESCRIPTION = """\
Manages the users of the data store with their groups, roles and policies, logs them in, and signs
the bearer tokens that the store accepts.

Errors are `application/problem+json` (RFC 9457); those of the OAuth endpoints follow RFC 6749.
Lists come in pages: while more follow, the status is 206 and a `Link` header
with `rel="next"` holds the URL of the next page. Every answer has an `X-Request-Id`."""

TAGS = {
    "service": "What this service is, and whether it works.",
    "openid": "Logging in, and tokens for applications.",
    "users": "Users, by e-mail address.",
    "groups": "Groups of users.",
    "roles": "Policies with a name, for users and groups.",
    "policies": "What a user may do, and why.",
    "audit": "Who changed what.",
}

_ID_SCHEMA = {"type": "string", "pattern": "^[0-9a-zA-Z.@_$,=-]{1,128}$"}

_EXAMPLE_URL = "https://auth.example"
_EXAMPLE_TIME = "2026-01-31T235959.000000Z"
_EXAMPLE_UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

EXAMPLES = Examples(
    members={
        "access_token": "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.c2lnbmF0dXJl",
        "alg": "RS256",
        "arn": f"arn:store:local:*:collections/{_EXAMPLE_UUID}",
        "at": _EXAMPLE_TIME,
        "authorization_endpoint": f"{_EXAMPLE_URL}/oauth/authorize",
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": False,
        "code": "not_found",
        "created": _EXAMPLE_TIME,
        "detail": "The user grace@example.org does not exist.",
        "device_authorization_endpoint": f"{_EXAMPLE_URL}/oauth/device_authorization",
        "device_code": "GmRhmhcxhwAzkoEqiMEg_DnyEysNkuNhszIySk9eS",
        "end_session_endpoint": f"{_EXAMPLE_URL}/logout",
        "error": "invalid_grant",
        "error_description": "The code is not valid any more.",
        "expires_in": 3600,
        "group_id": "curators",
        "headers": {"Host": "auth.example", "Authorization": "***"},
        "interval": 5,
        "issuer": _EXAMPLE_URL,
        "jwks_uri": f"{_EXAMPLE_URL}/.well-known/jwks.json",
        "kid": "1",
        "kty": "RSA",
        "method": "GET",
        "parts": {"keys": {"status": "ok", "reason": "1 can verify, the newest signs"}},
        "path": "/echo",
        "query": {"colour": ["green"]},
        "reason": "works",
        "refresh_token": "tGzv3JOkF0XG5Qx2TlKWIA",
        "request_id": "3f0d2c1b9a8e4f57b6c5d4e3f2a1b0c9",
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
        "revocation_endpoint": f"{_EXAMPLE_URL}/oauth/revoke",
        "role_id": "reviewer",
        "scope": "openid email",
        "status": "ok",
        "sub": "ada@example.org",
        "token_endpoint": f"{_EXAMPLE_URL}/oauth/token",
        "token_type": "Bearer",
        "updated": _EXAMPLE_TIME,
        "use": "sig",
        "user_code": "BCDF-GHJK",
        "user_id": "ada@example.org",
        "userinfo_endpoint": f"{_EXAMPLE_URL}/oauth/userinfo",
        "uuid": _EXAMPLE_UUID,
        "verification_uri": f"{_EXAMPLE_URL}/device",
        "verification_uri_complete": f"{_EXAMPLE_URL}/device?user_code=BCDF-GHJK",
    },
    schemas={},
)

API_INFO = ApiInfo(
    title="Authorization service of the data store",
    description=DESCRIPTION,
    tags=TAGS,
    wants=describe_requirement,
    examples=EXAMPLES,
    ids={
        "user_id": {**_ID_SCHEMA, "example": "ada@example.org"},
        "group_id": {**_ID_SCHEMA, "example": "curators"},
        "role_id": {**_ID_SCHEMA, "example": "reviewer"},
    },
)

# Reject duplicate members of policies: parsers differ in which of two conditions they keep.
OPERATIONS = tuple(
    replace(one, once=True)
    for one in operations_of(endpoints, authorize, operations, accounts, policies, service)
)


def create_auth_app(
    settings: Settings,
    catalog: Catalog,
    *,
    verify: VerifyToken,
    rates: RateLimiter | None = None,
    clock: Callable[[], float] = time.time,
    tracer: Tracer | None = None,
) -> Flask:
    """Create the application, and signing keys if this home has none."""
    services = build_auth_services(settings, catalog, verify, rates, clock)
    app = Flask(__name__, static_folder=None)
    app.url_map.strict_slashes = False
    register_conventions(
        app,
        find_origins=cors_origins_by_path(services.provider, settings.cors_origins),
        counter=RequestMetrics(find_shared_folder()),
        prefix=OPERATION_PREFIX,
        page=lambda status, text: render_message(text, status=status),
        tracer=tracer,
    )
    register_operations(
        app, OPERATIONS, partial(make_view, services=services, context_type=AuthRequestContext)
    )
    register_front_page(app, services)
    register_probes(app, catalog)
    register_pages(app, services.logins, operations.PAGES, services.logins)
    register_pages(app, services.logins, (*authorize.PAGES, *device.PAGES), services)
    return app


@dataclass(frozen=True)
class AuthGuard:
    """Checks the policies of an operation before its view; see `api.http.auth.Guard`."""

    decisions: LocalDecisionPoint
    deployment: str
    circumstances: PolicyContextBuilder

    def wants(self, operation: str) -> str | None:
        """Describe the requirement."""
        return describe_requirement(operation)

    def may(self, _principal: Principal | None, _operation: str) -> bool:
        """Allow any body size."""
        return True

    def refuse(self, _principal: Principal | None, _operation: str, _request: Request) -> None:
        """Never refuse before the body is read: it may name the resources."""

    def require(
        self, operation: str, context: RequestContext[Any, Any, Any]
    ) -> RequestContext[Any, Any, Any]:
        """Return the context if policies allow the caller all named resources."""
        # The path comes last, so that a body cannot override its parameters.
        named = {**_loaded_fields(context.query), **_loaded_fields(context.body), **context.path}
        values = self.circumstances.build(context.request, context.principal)
        require_account_operation(
            self.decisions, self.deployment, context.principal, operation, named, values
        )
        return context


def _loaded_fields(loaded: object) -> dict[str, object]:
    return {} if loaded is None else dict(vars(loaded))


def build_auth_services(
    settings: Settings,
    catalog: Catalog,
    verify: VerifyToken,
    rates: RateLimiter | None,
    clock: Callable[[], float],
) -> AuthServices:
    """Build what the views need; encrypts the file of signing keys and creates missing ones."""
    # Encrypt the file of keys if there is a secret; create missing keys, and check them.
    seal_key_file(settings.home, settings.secret_keys)
    keys = SigningKeyFile(settings.home, settings.secret_keys)
    cursor_key, *former_keys = derive_keys(settings.secret_keys, b"page pointers")
    keys.read()
    decisions = LocalDecisionPoint(catalog, settings)
    provider = OAuthProvider(settings, catalog, keys, settings.secret_keys, clock)
    return AuthServices(
        settings=settings,
        catalog=catalog,
        probes=make_write_probes(settings, catalog),
        keys=keys,
        cursors=Cursors(cursor_key, tuple(former_keys)),
        decisions=decisions,
        open_operations=list_open_operations(settings.closed_operations),
        verify=verify,
        rates=rates,
        read_only=ReadOnlyMode(catalog, always=settings.read_only),
        guard=AuthGuard(
            decisions, settings.deployment, PolicyContextBuilder(settings.proxies, clock)
        ),
        clock=clock,
        logins=build_login_services(settings, catalog, clock),
        provider=provider,
        own_tokens=build_own_verifier(provider),
        grants=GrantChecker(catalog, clock),
        definition=cache(
            partial(
                build_definition,
                OPERATIONS,
                server=settings.auth_url,
                openid_url=settings.auth_url + CONFIGURATION_PATH,
                info=API_INFO,
            )
        ),
    )
