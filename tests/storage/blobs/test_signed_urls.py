"""Signed URLs grant exactly what was signed until they expire."""

import base64
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from google.auth.credentials import AnonymousCredentials, Credentials
from google.oauth2 import service_account
from hypothesis import given
from hypothesis import strategies as st

from storage.blobs.gcs_client import make_signing_credentials
from storage.blobs.signed_urls import DownloadGrant, UrlSigner
from storage.errors import Forbidden, Invalid, Unavailable

pytestmark = pytest.mark.spec("FIL-33")

NOW = 1_700_000_000
SIGNER = UrlSigner(b"secret", "aws", now=lambda: NOW)
PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=50)


def received(url: str) -> tuple[str, dict[str, str]]:
    """Key and parameters as a web framework would hand them over."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, strict_parsing=True)
    path = unquote(parts.path).removeprefix("/v1/objects/aws/")
    return path, {name: values[0] for name, values in query.items()}


@pytest.mark.spec("FMT-07")
def test_a_known_url() -> None:
    url = SIGNER.sign("a b/é", expires_s=60, content_type="text/plain; x=y")
    assert url == (
        "/v1/objects/aws/a%20b/%C3%A9?expires=1700000060&type=text%2Fplain%3B%20x%3Dy"
        "&signature=" + url.rpartition("=")[2]
    )
    assert len(url.rpartition("=")[2]) == 64


@given(PRINTABLE.filter(bool), PRINTABLE, PRINTABLE)
def test_accepts_signed_url(key: str, content_type: str, disposition: str) -> None:
    url = SIGNER.sign(key, expires_s=60, content_type=content_type, disposition=disposition)
    assert url.isascii()
    grant = SIGNER.verify(*received(url))
    assert grant == DownloadGrant(key, content_type or None, disposition or None)


@pytest.mark.parametrize(
    "change",
    [
        {"expires": str(NOW + 61)},
        {"expires": ""},
        {"type": "text/html"},
        {"type": ""},
        {"disposition": "inline"},
        {"signature": "0" * 64},
        {"signature": ""},
        {"signature": "é"},
    ],
)
def test_any_change_is_forbidden(change: dict[str, str]) -> None:
    key, parameters = received(SIGNER.sign("k", expires_s=60, content_type="a/b"))
    with pytest.raises(Forbidden):
        SIGNER.verify(key, {**parameters, **change})


def test_rejects_other_key_bucket_or_secret() -> None:
    key, parameters = received(SIGNER.sign("k", expires_s=60))
    for signer, asked in (
        (SIGNER, "k2"),
        (UrlSigner(b"secret", "gcp", now=lambda: NOW), key),
        (UrlSigner(b"other", "aws", now=lambda: NOW), key),
    ):
        with pytest.raises(Forbidden):
            signer.verify(asked, parameters)


@pytest.mark.spec("BUN-15")
def test_a_url_expires() -> None:
    key, parameters = received(SIGNER.sign("k", expires_s=60))
    UrlSigner(b"secret", "aws", now=lambda: NOW + 59).verify(key, parameters)
    with pytest.raises(Forbidden):
        UrlSigner(b"secret", "aws", now=lambda: NOW + 60).verify(key, parameters)


def test_a_header_cannot_be_smuggled_in() -> None:
    with pytest.raises(Invalid):
        SIGNER.sign("k", expires_s=60, disposition="attachment\r\nSet-Cookie: x")


class Machine(Credentials):
    """What a virtual machine has: an account whose key is Google's."""

    service_account_email = "default"

    def refresh(self, _: object) -> None:
        self.token = "token"
        self.service_account_email = "machine@project.iam.gserviceaccount.com"


def test_a_machines_account_signs_by_iam() -> None:
    asked: list[tuple[str, Any]] = []

    def iam(url: str, body: bytes, **_: object) -> SimpleNamespace:
        asked.append((url, json.loads(body)))
        told = json.dumps({"signedBlob": base64.b64encode(b"signature").decode()})
        return SimpleNamespace(status=200, data=told.encode())

    signing = make_signing_credentials(Machine(), iam)  # type: ignore[no-untyped-call]
    assert signing.signer_email == "machine@project.iam.gserviceaccount.com"
    assert signing.sign_bytes(b"text") == b"signature"
    ((url, payload),) = asked
    assert url.endswith(f"/{signing.signer_email}:signBlob")
    assert base64.b64decode(payload["payload"]) == b"text"


def test_an_account_with_a_key_signs_by_itself() -> None:
    class Key:
        key_id = "1"

        def sign(self, text: bytes) -> bytes:
            return text[::-1]

    credentials = service_account.Credentials(Key(), "me@project", "https://nowhere.invalid")  # type: ignore[no-untyped-call]
    signing = make_signing_credentials(credentials, None)
    assert (signing.signer_email, signing.sign_bytes(b"text")) == ("me@project", b"txet")


def test_anonymous_credentials_sign_nothing() -> None:
    with pytest.raises(Unavailable):
        make_signing_credentials(AnonymousCredentials(), None)  # type: ignore[no-untyped-call]
