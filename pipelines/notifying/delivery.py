"""One attempt at a delivery, pure: the request to send, and what its answer means."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from random import Random
from uuid import UUID

from pipelines.notifying import signatures
from pipelines.notifying.addresses import parse_callback
from storage.catalog.deliveries import Due, Result, State

AGENT = "consortium-store/1"
MULTIPART = "multipart/form-data"
JITTER = 0.1
"""Part of a delay that is added at random, so that what failed together does not return so."""
LEAST_RETRY_S = 1.0
"""The shortest Retry-After that is honoured."""


@dataclass(frozen=True, slots=True)
class Request:
    """What goes over the wire; `host` is the name to look up."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, or why there is none; `body` is cut short already."""

    status: int | None = None
    error: str | None = None
    retry_after: str | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has it."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Not yet: the next attempt is due at `at_us`."""

    at_us: int
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """That was the last attempt."""

    reason: str


Verdict = Delivered | TryAgain | GiveUp


def request_for(due: Due, *, attempt: int, now_us: int, keys: Sequence[bytes] = ()) -> Request:
    """The request of an attempt, signed if the subscription has keys: the newest first, and alone
    in the Authorization."""
    callback = parse_callback(due.callback_url, allow_private=True)
    content_type, body = _encoded(due)
    date = signatures.http_date(now_us)
    headers = {
        "Host": callback.authority,
        "Date": date,
        "Content-Type": content_type,
        "User-Agent": AGENT,
        "Accept-Encoding": "identity",
        signatures.ATTEMPT_HEADER: str(attempt),
        **signatures.webhook_headers(keys, ident=due.uuid, now_us=now_us, body=body),
    }
    if due.is_test:
        headers[signatures.TEST_HEADER] = "true"
    if keys:
        headers |= signatures.http_signature(
            keys[0],
            due.hmac_key_id or f"store:{due.subscription_uuid}",
            method=due.method,
            target=callback.target,
            host=callback.authority,
            date=date,
            body=body,
        )
    return Request(due.method, callback.url, headers, body)


def _encoded(due: Due) -> tuple[str, bytes]:
    """Content type and body."""
    if due.encoding != MULTIPART:
        return due.encoding, due.payload.encode()
    fields = {**due.form_fields, due.payload_form_field: due.payload}
    parts = [_part(name, value) for name, value in fields.items()]
    boundary = _boundary(UUID(due.uuid).hex, b"".join(parts))
    rows = b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), part) for part in parts)
    return f"{MULTIPART}; boundary={boundary}", rows + f"--{boundary}--\r\n".encode()


def _part(name: str, value: str) -> bytes:
    # As browsers spell names that would break out of their quotation marks.
    quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return f'Content-Disposition: form-data; name="{quoted}"\r\n\r\n{value}'.encode()


def _boundary(seed: str, content: bytes) -> str:
    """The same for every attempt, and nowhere in what it separates."""
    boundary = f"store-{seed}"
    while boundary.encode() in content:
        boundary += "x"
    return boundary


def judge(
    answer: Answer,
    *,
    attempt: int,
    delays: Sequence[float],
    now_us: int,
    rng: Random,
    retry_after_cap_s: float,
) -> Verdict:
    """What follows from the answer to attempt number `attempt`, which was made by `now_us`."""
    if answer.status is not None and 200 <= answer.status < 300:
        return Delivered()
    reason = answer.error or f"The receiver answered {answer.status}."
    if attempt >= len(delays):
        return GiveUp(reason)
    delay_s = delays[attempt] * (1 + rng.random() * JITTER)
    if answer.status in (429, 503):
        asked_s = retry_after_s(answer.retry_after, now_us=now_us)
        if asked_s is not None:
            delay_s = min(max(asked_s, LEAST_RETRY_S), retry_after_cap_s)
    return TryAgain(now_us + int(delay_s * 1e6), reason)


def retry_after_s(header: str | None, *, now_us: int) -> float | None:
    """Seconds to wait by a Retry-After header, a number or a date; None when it says nothing."""
    if header is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}", header.strip(), re.ASCII):
        return float(header)
    try:
        return parsedate_to_datetime(header).timestamp() - now_us / 1e6
    except (ValueError, TypeError, OverflowError):
        return None


def result_of(due: Due, answer: Answer, verdict: Verdict, *, at_us: int, seconds: float) -> Result:
    """The attempt and what becomes of the delivery, to be recorded."""
    state: State
    reason: str | None
    match verdict:
        case Delivered():
            state, due_us, reason = "delivered", at_us, None
        case TryAgain(again_us, why):
            state, due_us, reason = "pending", again_us, why
        case GiveUp(why):
            state, due_us, reason = "failed", at_us, why
    return Result(
        delivery_id=due.id,
        at_us=at_us,
        seconds=round(seconds, 6),
        status=answer.status,
        error=None if answer.error is None else _short(answer.error),
        body=_text(answer.body) if answer.status is not None else None,
        state=state,
        due_us=due_us,
        reason=None if reason is None else _short(reason),
    )


def _text(raw: bytes) -> str:
    """As text that every catalog takes: no half characters, no NUL."""
    return raw.decode(errors="replace").replace("\x00", "\ufffd")


def _short(text: str) -> str:
    return _text(text.encode(errors="replace"))[:500]
