"""The reference of the settings."""

import pytest

from config import Settings
from config import reference as settings_reference

pytestmark = pytest.mark.spec("OPS-07")


def test_every_setting_has_a_meaning() -> None:
    assert [
        variable for variable, _, about in settings_reference.list_settings() if not about
    ] == []


def test_defaults_are_written_as_the_environment_would_have_them() -> None:
    defaults = {variable: default for variable, default, _ in settings_reference.list_settings()}
    assert defaults["STORE_PORT"] == "8000"
    assert defaults["STORE_READ_ONLY"] == "false"
    assert defaults["STORE_TOKEN_ALGORITHMS"] == "RS256,ES256"
    assert defaults["STORE_ISSUERS"] == ""


def test_a_secret_is_not_printed() -> None:
    shown = settings_reference.list_current_values(Settings(secret_key="do-not-tell-anybody"))
    assert "do-not-tell-anybody" not in str(shown)
    assert ("STORE_SECRET_KEY", "(set)") in [(name, value) for name, value, _ in shown]


def test_a_password_in_a_url_is_not_printed() -> None:
    shown = settings_reference.list_current_values(
        Settings(
            catalog_url="postgresql+psycopg://store:hidden@db:5432/store",
            redis_url="rediss://:hidden@queue:6380/0",
            replica_aws="s3://bucket?endpoint=http://127.0.0.1:7070",
        )
    )
    values = {name: value for name, value, _ in shown}
    assert values["STORE_CATALOG_URL"] == "postgresql+psycopg://store:(set)@db:5432/store"
    assert values["STORE_REDIS_URL"] == "rediss://:(set)@queue:6380/0"
    assert values["STORE_REPLICA_AWS"] == "s3://bucket?endpoint=http://127.0.0.1:7070"
