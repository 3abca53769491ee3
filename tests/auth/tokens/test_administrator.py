"""The administrator's first token in the home folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from auth.tokens import issuance
from config import Settings

pytestmark = pytest.mark.spec("OPS-04")


def test_the_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, secret_key="s" * 32)
    issuance.write_admin_token(settings)
    path = tmp_path / "admin.token"
    first = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    issuance.write_admin_token(settings)
    assert path.read_text() == first


def test_token_of_another_address_is_replaced(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, secret_key="s" * 32)
    issuance.write_admin_token(settings)
    first = (tmp_path / "admin.token").read_text()
    issuance.write_admin_token(replace(settings, port=settings.port + 7))
    assert (tmp_path / "admin.token").read_text() != first
