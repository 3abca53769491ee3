"""Checks the signatures of a callback as any receiver would: both schemes, by the shared key."""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Mapping

TOLERANCE_S = 300
SIGNED = ("(request-target)", "host", "date", "digest")
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"]*)"')


def faults(
    headers: Mapping[str, str], *, method: str, path: str, body: bytes, key: bytes
) -> list[str]:
    """What is wrong with the signatures of one request; headers in lower case."""
    checks = {
        "digest": headers.get("digest", "") == _digest(body),
        "signature": _http_signature_holds(headers, f"{method.lower()} {path}", key),
        "webhook-signature": _webhook_holds(headers, body, key),
    }
    return [name for name, holds in checks.items() if not holds]


def _digest(body: bytes) -> str:
    return "SHA-256=" + base64.b64encode(hashlib.sha256(body).digest()).decode()


def _http_signature_holds(headers: Mapping[str, str], target: str, key: bytes) -> bool:
    """The draft-cavage signature over the request's target, host, date and digest."""
    given = dict(_PARAMETER.findall(headers.get("signature", "")))
    if not given:
        given = dict(_PARAMETER.findall(headers.get("authorization", "")))
    if given.get("headers", "").split() != list(SIGNED):
        return False
    values = {"(request-target)": target, **headers}
    text = "\n".join(f"{name}: {values.get(name, '')}" for name in SIGNED)
    return hmac.compare_digest(given.get("signature", ""), _hmac(key, text.encode()))


def _webhook_holds(headers: Mapping[str, str], body: bytes, key: bytes) -> bool:
    """The Standard Webhooks signature, and that it is of now."""
    ident, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent.isdigit() or abs(time.time() - int(sent)) > TOLERANCE_S:
        return False
    expected = "v1," + _hmac(key, f"{ident}.{sent}.".encode() + body)
    given = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(expected, one) for one in given)


def _hmac(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
