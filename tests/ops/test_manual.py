"""The settings' reference."""

from config import Settings
from ops import manual


def test_every_setting_has_a_meaning() -> None:
    assert [variable for variable, _, about in manual.rows() if not about] == []


def test_defaults_are_written_as_the_environment_would_have_them() -> None:
    defaults = {variable: default for variable, default, _ in manual.rows()}
    assert defaults["STORE_PORT"] == "8000"
    assert defaults["STORE_READ_ONLY"] == "false"
    assert defaults["STORE_TOKEN_ALGORITHMS"] == "RS256,ES256"
    assert defaults["STORE_ISSUERS"] == ""


def test_a_secret_is_not_printed() -> None:
    shown = manual.current(Settings(secret_key="do-not-tell-anybody"))
    assert "do-not-tell-anybody" not in str(shown)
    assert ("STORE_SECRET_KEY", "(set)") in [(name, value) for name, value, _ in shown]
