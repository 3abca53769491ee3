"""Fixtures of the OAuth tests: an authorization server on every catalog engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from auth.accounts import admit_at_login
from auth.oauth.provider import OAuthProvider
from auth.tokens.signing_keys import SigningKeyFile, read_signing_keys
from config import Settings
from storage.catalog import Catalog, accounts
from storage.catalog.accounts import AccountKey, AccountStatus
from tests.auth.builders import Clock

ISSUER = "https://auth.example"
SECRETS = ("a secret for tests only",)


@dataclass
class Users:
    """Disables and enables users, without ending their grants as the operation would."""

    catalog: Catalog

    def disable(self, email: str) -> None:
        self._set_status(email, "disabled")

    def enable(self, email: str) -> None:
        self._set_status(email, "enabled")

    def _set_status(self, email: str, status: AccountStatus) -> None:
        with self.catalog.write() as tx:
            if accounts.find(tx, AccountKey("user", email)) is None:
                admit_at_login(tx, email)
            accounts.set_status(tx, AccountKey("user", email), status)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> SigningKeyFile:
    """Made once: an RSA key takes its time."""
    home = tmp_path_factory.mktemp("keys")
    read_signing_keys(home)
    return SigningKeyFile(home)


@pytest.fixture
def users(catalog: Catalog) -> Users:
    return Users(catalog)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path,
        auth_external_url=ISSUER,
        web_redirect_uris=("https://store.example/back",),
    )


@pytest.fixture
def provider(
    settings: Settings, catalog: Catalog, keys: SigningKeyFile, clock: Clock
) -> OAuthProvider:
    return OAuthProvider(settings, catalog, keys, SECRETS, clock)


@pytest.fixture
def having(provider: OAuthProvider, settings: Settings) -> Callable[..., OAuthProvider]:
    """The same provider with some settings changed."""

    def changed(**values: object) -> OAuthProvider:
        return replace(provider, settings=replace(settings, **values))  # type: ignore[arg-type]

    return changed
