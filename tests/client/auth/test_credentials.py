"""The file of a login: of its owner alone, whole, and mended where it can be."""

import json
import logging
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from store_client.auth import credentials as files
from store_client.auth.credentials import SavedLogin
from store_client.configuration import Configuration, load_configuration, save_profile
from store_client.errors import Misused
from store_client.http.retries import StaticToken

pytestmark = pytest.mark.spec("CLI-140")

KEPT = SavedLogin("an access token", "a refresh token", expires=2e9, email="ada@example.org")


@pytest.fixture
def config(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path / "user", tmp_path / "cache", "https://store.example")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("CLI-75")
def test_stored_credentials_are_read_back_and_private(config: Configuration) -> None:
    files.write_login(config, KEPT)
    assert files.read_login(config) == KEPT
    assert mode(config.credentials) == 0o600
    assert mode(config.credentials.parent) == 0o700


@pytest.mark.spec("CLI-75")
def test_each_store_has_a_login_of_its_own(config: Configuration) -> None:
    files.write_login(config, KEPT)
    other = Configuration(config.home, config.cache, "https://other.example")
    assert files.read_login(other) is None
    files.write_login(other, SavedLogin("another"))
    assert files.read_login(config) == KEPT


def of_profile(config: Configuration, name: str) -> Configuration:
    return replace(config, profile=name)


def keep_as_before(config: Configuration, kept: SavedLogin) -> None:
    """As releases did that named credentials by URL only."""
    files.write_login(replace(config, profile=""), kept)
    path = replace(config, profile="").credentials
    found = json.loads(path.read_text())
    del found["profile"]
    path.write_text(json.dumps(found))


@pytest.mark.spec("CLI-140")
@pytest.mark.parametrize("names", [("test", "prod"), ("work", "Work")])
def test_each_profile_of_a_store_has_a_login_of_its_own(
    config: Configuration, names: tuple[str, str]
) -> None:
    one, other = (of_profile(config, name) for name in names)
    for each in (one, other):
        save_profile(each, each.profile, default=False)
    files.write_login(one, KEPT)
    assert files.read_login(other) is None
    assert files.read_login(config) is None
    files.write_login(other, SavedLogin("another"))
    assert files.delete_login(other)
    assert files.read_login(one) == KEPT
    paths = [each.credentials.name.casefold() for each in (one, other, config)]
    assert len(set(paths)) == 3


@pytest.mark.spec("CLI-140")
def test_a_login_of_an_earlier_release_goes_to_the_only_profile(config: Configuration) -> None:
    work = of_profile(config, "work")
    save_profile(work, "work", default=False)
    keep_as_before(work, KEPT)
    assert files.read_login(work) == KEPT
    assert mode(work.credentials) == 0o600
    assert not config.credentials.exists()
    assert files.read_login(work) == KEPT


@pytest.mark.spec("CLI-140")
def test_default_profile_inherits_login_of_earlier_release(
    config: Configuration,
) -> None:
    test, prod = (of_profile(config, name) for name in ("test", "prod"))
    save_profile(test, "test", default=True)
    save_profile(prod, "prod", default=False)
    keep_as_before(prod, KEPT)
    assert files.read_login(prod) is None
    assert files.read_login(test) == KEPT
    assert files.read_login(prod) is None


def test_login_of_earlier_release_works_without_profile(config: Configuration) -> None:
    keep_as_before(config, KEPT)
    assert files.read_login(of_profile(config, "new")) is None
    assert files.read_login(config) == KEPT


def test_profile_ignores_login_made_without_profile(config: Configuration) -> None:
    work = of_profile(config, "work")
    save_profile(work, "work", default=True)
    files.write_login(config, KEPT)
    assert files.read_login(work) is None
    assert files.read_login(config) == KEPT


def test_new_login_is_not_replaced_by_earlier_one(
    config: Configuration,
) -> None:
    work = of_profile(config, "work")
    save_profile(work, "work", default=True)
    keep_as_before(work, KEPT)
    files.write_login(work, SavedLogin("later"))
    assert files.read_login(work) == SavedLogin("later")


@pytest.mark.spec("CLI-140")
def test_url_alone_selects_default_profile_of_that_url(tmp_path: Path) -> None:
    environ = {"STORE_CLIENT_HOME": str(tmp_path)}
    url = "https://store.example"
    work = load_configuration(url, "work", environ=environ)
    assert load_configuration(url, environ=environ).profile == ""
    save_profile(work, "work", default=True)
    for same in (url, f"{url}/v1/"):
        assert load_configuration(same, environ=environ) == work
    assert load_configuration("https://other.example", environ=environ).profile == ""


@pytest.mark.parametrize("name", ["../../etc", "a/b", "-x", "a" * 65])
def test_rejects_unsafe_profile_names(tmp_path: Path, name: str) -> None:
    environ = {"STORE_CLIENT_HOME": str(tmp_path)}
    with pytest.raises(Misused, match="is not a valid profile name"):
        load_configuration("https://store.example", name, environ=environ)


@pytest.mark.spec("CLI-75")
@pytest.mark.parametrize("open_mode", [0o644, 0o660, 0o604, 0o666])
def test_readable_credentials_file_is_made_private_with_warning(
    config: Configuration,
    open_mode: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files.write_login(config, KEPT)
    config.credentials.chmod(open_mode)
    monkeypatch.setattr(logging.getLogger("store_client"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="store_client"):
        assert files.read_login(config) == KEPT
    assert mode(config.credentials) == 0o600
    assert "could be read by others" in caplog.text
    assert "token" not in caplog.text.replace(str(config.credentials), "")
    caplog.clear()
    files.read_login(config)
    assert caplog.text == ""


@pytest.mark.spec("CLI-75")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{}",
        b'{"access_token": ""}',
        b'{"access_token": 7}',
        b'{"access_token": "a", "refresh_token": null}',
        b"[" * 100_000,
    ],
)
def test_invalid_credentials_file_is_no_login(config: Configuration, text: bytes) -> None:
    config.credentials.parent.mkdir(parents=True)
    config.credentials.write_bytes(text)
    config.credentials.chmod(0o600)
    assert files.read_login(config) is None
    files.write_login(config, KEPT)
    assert files.read_login(config) == KEPT


@pytest.mark.spec("CLI-75")
def test_keeps_members_of_later_releases(config: Configuration) -> None:
    files.write_login(config, KEPT)
    found = json.loads(config.credentials.read_text())
    config.credentials.write_text(json.dumps({**found, "new": 1, "expires": "never"}))
    config.credentials.chmod(0o600)
    again = files.read_login(config)
    assert again is not None
    assert (again.access_token, again.expires) == ("an access token", None)


@pytest.mark.spec("CLI-75")
def test_logout_forgets_login_once(config: Configuration) -> None:
    files.write_login(config, KEPT)
    assert files.delete_login(config) is True
    assert files.delete_login(config) is False
    assert files.read_login(config) is None


@pytest.mark.spec("CLI-74")
def test_a_login_does_not_show_its_tokens() -> None:
    assert "an access token" not in repr(KEPT)
    assert "a refresh token" not in str(KEPT)
    assert "given" not in repr(StaticToken("given"))
