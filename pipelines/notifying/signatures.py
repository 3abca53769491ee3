"""Signatures of callbacks, pure: draft-cavage HTTP signatures and, beside it, Standard Webhooks."""

import base64
import functools
import hashlib
import hmac
from collections.abc import Sequence
from email.utils import formatdate

SIGNED = "(request-target) host date digest"
ATTEMPT_HEADER = "X-STORE-NOTIFY-ATTEMPT"
TEST_HEADER = "X-STORE-NOTIFY-TEST"


def digest(body: bytes) -> str:
    """The value of the Digest header."""
    return "SHA-256=" + _base64(hashlib.sha256(body).digest())


def http_signature(
    key: bytes, key_id: str, *, method: str, target: str, host: str, date: str, body: bytes
) -> dict[str, str]:
    """Authorization and Digest by draft-cavage-http-signatures, over target, host, date, digest."""
    summary = digest(body)
    signed = (
        f"(request-target): {method.lower()} {target}\n"
        f"host: {host}\ndate: {date}\ndigest: {summary}"
    )
    parameters = {
        "keyId": key_id,
        "algorithm": "hmac-sha256",
        "headers": SIGNED,
        "signature": _hmac(key, signed.encode()),
    }
    listed = ",".join(f'{name}="{value}"' for name, value in parameters.items())
    return {"Authorization": f"Signature {listed}", "Digest": summary}


def webhook_headers(
    keys: Sequence[bytes], *, ident: str, now_us: int, body: bytes
) -> dict[str, str]:
    """The headers of Standard Webhooks: a signature by each key, the newest first, none without."""
    sent = str(now_us // 1_000_000)
    headers = {"webhook-id": ident, "webhook-timestamp": sent}
    if keys:
        signed = f"{ident}.{sent}.".encode() + body
        headers["webhook-signature"] = " ".join(f"v1,{_hmac(key, signed)}" for key in keys)
    return headers


def http_date(now_us: int) -> str:
    """A moment as the Date header spells it."""
    return _date_of(now_us // 1_000_000)


@functools.lru_cache(16)
def _date_of(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _hmac(key: bytes, text: bytes) -> str:
    return _base64(hmac.digest(key, text, "sha256"))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
