"""A provider on every catalog there is, with people and a clock that tests move."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from auth.openid.provider import Provider
from auth.tokens.key_file import KeyFile, signing_keys
from config.settings import Settings
from storage.catalog import Catalog
from storage.catalog.engine import Tx
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
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    """Made once: an RSA key takes its time."""
    home = tmp_path_factory.mktemp("keys")
    signing_keys(home)
    return KeyFile(home)


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
    settings: Settings, catalog: Catalog, keys: KeyFile, people: Some, clock: Clock
) -> Provider:
    return Provider(settings, catalog, keys, people, SECRET, clock)


@pytest.fixture
def having(provider: Provider, settings: Settings) -> Callable[..., Provider]:
    """The same provider with some settings changed."""

    def changed(**values: object) -> Provider:
        return replace(provider, settings=replace(settings, **values))  # type: ignore[arg-type]

    return changed
