"""Real bearer tokens at the API."""

import base64
import json
import time

import pytest

from api.app import build_verifier, create_app
from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import read_signing_keys
from tests.api.builders import AREA

NOW = 1_780_000_000.0
PATH = f"/v1/area/{AREA}"


@pytest.fixture
def guarded(settings, stores, job_queue):
    """A client of a store that verifies tokens, at a fixed time."""
    verify = build_verifier(settings, lambda: NOW).verify
    return create_app(settings, stores, job_queue=job_queue, verify=verify).test_client()


@pytest.fixture
def token(settings):
    """Makes a token of this store."""

    def make(*groups: str, lifetime_s: int = 600, now: float = NOW, audience: str = "store") -> str:
        return issue_token(
            read_signing_keys(settings.home),
            TokenSpec("somebody@example.org", groups, lifetime_s),
            issuer=settings.auth_url,
            audience=[audience],
            now=now,
            token_id="t",
        )

    return make


def opened(client, token: str) -> int:
    answer = client.post(PATH, headers={"Authorization": f"Bearer {token}"})
    assert answer.headers["Content-Type"].startswith("application/")
    if answer.status_code == 401:
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert token not in answer.text
    return answer.status_code


@pytest.mark.spec("WHO-03")
def test_accepts_valid_token_with_group(guarded, token) -> None:
    assert opened(guarded, token("store_ingest")) == 201


@pytest.mark.spec("WHO-03")
def test_without_the_group_it_is_403(guarded, token) -> None:
    assert opened(guarded, token()) == 403


@pytest.mark.spec("WHO-02")
def test_expired_early_foreign_and_forged_tokens_are_401(guarded, token) -> None:
    good = token("store_ingest")
    header, claims, signature = good.split(".")
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "x"}).encode()).decode()
    for bad in (
        token("store_ingest", now=NOW - 10_000),
        token("store_ingest", audience="elsewhere"),
        f"{header}.{claims}.{signature[:-4]}AAAA",
        f"{none.rstrip('=')}.{claims}.",
        "nonsense",
        good + "x",
    ):
        assert opened(guarded, bad) == 401


@pytest.mark.spec("WHO-02")
def test_uses_injected_clock(settings, stores, job_queue, token) -> None:
    verify = build_verifier(settings, time.time).verify
    client = create_app(settings, stores, job_queue=job_queue, verify=verify).test_client()
    assert opened(client, token("store_ingest", now=time.time())) == 201
