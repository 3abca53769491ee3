"""Fixtures of the OAuth tests: an authorization server on every catalog engine."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from auth.oauth.provider import OAuthProvider
from auth.tokens.signing_keys import SigningKeyFile, read_signing_keys
from config import Settings
from storage.catalog import Catalog, Tx
from storage.errors import Forbidden
from tests.auth.builders import Clock

ISSUER = "https://auth.example"
SECRET = b"a secret for tests only"


@dataclass
class Some:
    """People who are there unless a test disables them."""

    disabled: set[str] = field(default_factory=set)
    admitted: list[str] = field(default_factory=list)

    def admit(self, tx: Tx, email: str) -> None:
        if email in self.disabled:
            raise Forbidden("disabled")
        self.admitted.append(email)

    def is_enabled(self, tx: Tx, email: str) -> bool:
        return email not in self.disabled

    def groups(self, tx: Tx, email: str) -> tuple[str, ...]:
        return ("user_default", "curators")


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> SigningKeyFile:
    """Made once: an RSA key takes its time."""
    home = tmp_path_factory.mktemp("keys")
    read_signing_keys(home)
    return SigningKeyFile(home)


@pytest.fixture
def people() -> Some:
    return Some()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path,
        auth_external_url=ISSUER,
        web_redirect_uris=("https://store.example/back",),
    )


@pytest.fixture
def provider(
    settings: Settings, catalog: Catalog, keys: SigningKeyFile, people: Some, clock: Clock
) -> OAuthProvider:
    return OAuthProvider(settings, catalog, keys, people, SECRET, clock)


@pytest.fixture
def having(provider: OAuthProvider, settings: Settings) -> Callable[..., OAuthProvider]:
    """The same provider with some settings changed."""

    def changed(**values: object) -> OAuthProvider:
        return replace(provider, settings=replace(settings, **values))  # type: ignore[arg-type]

    return changed
