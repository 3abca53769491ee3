"""Verify notifications that a store sends to a subscription's callback URL, and sign test requests.

event = webhooks.verify(request, secret)  # Flask, Django, aiohttp, or a handler of http.server
event = webhooks.verify(request, secret, body=await request.body())  # Starlette, FastAPI
event = webhooks.verify(headers, secret, body=body)  # anything else

Both signatures of the store are HMAC-SHA256 by the UTF-8 bytes of the subscription's secret:
Standard Webhooks (`webhook-signature`), and draft-cavage-http-signatures (`Authorization`).
"""

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Any, Literal, NoReturn
from urllib.parse import quote

from store_client.errors import Misused, StoreError

TOLERANCE_S = 300.0
"""Age above which a notification could be a replayed one, and the clock difference allowed for."""
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Longest body that is read from a handler of http.server."""
SIGNED_HEADERS = "(request-target) host date digest"
ATTEMPT_HEADER = "x-store-notify-attempt"
STORE_KEY_PREFIX = "store:"
"""Begins the key id of a subscription without `hmac_key_id`; its uuid follows."""

Secret = str | bytes
Secrets = Secret | Sequence[Secret] | Mapping[str, Secret | Sequence[Secret]]
"""A secret, several while one is replaced, or those of each key id."""
Scheme = Literal["standard", "http"]
"""Standard Webhooks (`webhook-signature`), or HTTP signatures (`Authorization`)."""


class InvalidSignature(StoreError):
    """The request is not a recent notification that was signed by one of the secrets."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """A verified notification."""

    delivery_id: str
    """The same on every attempt: if it was seen before, answer 2xx and do nothing."""
    subscription_id: str
    kind: Literal["CREATE", "TOMBSTONE", "DELETE"]
    """A new bundle, a deleted one, or a purged one."""
    bundle_uuid: str
    bundle_version: str
    is_test: bool
    """Requested by the owner of the subscription; without a match, the bundle does not exist."""
    attempt: int
    """Number of the attempt from 1; not covered by the signatures."""
    timestamp: str
    """When the event happened, as a version."""
    bundle_url: str | None
    attachments: Mapping[str, Any]
    payload: Mapping[str, Any]
    """All of the notification."""

    @property
    def bundle_fqid(self) -> str:
        """The bundle as `UUID.VERSION`."""
        return f"{self.bundle_uuid}.{self.bundle_version}"


def verify(
    request: Any,
    secrets: Secrets,
    *,
    body: bytes | None = None,
    method: str | None = None,
    target: str | None = None,
    scheme: Scheme | None = None,
    payload_form_field: str = "payload",
    tolerance_s: float = TOLERANCE_S,
    clock: Callable[[], float] = time.time,
) -> WebhookEvent:
    """Verify a notification and return its event; InvalidSignature.

    `request` is a request of a web framework, or headers: a mapping, or pairs of name and value.
    `body` is needed where the framework reads it asynchronously. `method` and `target` (the path
    with its query, as it was sent) are needed for HTTP signatures of plain headers.

    `webhook-signature` is verified if the request has it, else `Authorization`; `scheme` insists
    on one of them. A key id `store:<uuid>` in `secrets` is valid for that subscription only.
    """
    keys = _list_keys(secrets)
    if not tolerance_s > 0:
        raise Misused(f"tolerance_s: must be more than 0 (got {tolerance_s})")
    if scheme not in (None, "standard", "http"):
        raise Misused(f"scheme: must be standard or http (got {scheme!r})")
    received = _read_request(request, body, method, target)
    chosen = scheme or ("standard" if "webhook-signature" in received.headers else "http")
    key = (_verify_standard if chosen == "standard" else _verify_http)(
        received, keys, clock(), tolerance_s
    )
    event = _parse_event(received, payload_form_field)
    if chosen == "standard" and received.headers["webhook-id"] != event.delivery_id:
        raise InvalidSignature("webhook-id: is not the transaction_id of the body")
    if key.id.startswith(STORE_KEY_PREFIX) and key.id != STORE_KEY_PREFIX + event.subscription_id:
        raise InvalidSignature("the secret is that of another subscription")
    return event


def sign(
    secret: Secret,
    body: bytes,
    *,
    delivery_id: str,
    host: str,
    target: str,
    method: str = "POST",
    key_id: str = "store:test",
    now_s: float | None = None,
) -> dict[str, str]:
    """Return the headers by which the store would sign a notification, to test a receiver.

    `host` is the value of the Host header, `target` the path with its query.
    """
    seconds = int(time.time() if now_s is None else now_s)
    key = _Key(key_id, _encode_secret(secret))
    signed = {"host": host, "date": formatdate(seconds, usegmt=True), "digest": _digest(body)}
    parameters = {
        "keyId": key_id,
        "algorithm": "hmac-sha256",
        "headers": SIGNED_HEADERS,
        "signature": key.sign(_http_text(method, target, signed)),
    }
    listed = ",".join(f'{name}="{value}"' for name, value in parameters.items())
    return {
        "Host": host,
        "Date": signed["date"],
        "Digest": signed["digest"],
        "Authorization": f"Signature {listed}",
        "webhook-id": delivery_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{key.sign(_standard_text(delivery_id, str(seconds), body))}",
    }


@dataclass(frozen=True, slots=True)
class _Key:
    id: str
    secret: bytes = field(repr=False)

    def sign(self, text: bytes) -> str:
        return base64.b64encode(hmac.digest(self.secret, text, "sha256")).decode()


def _list_keys(secrets: Secrets) -> list[_Key]:
    """List the keys with their ids, which are empty unless there is a mapping; Misused."""
    by_id = secrets if isinstance(secrets, Mapping) else {"": secrets}
    keys = [
        _Key(key_id, _encode_secret(secret))
        for key_id, some in by_id.items()
        for secret in ([some] if isinstance(some, str | bytes) else _check_list(some))
    ]
    if not keys:
        raise Misused("secrets: there is none", hint="pass the subscription's hmac_secret_key")
    return keys


def _check_list(secrets: Any) -> Iterable[Any]:
    if isinstance(secrets, Iterable):
        return secrets
    raise Misused(f"secrets: must be text (got {type(secrets).__name__})")


def _encode_secret(secret: Secret) -> bytes:
    if not isinstance(secret, str | bytes):
        raise Misused(f"secrets: must be text (got {type(secret).__name__})")
    try:
        key = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        raise Misused("secrets: must be valid text") from None  # the error has the secret
    if not key:
        raise Misused("secrets: must not be empty", hint="anyone can sign with an empty secret")
    return key


def _verify_standard(
    received: "_ReceivedRequest", keys: Sequence[_Key], now_s: float, tolerance_s: float
) -> _Key:
    """Return the key that signed by Standard Webhooks; InvalidSignature."""
    ident, sent = received.header("webhook-id"), received.header("webhook-timestamp")
    given = received.header("webhook-signature").split(" ")
    if not re.fullmatch("[0-9]{1,12}", sent):
        raise InvalidSignature("webhook-timestamp: must be a number of seconds")
    _check_age("webhook-timestamp", int(sent), now_s, tolerance_s)
    text = _standard_text(ident, sent, received.body)
    for key in keys:
        expected = f"v1,{key.sign(text)}"
        # Several while a secret is replaced.
        if any(_is_equal(expected, one) for one in given):
            return key
    raise InvalidSignature(
        "webhook-signature: is not by this secret, or the request was changed on its way"
    )


def _verify_http(
    received: "_ReceivedRequest", keys: Sequence[_Key], now_s: float, tolerance_s: float
) -> _Key:
    """Return the key that signed by draft-cavage-http-signatures; InvalidSignature."""
    if "authorization" not in received.headers:
        raise InvalidSignature(
            "the request is not signed: it has neither webhook-signature nor Authorization",
            hint="the subscription may have no hmac_secret_key, or a proxy removes headers",
        )
    given = _parse_authorization(received.headers["authorization"])
    if received.method is None or received.target is None:
        raise InvalidSignature(
            "Authorization: cannot be verified without the method and target of the request",
            hint="pass method=... and target=..., or accept webhook-signature only",
        )
    signed = {name: received.header(name) for name in ("host", "date", "digest")}
    _check_age("date", _parse_date(signed["date"]), now_s, tolerance_s)
    if not _is_equal(_digest(received.body), signed["digest"]):
        raise InvalidSignature("digest: is that of another body")
    text = _http_text(received.method, received.target, signed)
    by_id = [key for key in keys if key.id in ("", given.get("keyId"))]
    if not by_id:
        raise InvalidSignature(f"Authorization: no secret for keyId {given.get('keyId', '')!r}")
    for key in by_id:
        if _is_equal(key.sign(text), given.get("signature", "")):
            return key
    raise InvalidSignature(
        "Authorization: the signature is not by this secret, or the request was changed on its way",
        hint="a proxy that rewrites the path or host changes it, too: pass target=...",
    )


def _parse_authorization(value: str) -> dict[str, str]:
    """Parse `Signature name="value",…`; InvalidSignature unless it covers all that it must."""
    scheme, _, rest = value.strip().partition(" ")
    one = r'[A-Za-z]{1,20}="[^"]*"'
    if scheme.lower() != "signature" or not re.fullmatch(f"{one}(?:, ?{one})*", rest.strip()):
        raise InvalidSignature("Authorization: must be of the scheme Signature")
    pairs = re.findall(r'([A-Za-z]{1,20})="([^"]*)"', rest)
    if len(dict(pairs)) < len(pairs):
        raise InvalidSignature("Authorization: a parameter is repeated")
    given = dict(pairs)
    for name, wanted in (("algorithm", "hmac-sha256"), ("headers", SIGNED_HEADERS)):
        if given.get(name) != wanted:
            raise InvalidSignature(f"Authorization: {name} must be {wanted!r}")
    return given


def _parse_date(value: str) -> float:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise InvalidSignature("date: is not a date of HTTP") from error


def _check_age(name: str, sent_s: float, now_s: float, tolerance_s: float) -> None:
    if not abs(now_s - sent_s) <= tolerance_s:
        age = f"{abs(now_s - sent_s):.0f} s {'in the future' if sent_s > now_s else 'ago'}"
        raise InvalidSignature(
            f"{name}: was {age}; at most {tolerance_s:g} s are accepted",
            hint="it may be replayed, or the clock of this machine is wrong",
        )


def _standard_text(ident: str, sent: str, body: bytes) -> bytes:
    return _encode(f"{ident}.{sent}.") + body


def _http_text(method: str, target: str, signed: Mapping[str, str]) -> bytes:
    listed = [f"{name}: {value}" for name, value in signed.items()]
    return _encode("\n".join([f"(request-target): {method.lower()} {target}", *listed]))


def _digest(body: bytes) -> str:
    return "SHA-256=" + base64.b64encode(hashlib.sha256(body).digest()).decode()


def _is_equal(expected: str, given: str) -> bool:
    """Compare in constant time; texts of a request may not be ASCII."""
    return hmac.compare_digest(expected.encode(), _encode(given))


def _encode(text: str) -> bytes:
    """Encode text of a request, which frameworks decode in different ways."""
    return text.encode("utf-8", "surrogatepass")


def _parse_event(received: "_ReceivedRequest", payload_form_field: str) -> WebhookEvent:
    """Parse a body whose signature is valid."""
    attempt = received.headers.get(ATTEMPT_HEADER, "")
    try:
        payload = json.loads(
            _find_payload(received.body, payload_form_field), parse_constant=_refuse_constant
        )
        match, kind = payload["match"], payload.get("event_type", "CREATE")
        if kind not in ("CREATE", "TOMBSTONE", "DELETE"):
            raise ValueError(f"event_type: {kind!r} is unknown")
        return WebhookEvent(
            delivery_id=_text(payload, "transaction_id"),
            subscription_id=_text(payload, "subscription_id"),
            kind=kind,
            bundle_uuid=_text(match, "bundle_uuid"),
            bundle_version=_text(match, "bundle_version"),
            is_test=payload.get("test") is True,
            attempt=int(attempt) if re.fullmatch("[0-9]{1,6}", attempt) else 1,
            timestamp=_text(payload, "event_timestamp"),
            bundle_url=_text(payload, "bundle_url") if "bundle_url" in payload else None,
            attachments=dict(payload.get("attachments") or {}),
            payload=payload,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidSignature(f"the body is not a notification of a store: {error}") from error


def _find_payload(body: bytes, field_name: str) -> bytes:
    """Return the JSON of a body, which may be a form.

    The boundary is taken from the body, for Content-Type is not signed.
    """
    if not body.startswith(b"--"):
        return body
    boundary, quoted = body.partition(b"\r\n")[0], field_name.replace('"', "%22")
    for part in body.split(boundary):
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if head == f'Content-Disposition: form-data; name="{quoted}"'.encode():
            return value.removesuffix(b"\r\n")
    raise ValueError(f"the form has no field {field_name!r}")


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values[name]
    if not isinstance(value, str):
        raise TypeError(f"{name}: must be text")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class _ReceivedRequest:
    headers: Mapping[str, str]
    """By lower-case names."""
    body: bytes
    method: str | None
    target: str | None

    def header(self, name: str) -> str:
        """Return a header that the signature needs; InvalidSignature."""
        value = self.headers.get(name)
        if not value:
            raise InvalidSignature(f"{name}: the header is missing")
        return value


def _read_request(
    request: Any, body: bytes | None, method: str | None, target: str | None
) -> _ReceivedRequest:
    headers = _parse_headers(getattr(request, "headers", request))
    content = _read_body(request, headers) if body is None else body
    if not isinstance(content, bytes):
        raise Misused(f"body: must be bytes as they came (got {type(content).__name__})")
    said = getattr(request, "method", None) or getattr(request, "command", None)
    return _ReceivedRequest(
        headers, content, method or said, _find_target(request) if target is None else target
    )


_SINGLE = frozenset(
    {"authorization", "date", "digest", "host"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature"}
)
"""Headers that a request may have once: proxies disagree on which one of several counts."""


def _parse_headers(headers: Any) -> dict[str, str]:
    """Return headers by lower-case names; InvalidSignature if one that matters is repeated."""
    pairs = headers.items() if hasattr(headers, "items") else headers
    parsed: dict[str, str] = {}
    try:
        for name, value in pairs:
            key, text = _decode(name).lower(), _decode(value).strip(" \t")
            if key in parsed and key in _SINGLE:
                raise InvalidSignature(f"{key}: the header is repeated")
            parsed[key] = text
    except (TypeError, ValueError) as error:
        raise Misused(
            f"request: must be a request with headers, or headers (got {type(headers).__name__})"
        ) from error
    return parsed


def _decode(text: str | bytes) -> str:
    if not isinstance(text, str | bytes):
        raise TypeError("must be text")
    return text.decode("latin-1") if isinstance(text, bytes) else text


def _read_body(request: Any, headers: Mapping[str, str]) -> Any:
    """Return the body of a request that has it, or that can be read at once; Misused."""
    if callable(get_data := getattr(request, "get_data", None)):  # Flask
        return get_data()
    if isinstance(getattr(request, "body", None), bytes):  # Django
        return request.body
    if hasattr(request, "rfile"):  # http.server
        length = headers.get("content-length", "")
        if not re.fullmatch("[0-9]{1,12}", length) or int(length) > MAX_BODY_BYTES:
            raise InvalidSignature(f"content-length: must be at most {MAX_BODY_BYTES} bytes")
        return request.rfile.read(int(length))
    raise Misused(
        "body: the bytes of the body are needed", hint="for example body=await request.body()"
    )


def _find_target(request: Any) -> str | None:
    """Return the path and query of a request as they were sent, as far as it tells them."""
    environ, scope = getattr(request, "environ", None), getattr(request, "scope", None)
    if isinstance(environ, Mapping):
        return _wsgi_target(request, environ)
    if isinstance(scope, Mapping):
        raw, query = scope.get("raw_path"), scope.get("query_string")
        path = _decode(raw) if raw else quote(scope.get("path", ""))
        return f"{path}?{_decode(query)}" if query else path
    for name in ("raw_path", "path"):  # aiohttp, http.server
        if isinstance(found := getattr(request, name, None), str):
            return found
    return None


def _wsgi_target(request: Any, environ: Mapping[str, Any]) -> str:
    for name in ("RAW_URI", "REQUEST_URI"):
        if environ.get(name):
            return str(environ[name])
    if callable(full_path := getattr(request, "get_full_path", None)):
        return str(full_path())  # Django, which decodes the path of the environment
    path = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}"
    query = environ.get("QUERY_STRING", "")
    return quote(path.encode("latin-1", "replace")) + (f"?{query}" if query else "")
