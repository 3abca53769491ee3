"""Authentication of the simulated GCS: service account, tokens and signed URLs."""

import base64
import functools
import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, quote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.storage.blobs.gcs_objects import Refused

EXPIRED = "ExpiredToken"
EMAIL = "store@project.iam.gserviceaccount.com"


@functools.cache
def private_key() -> rsa.RSAPrivateKey:
    """One for all tests of a process."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def write_key_file(path: Path, endpoint: str) -> Path:
    """What an operator gets from Google, with tokens from elsewhere."""
    text = private_key().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    words = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": text.decode(),
        "client_email": EMAIL,
        "client_id": "1",
        "token_uri": f"{endpoint}/token",
    }
    path.write_text(json.dumps(words))
    return path


class Tokens:
    """Access tokens in exchange for what the account's key has signed."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def exchange(self, assertion: str) -> dict[str, str | int]:
        signed, _, signature = assertion.rpartition(".")
        _verify(base64.urlsafe_b64decode(signature + "=="), signed.encode())
        token = secrets.token_hex(16)
        self._given.add(token)
        return {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}

    def expect(self, authorization: str) -> None:
        if authorization.removeprefix("Bearer ") not in self._given:
            raise Refused(401, "Invalid Credentials")

    def withdraw(self) -> None:
        """None of those that were given is good any longer."""
        self._given.clear()


def expect_signed(
    method: str, path: str, query: str, headers: Mapping[str, str], now: datetime
) -> None:
    """403 unless a V4 signature of the test's account covers this request; 400, as GCS says, if it
    is malformed, has expired, or has a header of GCS's own that is not signed."""
    told = {name.lower(): value for name, value in headers.items()}
    given = dict(parse_qsl(query, keep_blank_values=True))
    signature = given.pop("X-Goog-Signature", "")
    at = datetime.strptime(given["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    life = int(given["X-Goog-Expires"])
    account, _, scope = given["X-Goog-Credential"].partition("/")
    names = given["X-Goog-SignedHeaders"].split(";")
    if not 1 <= life <= 604_800 or account != EMAIL or "host" not in names:
        raise Refused(400, "Invalid query parameters")
    if any(name not in names for name in told if name.startswith("x-goog-")):
        raise Refused(400, "A header that is not signed")
    if now >= at + timedelta(seconds=life):
        raise Refused(400, EXPIRED)
    spelled = "&".join(
        f"{quote(n, safe='~')}={quote(v, safe='~')}" for n, v in sorted(given.items())
    )
    lines = "".join(f"{name}:{told.get(name, '')}\n" for name in names)
    asked = f"{method}\n{path}\n{spelled}\n{lines}\n{';'.join(names)}\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = f"GOOG4-RSA-SHA256\n{given['X-Goog-Date']}\n{scope}\n{digest}"
    _verify(bytes.fromhex(signature), text.encode())


def _verify(signature: bytes, text: bytes) -> None:
    try:
        private_key().public_key().verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature as error:
        raise Refused(403, "The request signature does not match") from error
