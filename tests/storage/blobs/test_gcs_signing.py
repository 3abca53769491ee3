"""Who signs URLs of GCS, and what they look like."""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials, Credentials
from google.cloud.storage import _signing
from google.oauth2 import service_account

from storage.blobs.gcs_client import signer_of
from storage.blobs.gcs_signing import signed_get
from storage.errors import Unavailable


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

    email, sign = signer_of(Machine(), iam)  # type: ignore[no-untyped-call]
    assert email == "machine@project.iam.gserviceaccount.com"
    assert sign(b"text") == b"signature"
    ((url, payload),) = asked
    assert url.endswith(f"/{email}:signBlob")
    assert base64.b64decode(payload["payload"]) == b"text"


def test_an_account_with_a_key_signs_by_itself() -> None:
    class Key:
        key_id = "1"

        def sign(self, text: bytes) -> bytes:
            return text[::-1]

    credentials = service_account.Credentials(Key(), "me@project", "https://nowhere.invalid")  # type: ignore[no-untyped-call]
    email, sign = signer_of(credentials, None)
    assert (email, sign(b"text")) == ("me@project", b"txet")


def test_nobody_signs_nothing() -> None:
    with pytest.raises(Unavailable):
        signer_of(AnonymousCredentials(), None)  # type: ignore[no-untyped-call]


def test_what_is_signed_is_the_canonical_request() -> None:
    signed: list[bytes] = []

    def sign(text: bytes) -> bytes:
        signed.append(text)
        return b"\x01\xff"

    url = signed_get(
        "https://storage.googleapis.com/bucket",
        "a b/~c",
        ("me@project", sign),
        now=1_800_000_000.9,
        expires_s=10**9,
        answered={"content-type": "text/plain", "content-disposition": None},
    )
    assert url == (
        "https://storage.googleapis.com/bucket/a%20b/~c?X-Goog-Algorithm=GOOG4-RSA-SHA256"
        "&X-Goog-Credential=me%40project%2F20270115%2Fauto%2Fstorage%2Fgoog4_request"
        "&X-Goog-Date=20270115T080000Z&X-Goog-Expires=604800&X-Goog-SignedHeaders=host"
        "&response-content-type=text%2Fplain&X-Goog-Signature=01ff"
    )
    algorithm, date, scope, digest = signed[0].decode().split("\n")
    assert (algorithm, date) == ("GOOG4-RSA-SHA256", "20270115T080000Z")
    assert scope == "20270115/auto/storage/goog4_request"
    assert len(digest) == 64


def test_the_librarys_own_signature_is_the_same() -> None:
    """Of two implementations one would be wrong: Google's is the other."""
    texts: list[bytes] = []

    class Key:
        key_id = "1"

        def sign(self, text: bytes) -> bytes:
            texts.append(text)
            return b"\x01"

    credentials = service_account.Credentials(Key(), "me@project", "https://nowhere.invalid")  # type: ignore[no-untyped-call]
    _signing.generate_signed_url_v4(
        credentials,
        "/bucket/a%20b/~%C3%BC",
        3600,
        api_access_endpoint="https://storage.googleapis.com",
        response_type="text/html; charset=utf-8",
        response_disposition='attachment; filename="a b"',
        _request_timestamp="20270115T080000Z",
    )
    signed_get(
        "https://storage.googleapis.com/bucket",
        "a b/~ü",
        signer_of(credentials, None),
        now=1_800_000_000,
        expires_s=3600,
        answered={
            "content-type": "text/html; charset=utf-8",
            "content-disposition": 'attachment; filename="a b"',
        },
    )
    assert texts[0] == texts[1]
