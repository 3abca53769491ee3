"""The command `secrets rotate`."""

from pathlib import Path

import pytest

from auth.tokens.signing_keys import read_signing_keys, seal_key_file
from pipelines.subscriptions import SECRET_PURPOSE, secret_context
from storage.catalog import Catalog, subscriptions
from storage.encryption import SecretBox, derive_keys
from storage.errors import Unavailable
from tests.ops.commands import opened, run, run_json, typed
from tests.subscription_builders import subscribe

pytestmark = pytest.mark.spec("OPS-43")

NEW, OLD = "the new secret of tests", "the old secret of tests"


def sign_up(catalog: Catalog, secret: str) -> str:
    """A subscription whose key this secret of the store encrypts; its id."""
    uuid = "7ee7f81d-5b2c-4f3f-8d0b-9b5c5a5b1f10"
    sealed = SecretBox(*derive_keys([secret], SECRET_PURPOSE)).seal(b"key", secret_context(uuid))
    subscribe(catalog, "https://receiver.example/hook", uuid=uuid, hmac_secret=sealed)
    return uuid


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET_KEY", NEW)
    monkeypatch.setenv("STORE_SECRET_KEY_PREVIOUS", OLD)


@pytest.mark.usefixtures("both")
def test_everything_is_encrypted_with_the_new_key(home: Path) -> None:
    seal_key_file(home, OLD)
    keys = read_signing_keys(home, OLD)
    stores = opened(home)
    uuid = sign_up(stores.catalog, OLD)
    done = run_json("secrets", "rotate")
    assert (done["subscription_keys"], done["changed"], done["unreadable"]) == (1, 1, [])
    assert done["token_keys_changed"]
    assert read_signing_keys(home, NEW).jwks() == keys.jwks()
    with pytest.raises(Unavailable):
        read_signing_keys(home, OLD)
    with stores.catalog.read() as tx:
        (row,) = subscriptions.list_sealed_secrets(tx, after_id=0, limit=2)
    box = SecretBox(*derive_keys([NEW], SECRET_PURPOSE))
    assert box.open(row.hmac_secret or b"", secret_context(uuid)) == b"key"
    again = run_json("secrets", "rotate")
    assert (again["changed"], again["token_keys_changed"]) == (0, False)
    assert "remove STORE_SECRET_KEY_PREVIOUS" in run("secrets", "rotate")


@pytest.mark.usefixtures("both")
def test_a_home_without_token_keys_gets_none(home: Path) -> None:
    assert run_json("secrets", "rotate")["token_keys_changed"] is False
    assert not (home / "secrets" / "signing-keys.json").exists()


@pytest.mark.usefixtures("both")
def test_a_lost_key_is_an_error(home: Path) -> None:
    uuid = sign_up(opened(home).catalog, "a third secret of tests")
    result = typed("secrets", "rotate")
    assert result.exit_code == 1
    assert uuid in result.output


@pytest.mark.parametrize(
    ("new", "old", "named"),
    [
        ("", OLD, "STORE_SECRET_KEY "),
        (NEW, "", "STORE_SECRET_KEY_PREVIOUS"),
        (NEW, NEW, "STORE_SECRET_KEY_PREVIOUS"),
        (NEW, "short", "STORE_SECRET_KEY_PREVIOUS must have"),
    ],
)
@pytest.mark.usefixtures("home")
def test_both_keys_are_needed(
    new: str, old: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_SECRET_KEY", new)
    monkeypatch.setenv("STORE_SECRET_KEY_PREVIOUS", old)
    result = typed("secrets", "rotate")
    assert result.exit_code == 1
    assert named in result.output
