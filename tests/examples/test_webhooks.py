"""The webhook receiver: it accepts signatures of other libraries, and detects any change."""

import base64
import hashlib
import json
from datetime import UTC, datetime

import httpx
import pytest
from httpsig.sign import HeaderSigner
from standardwebhooks.webhooks import Webhook

from examples.webhooks import SIGNED, running_receiver, signature_errors

pytestmark = pytest.mark.spec("OPS-17")

KEY = "a key of the subscriber"
BODY = json.dumps({"match": {}}).encode()


def signed() -> dict[str, str]:
    now = datetime.now(UTC)
    ident, stamp = "msg-1", str(int(now.timestamp()))
    webhook = Webhook("whsec_" + base64.b64encode(KEY.encode()).decode())
    digest = "SHA-256=" + base64.b64encode(hashlib.sha256(BODY).digest()).decode()
    plain = {"Host": "receiver.example", "Date": "Sat, 21 Nov 2026 02:00:00 GMT", "Digest": digest}
    signer = HeaderSigner(
        "store:1", KEY.encode(), algorithm="hmac-sha256", headers=SIGNED, sign_header="signature"
    )
    headers = signer.sign(plain, host="receiver.example", method="POST", path="/hook")
    return {
        **{name.lower(): value for name, value in headers.items()},
        "webhook-id": ident,
        "webhook-timestamp": stamp,
        "webhook-signature": webhook.sign(ident, now, BODY.decode()),
    }


def check(headers: dict[str, str], body: bytes = BODY, key: str = KEY) -> list[str]:
    return signature_errors(headers, "/hook", body, key)


def test_accepts_both_signatures() -> None:
    assert check(signed()) == []


def test_rejects_another_body() -> None:
    assert check(signed(), body=b"{}") == ["digest", "webhook-signature"]


def test_rejects_another_key() -> None:
    assert check(signed(), key="other") == ["signature", "webhook-signature"]


@pytest.mark.parametrize("name", ["host", "date", "digest"])
def test_rejects_a_changed_header(name: str) -> None:
    assert "signature" in check({**signed(), name: "other"})


def test_rejects_an_old_notification() -> None:
    assert "webhook-signature" in check({**signed(), "webhook-timestamp": "1000000000"})


def test_rejects_a_notification_without_signatures() -> None:
    assert check({}) == ["digest", "signature", "webhook-signature"]


NOTIFICATION = {"event_type": "CREATE", "match": {"bundle_uuid": "u", "bundle_version": "v"}}


def test_receives_notifications_by_path_and_event_type() -> None:
    with running_receiver(KEY) as receiver:
        url = f"{receiver.url}/one"
        assert httpx.post(url, json=NOTIFICATION, trust_env=False).status_code == 200
    assert receiver.fqids("/one") == {"u.v"}
    assert receiver.fqids("/one", "TOMBSTONE") == set()
    assert receiver.fqids("/two") == set()
    assert [one.errors for one in receiver.invalid()] == [
        ["digest", "signature", "webhook-signature"]
    ]


def test_answers_503_to_what_it_does_not_accept() -> None:
    with running_receiver(KEY, accept=lambda one: one.path != "/one") as receiver:
        url = f"{receiver.url}/one"
        assert httpx.post(url, json=NOTIFICATION, trust_env=False).status_code == 503
    assert (receiver.accepted, len(receiver.rejected)) == ([], 1)
