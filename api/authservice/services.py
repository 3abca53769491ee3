"""What the views of the authorization service share, and the call that each of them gets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Request

from api.asking import Asked, B, Guard, Q, Verify
from api.authservice.login.logins import Logins
from api.memory import new_budget
from api.paging import Cursors
from api.readonly import ReadOnly
from auth.accounts.decisions import Decisions
from auth.openid.presenting import Verified
from auth.openid.provider import Provider
from auth.tokens.grants import Grants
from auth.tokens.key_file import KeyFile
from config.settings import Settings
from storage.catalog import Catalog
from storage.memory import MemoryBudget
from storage.rates import Rates
from storage.writability import WriteProbes


@dataclass(frozen=True)
class AuthServices:
    """Settings, the catalog, and the few things built from them; `clock` tells seconds."""

    settings: Settings
    catalog: Catalog
    probes: WriteProbes
    keys: KeyFile
    cursors: Cursors
    decisions: Decisions
    verify: Verify
    rates: Rates | None
    read_only: ReadOnly
    guard: Guard
    clock: Callable[[], float]
    logins: Logins
    provider: Provider
    verified: Verified
    grants: Grants
    definition: Callable[[], Mapping[str, Any]]
    """Made when it is first asked for."""
    memory: MemoryBudget = field(default_factory=new_budget)

    def base(self, _request: Request) -> str:
        """Base of absolute URLs: every address comes from the settings."""
        return self.settings.auth_url


@dataclass(frozen=True)
class Call(Asked[AuthServices, Q, B]):
    """One request to the authorization service, loaded and authorized."""

    @property
    def catalog(self) -> Catalog:
        """Where the records are."""
        return self.services.catalog
