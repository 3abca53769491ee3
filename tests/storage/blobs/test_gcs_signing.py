"""Which credentials sign URLs of GCS."""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials, Credentials
from google.oauth2 import service_account

from storage.blobs.gcs_client import signing_credentials
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

    signing = signing_credentials(Machine(), iam)  # type: ignore[no-untyped-call]
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
    signing = signing_credentials(credentials, None)
    assert (signing.signer_email, signing.sign_bytes(b"text")) == ("me@project", b"txet")


def test_anonymous_credentials_sign_nothing() -> None:
    with pytest.raises(Unavailable):
        signing_credentials(AnonymousCredentials(), None)  # type: ignore[no-untyped-call]
