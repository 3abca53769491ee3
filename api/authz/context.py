"""Services shared by all views, and the request context that each view gets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Request

from api.authz.pages import LoginServices
from api.http.auth import B, Guard, Q, RequestContext, VerifyToken
from api.http.limits import ReadOnlyMode, new_memory_budget
from api.http.paging import Cursors
from auth.decisions import LocalDecisionPoint
from auth.oauth.provider import OAuthProvider
from auth.tokens.signing_keys import SigningKeyFile
from auth.tokens.verification import GrantChecker, TokenVerifier
from config import Settings
from storage.catalog import Catalog
from storage.json_codec import MemoryBudget
from storage.rate_limits import RateLimiter
from storage.writability import WriteProbes


@dataclass(frozen=True)
class AuthServices:
    """Settings, catalog, and services built from them; `clock` returns seconds."""

    settings: Settings
    catalog: Catalog
    probes: WriteProbes
    keys: SigningKeyFile
    cursors: Cursors
    decisions: LocalDecisionPoint
    open_operations: frozenset[str]
    """Operations of the store without a token."""
    verify: VerifyToken
    rates: RateLimiter | None
    read_only: ReadOnlyMode
    guard: Guard
    clock: Callable[[], float]
    logins: LoginServices
    provider: OAuthProvider
    own_tokens: TokenVerifier
    grants: GrantChecker
    definition: Callable[[], Mapping[str, Any]]
    """Built at the first call."""
    memory: MemoryBudget = field(default_factory=new_memory_budget)

    def base(self, _request: Request) -> str:
        """Return the base of absolute URLs, from the settings."""
        return self.settings.auth_url


@dataclass(frozen=True)
class AuthRequestContext(RequestContext[AuthServices, Q, B]):
    """One request to the authorization service, loaded and authorized."""

    @property
    def catalog(self) -> Catalog:
        """The catalog."""
        return self.services.catalog
