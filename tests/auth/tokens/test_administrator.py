"""The token that the first operator of a store finds in its home."""

from dataclasses import replace
from pathlib import Path

from auth.tokens import administrator
from config import Settings


def test_the_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, secret_key="s" * 32)
    administrator.keep(settings)
    path = tmp_path / "admin.token"
    first = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    administrator.keep(settings)
    assert path.read_text() == first


def test_a_token_of_another_address_is_made_anew(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, secret_key="s" * 32)
    administrator.keep(settings)
    first = (tmp_path / "admin.token").read_text()
    administrator.keep(replace(settings, port=settings.port + 7))
    assert (tmp_path / "admin.token").read_text() != first
