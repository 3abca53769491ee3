"""An id token that is not of this login, as a service, or somebody between, may send one."""

import json
from typing import Any

import httpx
import pytest
from joserfc.jwk import RSAKey

from store_client.auth.signatures import verify_id_token
from store_client.errors import Refused
from store_client.http.session import HttpSession
from tests.auth.builders import signed

pytestmark = pytest.mark.spec("CLI-70")

ISSUER = "https://auth.example"
KEY = RSAKey.generate_key(2048, auto_kid=True)
ORDINARY = {"iss": ISSUER, "sub": "ada", "aud": "store-cli", "nonce": "the nonce"}


def checked(token: str, keys: Any = None) -> None:
    public = {"keys": [KEY.as_dict(private=False)]} if keys is None else keys
    content = public if isinstance(public, bytes) else json.dumps(public)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=content))
    with HttpSession(ISSUER, transport=transport) as session:
        verify_id_token(session, token, issuer=ISSUER, jwks_uri=f"{ISSUER}/keys", nonce="the nonce")


@pytest.mark.parametrize("audience", ["store-cli", ["other", "store-cli"]])
def test_accepts_id_token_of_this_login(audience: object) -> None:
    checked(signed(KEY, {**ORDINARY, "aud": audience}))


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"aud": "store-web"},
        {"aud": []},
        {"aud": None},
        {"nonce": "another"},
        {"nonce": None},
    ],
)
def test_rejects_id_token_of_another_login(changed: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="of another login"):
        checked(signed(KEY, {**ORDINARY, **changed}))


def test_rejects_unsigned_id_token() -> None:
    good = signed(KEY, ORDINARY)
    head, body, _ = good.split(".")
    stranger = RSAKey.generate_key(2048, auto_kid=True)
    for token in (
        "",
        "a.b.c",
        f"{head}.{body}.",
        f"eyJhbGciOiJub25lIn0.{body}.",
        signed(stranger, ORDINARY),
    ):
        with pytest.raises(Refused, match="cannot be verified"):
            checked(token)
    for keys in ({}, [], {"keys": []}, {"keys": [{"kty": "?"}]}):
        with pytest.raises(Refused, match="cannot be verified"):
            checked(good, keys)


@pytest.mark.parametrize(
    "keys", [b"[" * 100_000, b"<html>", b"[]", b"{}"], ids=["nested", "html", "list", "empty"]
)
def test_refuses_id_token_without_readable_keys(keys: bytes) -> None:
    with pytest.raises(Refused, match="cannot be verified"):
        checked(signed(KEY, ORDINARY), keys)
