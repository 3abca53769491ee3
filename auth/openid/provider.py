"""What the parts of the OpenID provider share: made once for an application, nothing changes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from auth.openid.clients import Client, built_in, find
from auth.tokens.key_file import KeyFile
from storage.catalog import Catalog
from storage.catalog.engine import Tx
from storage.sealing import derive

SCOPES = ("openid", "email", "profile", "groups", "offline_access")
"""Those that mean something here; others are left out of what is granted."""
DEFAULT_SCOPES = ("openid", "email", "groups")
"""Of a request that names none."""


class ProviderSettings(Protocol):
    """The part of Settings that says what is granted, and for how long."""

    @property
    def auth_url(self) -> str: ...
    @property
    def audiences(self) -> tuple[str, ...]: ...
    @property
    def default_client(self) -> str: ...
    @property
    def web_redirect_uris(self) -> tuple[str, ...]: ...
    @property
    def code_s(self) -> int: ...
    @property
    def access_token_s(self) -> int: ...
    @property
    def refresh_idle_s(self) -> int: ...
    @property
    def grant_s(self) -> int: ...
    @property
    def refresh_grace_s(self) -> int: ...
    @property
    def device_code_s(self) -> int: ...
    @property
    def device_poll_s(self) -> int: ...


class People(Protocol):
    """What is asked about the person who grants something."""

    def admit(self, tx: Tx, email: str) -> None:
        """Make a record at the first login; Forbidden when the person is disabled."""

    def is_enabled(self, tx: Tx, email: str) -> bool:
        """Whether the person may have anything at all."""

    def groups(self, tx: Tx, email: str) -> tuple[str, ...]:
        """The groups that a token tells of."""


@dataclass(frozen=True)
class Provider:
    """The issuer, its keys, its clients, its people, its clock."""

    settings: ProviderSettings
    catalog: Catalog
    keys: KeyFile
    people: People
    secret: bytes = field(repr=False)
    clock: Callable[[], float]

    @property
    def issuer(self) -> str:
        """Who we are in tokens and answers."""
        return self.settings.auth_url

    @cached_property
    def own_clients(self) -> Mapping[str, Client]:
        """The store's own clients."""
        return built_in(self.settings.web_redirect_uris)

    @cached_property
    def refresh_key(self) -> bytes:
        """What the successor of a refresh token is made with."""
        return derive(self.secret, b"openid refresh tokens")

    def client(self, tx: Tx, client_id: str) -> Client | None:
        """The client of that id."""
        return find(tx, self.own_clients, client_id)

    def now_us(self) -> int:
        """Now, as the catalog's rows have it."""
        return int(self.clock() * 1e6)
