"""The operator's commands for service accounts."""

import json
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt
from joserfc.jwk import RSAKey

from api.app import build_verifier
from auth.service_accounts import ServiceAccounts
from auth.tokens.verification import TokenVerifier
from config import Settings
from ops.__main__ import cli
from storage.catalog import Catalog
from storage.errors import Unauthorized

pytestmark = pytest.mark.spec("SAC-02", "OPS-22")

ROBOT = "robot@example.org"


@pytest.fixture
def settings(home: Path) -> Settings:
    return Settings(home=home)


@pytest.fixture
def verify(settings: Settings) -> TokenVerifier:
    accounts = ServiceAccounts(Catalog(settings.catalog), lifetime_s=settings.service_token_s)
    return build_verifier(settings, time.time, accounts=accounts)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def token(credentials: dict[str, str]) -> str:
    """As a program makes one that reads the file of CLOUD_APPLICATION_CREDENTIALS."""
    email, now = credentials["client_email"], int(time.time())
    claims = {"iss": email, "sub": email, "email": email, "iat": now, "exp": now + 600}
    header = {"alg": "RS256", "kid": credentials["private_key_id"]}
    key = RSAKey.import_key(credentials["private_key"])
    return jwt.encode(header, {**claims, "aud": credentials["audience"]}, key)


def test_created_credentials_file_works_until_account_is_removed(
    settings: Settings, verify: TokenVerifier, tmp_path: Path
) -> None:
    path = tmp_path / "robot.json"
    assert ROBOT in run("service-accounts", "add", ROBOT, "--make", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    credentials = json.loads(path.read_text())
    assert credentials["token_uri"].startswith(settings.auth_url)
    assert verify.verify(token(credentials)).email == ROBOT
    assert f"{ROBOT}\t{credentials['private_key_id']}\t" in run("service-accounts", "list")
    assert "1 removed, 0 left" in run("service-accounts", "remove", ROBOT)
    with pytest.raises(Unauthorized):
        verify.verify(token(credentials))
    assert ROBOT not in run("service-accounts", "list")


def test_a_file_of_a_store_that_knows_its_address_is_for_that_address(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_EXTERNAL_URL", "https://store.example")
    path = tmp_path / "robot.json"
    run("service-accounts", "add", ROBOT, "--make", str(path))
    credentials = json.loads(path.read_text())
    assert credentials["audience"] == "https://store.example"
    accounts = ServiceAccounts(Catalog(settings.catalog), lifetime_s=settings.service_token_s)
    here = replace(settings, external_url="https://store.example")
    assert (
        build_verifier(here, time.time, accounts=accounts).verify(token(credentials)).email == ROBOT
    )
    elsewhere = replace(settings, external_url="https://other.example")
    with pytest.raises(Unauthorized):
        build_verifier(elsewhere, time.time, accounts=accounts).verify(token(credentials))


def test_a_public_key_and_a_credentials_file_are_registered(
    settings: Settings, verify: TokenVerifier, tmp_path: Path
) -> None:
    key, path = RSAKey.generate_key(2048), tmp_path / "key.pem"
    path.write_bytes(key.as_pem(private=False))
    assert "machine-1" in run(
        "service-accounts", "add", ROBOT, "--key", str(path), "--kid", "machine-1"
    )
    credentials = {
        "client_email": ROBOT,
        "private_key_id": "machine-2",
        "private_key": key.as_pem(private=True).decode(),
        "audience": "store",
    }
    path.write_text(json.dumps(credentials))
    assert "machine-2" in run("service-accounts", "add", ROBOT, "--credentials", str(path))
    assert verify.verify(token(credentials)).email == ROBOT
    run("service-accounts", "remove", ROBOT, "--kid", "machine-2")
    assert verify.verify(token({**credentials, "private_key_id": "machine-1"})).email == ROBOT


def test_overwrites_nothing_and_leaves_no_partial_files(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "robot.json"
    path.write_text("mine")
    assert "cannot be made" in run("service-accounts", "add", ROBOT, "--make", str(path), code=1)
    assert path.read_text() == "mine"
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "elsewhere.json")
    run("service-accounts", "add", ROBOT, "--make", str(link), code=1)
    assert not (tmp_path / "elsewhere.json").exists()
    path.write_bytes(RSAKey.generate_key(2048).as_pem(private=False))
    for number in range(10):
        run("service-accounts", "add", ROBOT, "--key", str(path), "--kid", str(number))
    one_more = tmp_path / "one-more.json"
    assert "already" in run("service-accounts", "add", ROBOT, "--make", str(one_more), code=1)
    assert not one_more.exists()


@pytest.mark.parametrize(
    "words",
    [
        (ROBOT,),
        (ROBOT, "--key", "{key}", "--make", "{new}"),
        ("robot", "--make", "{new}"),
    ],
)
def test_rejects_invalid_arguments_before_creating_anything(
    settings: Settings, tmp_path: Path, words: tuple[str, ...]
) -> None:
    key, new = tmp_path / "key.pem", tmp_path / "new.json"
    key.write_bytes(RSAKey.generate_key(2048).as_pem(private=False))
    run("service-accounts", "add", *(word.format(key=key, new=new) for word in words), code=2)
    assert not new.exists()


def test_reports_errors_without_traceback(settings: Settings, tmp_path: Path) -> None:
    weak = rsa.generate_private_key(65_537, 1024).public_key()
    private = RSAKey.generate_key(2048)
    path = tmp_path / "key.pem"
    for content, said in (
        (weak.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "2048"),
        (private.as_pem(private=True), "private key"),
        (b"\xff\xfe", "cannot be read"),
    ):
        path.write_bytes(content)
        assert said in run("service-accounts", "add", ROBOT, "--key", str(path), code=1)
    assert "no service account" in run("service-accounts", "remove", ROBOT, code=1)
