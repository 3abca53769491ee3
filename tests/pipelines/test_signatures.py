"""Webhook signatures, verified by other libraries."""

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import httpsig
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from pipelines import deliveries
from pipelines.deliveries import build_request
from tests.pipelines.delivery_builders import NOW_US, a_due

KEY = 'a key with ümlauts and " quotes'.encode()


def verified(request, key: bytes, *, path: str = "/hook?x=1", body: bytes | None = None) -> bool:
    """As a receiver would check it with httpsig."""
    given = request.headers["Authorization"]
    headers = dict(request.headers)
    if deliveries.digest_header(request.body if body is None else body) != headers["Digest"]:
        return False
    verifier = httpsig.HeaderVerifier(
        headers,
        key,
        required_headers=["(request-target)", "host", "date", "digest"],
        method=request.method,
        path=path,
        host=headers["Host"],
    )
    assert given.startswith("Signature ")
    return bool(verifier.verify())


@pytest.mark.spec("NOT-13")
def test_the_http_signature_is_verified_by_a_foreign_library() -> None:
    request = build_request(a_due(), attempt=1, now_us=NOW_US, keys=[KEY])
    assert verified(request, KEY)
    assert not verified(request, b"another key")
    assert not verified(request, KEY, path="/hook?x=2")
    assert not verified(request, KEY, body=request.body + b" ")


@pytest.mark.spec("NOT-13")
def test_the_key_id_is_the_owners_or_names_the_subscription() -> None:
    named = build_request(a_due(hmac_key_id="mine"), attempt=1, now_us=NOW_US, keys=[KEY])
    assert 'keyId="mine",algorithm="hmac-sha256"' in named.headers["Authorization"]
    unnamed = build_request(a_due(), attempt=1, now_us=NOW_US, keys=[KEY])
    assert f'keyId="store:{a_due().subscription_uuid}"' in unnamed.headers["Authorization"]


@pytest.mark.spec("NOT-14")
@pytest.mark.parametrize("encoding", ["application/json", "multipart/form-data"])
def test_standard_webhooks_are_verified_by_a_foreign_library(encoding: str, now_us: int) -> None:
    request = build_request(a_due(encoding=encoding), attempt=1, now_us=now_us, keys=[KEY])
    verifier = Webhook("whsec_" + base64.b64encode(KEY).decode())
    if encoding == "application/json":
        assert verifier.verify(request.body, dict(request.headers)) == json.loads(a_due().payload)
    with pytest.raises(WebhookVerificationError):
        verifier.verify(request.body + b" ", dict(request.headers))


@pytest.fixture
def now_us() -> int:
    """The library looks at the real clock."""
    return time.time_ns() // 1000


@pytest.mark.spec("NOT-14", "NOT-15")
def test_without_a_key_nothing_is_signed_but_the_id_is_there() -> None:
    headers = build_request(a_due(), attempt=3, now_us=NOW_US).headers
    assert headers["webhook-id"] == a_due().uuid
    assert headers["webhook-timestamp"] == str(NOW_US // 1_000_000)
    assert headers["X-STORE-NOTIFY-ATTEMPT"] == "3"
    assert not {"Authorization", "Digest", "webhook-signature"} & headers.keys()


@pytest.mark.spec("NOT-13")
def test_known_answers_of_another_implementation() -> None:
    signed = deliveries.http_signature_headers(
        b"key",
        "id",
        method="POST",
        target="/a?b=c",
        host="h.example:81",
        date="Thu, 01 Jan 2026 00:00:00 GMT",
        body=b"{}",
    )
    assert signed["Digest"] == "SHA-256=RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o="
    assert signed["Authorization"] == (
        'Signature keyId="id",algorithm="hmac-sha256",headers="(request-target) host date digest",'
        'signature="708Eb/+vlJTJwS6AoDPkXsd9HJQnTTHoffINSmu1yME="'
    )
    assert deliveries.format_http_date(1_767_225_600_000_000) == "Thu, 01 Jan 2026 00:00:00 GMT"


def documented() -> dict[str, Any]:
    """What the page for subscribers has them run."""
    page = Path(__file__).parents[2] / "docs" / "api.md"
    shown = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (each for each in shown if "def by_standard_webhooks" in each)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


@pytest.mark.spec("NOT-13")
@pytest.mark.parametrize("encoding", ["application/json", "multipart/form-data"])
def test_the_documented_receiver_checks_both_signatures(encoding: str, now_us: int) -> None:
    due = a_due(encoding=encoding)
    new, old = "the new one ä", "the old one"
    keys = [new.encode(), old.encode()]
    request = build_request(due, attempt=1, now_us=now_us, keys=keys)
    headers = {name.lower(): value for name, value in request.headers.items()}
    names = documented()
    webhooks, authorized = names["by_standard_webhooks"], names["by_http_signature"]
    for secrets, fits in (([new], True), ([old], True), (["x", old], True), (["x"], False)):
        assert webhooks(headers, request.body, secrets) is fits
    assert not webhooks(headers, request.body + b" ", [new])
    for secret, target, fits in (
        (new, "/hook?x=1", True),
        (old, "/hook?x=1", False),
        (new, "/hook?x=2", False),
    ):
        assert authorized(headers, request.body, secret, due.method, target) is fits
    assert not authorized(headers, request.body + b" ", new, due.method, "/hook?x=1")
