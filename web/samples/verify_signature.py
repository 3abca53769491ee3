"""Verify deliveries of the store; header names are lower-case, `target` is the path and query."""

import base64
import hashlib
import hmac
import re
import time

TOLERANCE_S = 300


def sign(secret: str, text: bytes) -> str:
    """Return the base64 of the HMAC-SHA256 of a text."""
    return base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()


def verify_webhook(headers: dict[str, str], body: bytes, secrets: list[str]) -> bool:
    """Return whether `webhook-signature` is by one of the secrets, and recent."""
    sent = headers["webhook-timestamp"]
    if abs(time.time() - int(sent)) > TOLERANCE_S:
        return False
    text = f"{headers['webhook-id']}.{sent}.".encode() + body
    given = [one.removeprefix("v1,") for one in headers["webhook-signature"].split(" ")]
    return any(hmac.compare_digest(one, sign(key, text)) for one in given for key in secrets)


def verify_http_signature(
    headers: dict[str, str], body: bytes, secret: str, method: str, target: str
) -> bool:
    """Return whether `Authorization` signs the method, target, host, date and body."""
    digest = "SHA-256=" + base64.b64encode(hashlib.sha256(body).digest()).decode()
    text = (
        f"(request-target): {method.lower()} {target}\nhost: {headers['host']}\n"
        f"date: {headers['date']}\ndigest: {digest}"
    )
    given = dict(re.findall(r'(\w+)="([^"]*)"', headers["authorization"]))
    expected = sign(secret, text.encode())
    return digest == headers["digest"] and hmac.compare_digest(given["signature"], expected)
