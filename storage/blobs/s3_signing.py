"""Signed URLs of S3 (Signature Version 4 in the query), made without asking anybody.

The client's own signer takes the time from the clock and three times as long; a checkout signs a
URL for each of its files.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from storage.errors import Invalid

LONGEST_S: Final = 7 * 24 * 3600
"""S3 takes no URL that is good for longer."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who signs."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket's URL, and the region that its server signs for."""

    base: str
    region: str


def signed_get(
    place: Place,
    key: str,
    credentials: Credentials,
    *,
    now: float,
    expires_s: int,
    answered: Mapping[str, str | None],
) -> str:
    """A URL for a GET of a key, good until `now + expires_s`, with the response headers `answered`.

    What has expired already was signed in the past: servers call a life of less than a second
    malformed, not expired.
    """
    if any(_CONTROL.search(value or "") for value in answered.values()):
        raise Invalid("response headers hold no control characters")
    wanted = {f"response-{name}": value for name, value in answered.items() if value}
    asked = Asked("GET", key, wanted)
    return _signed(place, asked, credentials, now=now, expires_s=expires_s)


def signed_put(
    place: Place, key: str, credentials: Credentials, *, now: float, expires_s: int
) -> str:
    """A URL for a PUT of a key. Servers that do as Amazon's refuse every header of S3's own that
    comes with it, such as one to copy from elsewhere: none is signed."""
    return _signed(place, Asked("PUT", key), credentials, now=now, expires_s=expires_s)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to be signed, and what its query has besides."""

    method: str
    key: str
    wanted: Mapping[str, str] = field(default_factory=dict)


def _signed(
    place: Place, asked: Asked, credentials: Credentials, *, now: float, expires_s: int
) -> str:
    at = datetime.fromtimestamp(now + min(expires_s - 1, 0), UTC)
    scope = f"{at:%Y%m%d}/{place.region}/s3/aws4_request"
    query = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": f"{at:%Y%m%dT%H%M%SZ}",
        "X-Amz-Expires": str(min(max(expires_s, 1), LONGEST_S)),
        "X-Amz-SignedHeaders": "host",
        **({"X-Amz-Security-Token": credentials.token} if credentials.token else {}),
        **asked.wanted,
    }
    url = f"{place.base}/{_quoted(asked.key, safe='/~')}"
    spelled = "&".join(f"{name}={_quoted(value)}" for name, value in sorted(query.items()))
    request = _canonical(asked.method, url, spelled)
    signature = _signature(request, scope, at, credentials.secret_key)
    return f"{url}?{spelled}&X-Amz-Signature={signature}"


def _quoted(text: str, safe: str = "~") -> str:
    return quote(text, safe=safe)


def _canonical(method: str, url: str, query: str) -> str:
    parts = urlsplit(url)
    return f"{method}\n{parts.path}\n{query}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"


def _signature(request: str, scope: str, at: datetime, secret: str) -> str:
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{at:%Y%m%dT%H%M%SZ}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    return _hmac(key, text).hex()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
