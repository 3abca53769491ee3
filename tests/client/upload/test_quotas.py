"""`store upload` of more than a quota has room for."""

from dataclasses import replace
from pathlib import Path

import pytest

from config import Settings
from tests.client.cli.people import Typist, showing
from tests.client.conftest import Served


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, quota_bytes=10)


@pytest.mark.spec("OPS-45", "CLI-13")
def test_tells_what_is_left(store: Served, source: Path, tmp_path: Path) -> None:
    typist = Typist(tmp_path / "user", showing("admin"), {"STORE_CLIENT_URL": store.url})
    done = typist.types("upload", "--src-dir", str(source), "--replica", "aws", "--no-progress")
    assert done.exit_code == 3
    assert "The quota of user admin@example.org is 10 bytes: " in done.stderr
    assert "ask the operators of the store for more" in done.stderr
    assert "Traceback" not in done.stderr
