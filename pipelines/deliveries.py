"""Build signed webhook requests, decide retries, and adapt concurrency per endpoint."""

import base64
import functools
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate, parsedate_to_datetime
from random import Random
from typing import Literal
from uuid import UUID

from pipelines.ssrf_guard import parse_callback_url
from storage.catalog.deliveries import AttemptResult, DeliveryState, DueDelivery
from storage.catalog.endpoints import Endpoint

SIGNED_HEADERS = "(request-target) host date digest"
ATTEMPT_HEADER = "X-STORE-NOTIFY-ATTEMPT"
TEST_HEADER = "X-STORE-NOTIFY-TEST"


def digest_header(body: bytes) -> str:
    """Return the value of the Digest header."""
    return "SHA-256=" + _encode_base64(hashlib.sha256(body).digest())


def http_signature_headers(
    key: bytes, key_id: str, *, method: str, target: str, host: str, date: str, body: bytes
) -> dict[str, str]:
    """Return Authorization and Digest by draft-cavage-http-signatures over `SIGNED_HEADERS`."""
    summary = digest_header(body)
    signed = (
        f"(request-target): {method.lower()} {target}\n"
        f"host: {host}\ndate: {date}\ndigest: {summary}"
    )
    parameters = {
        "keyId": key_id,
        "algorithm": "hmac-sha256",
        "headers": SIGNED_HEADERS,
        "signature": _sign_text(key, signed.encode()),
    }
    listed = ",".join(f'{name}="{value}"' for name, value in parameters.items())
    return {"Authorization": f"Signature {listed}", "Digest": summary}


def webhook_signature_headers(
    keys: Sequence[bytes], *, ident: str, now_us: int, body: bytes
) -> dict[str, str]:
    """Return the headers of Standard Webhooks, with a signature by each key, the newest first."""
    sent = str(now_us // 1_000_000)
    headers = {"webhook-id": ident, "webhook-timestamp": sent}
    if keys:
        signed = f"{ident}.{sent}.".encode() + body
        headers["webhook-signature"] = " ".join(f"v1,{_sign_text(key, signed)}" for key in keys)
    return headers


def format_http_date(now_us: int) -> str:
    """Return a time as the Date header has it."""
    return _format_date(now_us // 1_000_000)


@functools.lru_cache(16)
def _format_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _sign_text(key: bytes, text: bytes) -> str:
    return _encode_base64(hmac.digest(key, text, "sha256"))


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


INITIAL_WINDOW, MAX_WINDOW = 4, 32
"""Requests in flight to a new receiver, and at most to any receiver."""
FAILURES_BEFORE_PROBING = 5
"""Failures in a row after which one probe at a time is sent …"""
ATTEMPT_START_S = 0.2
"""How long attempts may begin after a look found their subscription active."""
PROBE_S, PROBE_CAP_S = 0.5, 10.0
"""… after a pause that doubles with every further failure, between these bounds."""


def is_probing(endpoint: Endpoint) -> bool:
    """Return whether a receiver failed so often that it is only probed."""
    return endpoint.failures >= FAILURES_BEFORE_PROBING


def is_suspect(endpoint: Endpoint) -> bool:
    """Return whether a receiver may hang: it is new, failed repeatedly, or is only probed."""
    return endpoint.width <= INITIAL_WINDOW


def concurrency_limit(endpoint: Endpoint) -> int:
    """Return how many requests to a receiver may be in flight."""
    return 1 if is_probing(endpoint) else int(endpoint.width)


def record_success(endpoint: Endpoint) -> Endpoint:
    """Widen the window by one, which doubles it in the time of one window, and end a backoff."""
    width = min(float(MAX_WINDOW), endpoint.width + 1)
    return replace(endpoint, failures=0, width=width, resume_us=0)


def record_failure(endpoint: Endpoint, *, now_us: int) -> Endpoint:
    """Halve the window, and back off after repeated failures."""
    failures = endpoint.failures + 1
    slower = replace(endpoint, failures=failures, width=max(1.0, endpoint.width / 2))
    if not is_probing(slower):
        return slower
    pause_s = min(PROBE_CAP_S, PROBE_S * 2.0 ** min(failures - FAILURES_BEFORE_PROBING, 10))
    return replace(slower, resume_us=now_us + int(pause_s * 1e6))


USER_AGENT = "consortium-store/1"
MULTIPART = "multipart/form-data"
JITTER = 0.1
"""Random share of a retry delay (jitter), so that failed deliveries do not return together."""
MIN_RETRY_AFTER_S = 1.0
"""The shortest Retry-After that is honoured."""


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """One request to a callback URL."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


Failure = Literal["timeout", "unreachable", "blocked", "unsent"]
"""No answer in time, no connection, refused by the SSRF guard, or not even built."""


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """A receiver's status, or the error of the request; `body` is truncated already."""

    status: int | None = None
    error: str | None = None
    retry_after: str | None = None
    body: bytes = b""
    failure: Failure | None = None
    """Why there is no status."""
    endpoint: str = "unknown"
    """Class of the receiver's address: public, private, loopback or unknown."""


def build_request(
    due: DueDelivery,
    *,
    attempt: int,
    now_us: int,
    keys: Sequence[bytes] = (),
    traceparent: str = "",
) -> WebhookRequest:
    """Build the request of an attempt, signed by the subscription's keys, the newest first.

    Authorization has the signature by the newest key only. `traceparent` is the trace context of
    the attempt, if it is traced.
    """
    callback = parse_callback_url(due.callback_url, allow_private=True)
    content_type, body = _encode_body(due)
    date = format_http_date(now_us)
    headers = {
        "Host": callback.authority,
        "Date": date,
        "Content-Type": content_type,
        "User-Agent": USER_AGENT,
        "Accept-Encoding": "identity",
        ATTEMPT_HEADER: str(attempt),
        **webhook_signature_headers(keys, ident=due.uuid, now_us=now_us, body=body),
    }
    if traceparent:
        headers["traceparent"] = traceparent
    if due.is_test:
        headers[TEST_HEADER] = "true"
    if keys:
        headers |= http_signature_headers(
            keys[0],
            due.hmac_key_id or f"store:{due.subscription_uuid}",
            method=due.method,
            target=callback.target,
            host=callback.authority,
            date=date,
            body=body,
        )
    return WebhookRequest(due.method, callback.url, headers, body)


def _encode_body(due: DueDelivery) -> tuple[str, bytes]:
    """Return the content type and the body."""
    if due.encoding != MULTIPART:
        return due.encoding, due.payload.encode()
    fields = {**due.form_fields, due.payload_form_field: due.payload}
    parts = []
    for name, value in fields.items():
        # As browsers spell names that would break out of their quotation marks.
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'Content-Disposition: form-data; name="{quoted}"'
        parts.append(f"{head}\r\n\r\n{value}".encode())
    # The same for each attempt, and not part of the content.
    boundary = f"store-{UUID(due.uuid).hex}"
    while any(boundary.encode() in part for part in parts):
        boundary += "x"
    rows = b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), part) for part in parts)
    return f"{MULTIPART}; boundary={boundary}", rows + f"--{boundary}--\r\n".encode()


