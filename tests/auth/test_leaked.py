"""A signing key that leaked: a process that goes on refuses what it signed."""

from pathlib import Path

import pytest

from auth.issue import Grant, issue
from auth.keys import rotate, signing_keys
from auth.tokens import verifier
from config.settings import Settings
from storage.errors import Unauthorized
from tests.auth.builders import NOW, Clock


def test_a_key_that_leaked_ends_in_processes_that_have_it(tmp_path: Path, clock: Clock) -> None:
    settings = Settings(home=tmp_path)
    running = verifier(settings, clock)
    token = issue(
        signing_keys(tmp_path),
        Grant("ada@example.org", (), 3600),
        issuer=settings.auth_url,
        audience=settings.audiences,
        now=NOW,
        token_id="1",
    )
    assert running.verify(token).email == "ada@example.org"
    rotate(tmp_path, now=NOW, life_s=60, drop=True)
    clock.now += 1
    with pytest.raises(Unauthorized):
        running.verify(token)
