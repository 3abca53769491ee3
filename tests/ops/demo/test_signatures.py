"""Signatures made by foreign libraries hold; any change to what they cover does not."""

import base64
import hashlib
import json
from datetime import UTC, datetime

import pytest
from httpsig.sign import HeaderSigner
from standardwebhooks.webhooks import Webhook

from ops.demo.signatures import SIGNED, faults

KEY = b"a key of the subscriber"
BODY = json.dumps({"match": {}}).encode()


def signed() -> dict[str, str]:
    now = datetime.now(UTC)
    ident, stamp = "msg-1", str(int(now.timestamp()))
    webhook = Webhook("whsec_" + base64.b64encode(KEY).decode())
    digest = "SHA-256=" + base64.b64encode(hashlib.sha256(BODY).digest()).decode()
    plain = {"Host": "receiver.example", "Date": "Sat, 21 Nov 2026 02:00:00 GMT", "Digest": digest}
    signer = HeaderSigner(
        "store:1", KEY, algorithm="hmac-sha256", headers=SIGNED, sign_header="signature"
    )
    headers = signer.sign(plain, host="receiver.example", method="POST", path="/hook")
    return {
        **{name.lower(): value for name, value in headers.items()},
        "webhook-id": ident,
        "webhook-timestamp": stamp,
        "webhook-signature": webhook.sign(ident, now, BODY.decode()),
    }


def check(headers: dict[str, str], body: bytes = BODY, key: bytes = KEY) -> list[str]:
    return faults(headers, method="POST", path="/hook", body=body, key=key)


def test_a_request_that_is_signed_both_ways_has_no_faults() -> None:
    assert check(signed()) == []


def test_another_body_breaks_digest_and_webhook_signature() -> None:
    assert check(signed(), body=b"{}") == ["digest", "webhook-signature"]


def test_another_key_breaks_both_signatures() -> None:
    assert check(signed(), key=b"other") == ["signature", "webhook-signature"]


@pytest.mark.parametrize("name", ["host", "date", "digest"])
def test_a_signed_header_cannot_be_changed(name: str) -> None:
    assert "signature" in check({**signed(), name: "other"})


def test_an_old_request_is_a_fault() -> None:
    assert "webhook-signature" in check({**signed(), "webhook-timestamp": "1000000000"})


def test_no_signature_at_all_is_every_fault() -> None:
    assert check({}) == ["digest", "signature", "webhook-signature"]