def build_result(
    due: DueDelivery,
    response: WebhookResponse,
    *,
    at_us: int,
    now_us: int,
    seconds: float,
    delays: Sequence[float],
    retry_after_cap_s: float,
    rng: Random,
) -> AttemptResult:
    """Return the result of the attempt that began at `at_us`, and the delivery's next state.

    `delays` is the backoff (`STORE_DELIVERY_DELAYS_S`); with 429 and 503, Retry-After replaces it.
    """
    attempt = due.attempts + 1
    state: DeliveryState = "failed"
    due_us, reason = at_us, response.error or f"The receiver answered {response.status}."
    is_delivered = response.status is not None and 200 <= response.status < 300
    if is_delivered or due.resent_from == "delivered":
        state = "delivered"
    elif due.resent_from == "failed":
        # A delivery that was given up is resent once, and not retried.
        pass
    elif attempt < len(delays):
        delay_s = delays[attempt] * (1 + rng.random() * JITTER)
        if response.status in (429, 503):
            asked_s = parse_retry_after(response.retry_after, now_us=now_us)
            if asked_s is not None:
                delay_s = min(max(asked_s, MIN_RETRY_AFTER_S), retry_after_cap_s)
        state, due_us = "pending", now_us + int(delay_s * 1e6)
    return AttemptResult(
        delivery_id=due.id,
        at_us=at_us,
        seconds=round(seconds, 6),
        status=response.status,
        error=None if response.error is None else _truncate_text(response.error),
        body=None if response.status is None else _decode_text(response.body),
        state=state,
        due_us=due_us,
        reason=None if state == "delivered" else _truncate_text(reason),
        is_resend=due.resent_from is not None,
    )


def parse_retry_after(header: str | None, *, now_us: int) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date; None if it is invalid."""
    if header is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}", header.strip(), re.ASCII):
        return float(header)
    try:
        return parsedate_to_datetime(header).timestamp() - now_us / 1e6
    except (ValueError, TypeError, OverflowError):
        return None


def _decode_text(raw: bytes) -> str:
    """Return text that every catalog accepts, without invalid UTF-8 and NUL."""
    return raw.decode(errors="replace").replace("\x00", "\ufffd")


def _truncate_text(text: str) -> str:
    return _decode_text(text.encode(errors="replace"))[:500]
