"""Programs with a credentials file, against a store that has their key on its list."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from api.app import build_verifier
from auth.service_accounts import ServiceAccounts
from storage.errors import Unauthorized
from store_client import Client, Misused, NotAllowed
from store_client.auth.claims import read_claims
from store_client.auth.credentials import CREDENTIALS_VARIABLE
from store_client.auth.identity import fetch_identity
from store_client.auth.signatures import LIFE_S, ServiceAccountTokens
from store_client.configuration import Configuration
from store_client.http import HttpSession
from tests.client.auth.auth_service import ROBOT, Moving, World

pytestmark = pytest.mark.spec("CLI-81")


@pytest.fixture
def file(world: World, tmp_path: Path) -> Path:
    return world.robot(tmp_path / "robot.json")


def status(world: World, token: str | None) -> int:
    header = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{world.url}/v1/subscriptions?replica=aws", headers=header).status_code


def test_service_account_logs_in_by_credentials_file(
    world: World, file: Path, config: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CREDENTIALS_VARIABLE, str(file))
    with Client(config=config) as client:
        assert client.call("get_subscriptions", replica="aws") == {"subscriptions": []}


def test_token_is_for_one_store_and_lasts_minutes(world: World, file: Path) -> None:
    token = ServiceAccountTokens(file, world.url).bearer()
    said = read_claims(token)
    assert said["aud"] == world.url
    assert said["exp"] - said["iat"] == LIFE_S <= 600
    assert said["iss"] == said["sub"] == said["email"] == ROBOT
    assert status(world, token) == 200


def test_a_token_that_another_store_was_shown_is_worth_nothing_here(
    world: World, file: Path
) -> None:
    """Whoever runs it has the token, and comes here with it."""
    named = replace(world.settings, external_url="https://store.example")
    accounts = ServiceAccounts(world.stores.catalog, lifetime_s=3600)
    here = build_verifier(named, Moving(), accounts=accounts)
    assert here.verify(ServiceAccountTokens(file, "https://store.example").bearer()).email == ROBOT
    with pytest.raises(Unauthorized, match="audience"):
        here.verify(ServiceAccountTokens(file, "https://evil.example").bearer())


def test_token_is_reused_until_it_nearly_expires(world: World, file: Path) -> None:
    clock = Moving()
    tokens = ServiceAccountTokens(file, world.url, now=clock)
    first = tokens.bearer()
    clock.ahead_s = 400
    assert tokens.bearer() == first
    clock.ahead_s = 500
    second = tokens.bearer()
    assert second != first
    # A clock that was set back makes one of the future of it.
    clock.ahead_s = -500
    assert tokens.bearer() not in (first, second)


@pytest.mark.parametrize("ahead", [-300.0, 0.0, 80.0])
def test_a_clock_that_is_somewhat_wrong_does_not_matter(
    world: World, file: Path, ahead: float
) -> None:
    assert status(world, ServiceAccountTokens(file, world.url, now=Moving(ahead)).bearer()) == 200


def test_a_refused_token_is_followed_by_another_only_if_that_may_help(
    world: World, file: Path
) -> None:
    clock = Moving()
    tokens = ServiceAccountTokens(file, world.url, now=clock)
    first = tokens.bearer()
    assert tokens.renew(first) is None
    clock.ahead_s = 80
    second = tokens.renew(first)
    assert second not in (None, first)
    assert tokens.renew(first) == second
    world.robot(file)
    third = tokens.renew(str(second))
    assert third not in (None, second)
    assert status(world, third) == 200


def test_reports_removed_account(
    world: World, tmp_path: Path, config: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = world.robot(tmp_path / "robot.json")
    found = json.loads(stranger.read_text())
    stranger.write_text(json.dumps({**found, "client_email": "stranger@example.org"}))
    monkeypatch.setenv(CREDENTIALS_VARIABLE, str(stranger))
    with Client(config=config) as client, pytest.raises(NotAllowed):
        client.call("get_subscriptions", replica="aws")


def test_reports_refused_token_with_advice(config: Configuration, file: Path) -> None:
    elsewhere = ServiceAccountTokens(file, "https://other.example")
    with HttpSession(config.url) as session, pytest.raises(NotAllowed) as caught:
        fetch_identity(session, config, elsewhere, environ={CREDENTIALS_VARIABLE: str(file)})
    assert "(it is for https://other.example)" in str(caught.value)
    assert "the URL that the store calls itself" in caught.value.hint


def changed(file: Path, **members: Any) -> str:
    found: Mapping[str, Any] = json.loads(file.read_text())
    return json.dumps({k: v for k, v in {**found, **members}.items() if v is not None})


def pem(key: Any) -> str:
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return str(key.private_bytes(*form).decode())


def test_reports_invalid_credentials_file(world: World, file: Path) -> None:
    weak = pem(rsa.generate_private_key(65_537, 1024))
    other = pem(ec.generate_private_key(ec.SECP256R1()))
    marred = json.loads(file.read_text())["private_key"].replace("MII", "AAA")
    bad = {
        "no JSON object": ["", "[]", "{", "\ufeff{}", "[" * 50_000, "x" * 100_000],
        "not a credentials file of a service account": [changed(file, type="authorized_user")],
        "names no account": [changed(file, client_email=None), changed(file, client_email=7)],
        "holds no private key": [
            changed(file, private_key=None),
            changed(file, private_key="secret"),
        ],
        "is not an RSA key": [changed(file, private_key=other), changed(file, private_key=marred)],
        "has 1024 bits": [changed(file, private_key=weak)],
    }
    for why, texts in bad.items():
        for text in texts:
            file.write_text(text)
            with pytest.raises(Misused, match=why) as caught:
                ServiceAccountTokens(file, world.url).bearer()
            assert CREDENTIALS_VARIABLE in caught.value.hint
            assert "PRIVATE" not in str(caught.value)
            assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(world: World, tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(Misused, match=str(path)):
            ServiceAccountTokens(path, world.url).bearer()
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(Misused):
        ServiceAccountTokens(tmp_path / "bytes", world.url).bearer()


def test_a_file_that_others_may_read_is_made_private(world: World, file: Path) -> None:
    file.chmod(0o644)
    ServiceAccountTokens(file, world.url).bearer()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("CLI-74")
def test_a_key_does_not_show_itself(world: World, file: Path) -> None:
    tokens = ServiceAccountTokens(file, world.url)
    token = tokens.bearer()
    assert "PRIVATE" not in repr(tokens.account)
    assert token not in repr(vars(tokens))
