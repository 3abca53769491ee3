"""Signed URLs of GCS (V4 in the query): for anybody, for a while, for one object.

The client's own signer takes the time from the clock and calls what has expired an error.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from storage.blobs.gcs_client import Sign
from storage.errors import Invalid

LONGEST_S: Final = 7 * 24 * 3600
"""GCS takes no URL that is good for longer."""
_ALGORITHM: Final = "GOOG4-RSA-SHA256"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def signed_get(
    base: str,
    key: str,
    signer: tuple[str, Sign],
    *,
    now: float,
    expires_s: int,
    answered: Mapping[str, str | None],
) -> str:
    """A URL for a GET of a key below a bucket's `base`, good until `now + expires_s`, with the
    response headers `answered`. What has expired already was signed in the past."""
    if any(_CONTROL.search(value or "") for value in answered.values()):
        raise Invalid("response headers hold no control characters")
    wanted = {f"response-{name}": value for name, value in answered.items() if value}
    asked = Asked("GET", key, wanted)
    return _signed(base, asked, signer, now=now, expires_s=expires_s)


def signed_put(
    base: str,
    key: str,
    signer: tuple[str, Sign],
    *,
    now: float,
    expires_s: int,
    headers: Mapping[str, str],
) -> str:
    """A URL for a PUT of a key with these headers, spelled in small letters. Every other header of
    GCS's own is refused."""
    return _signed(base, Asked("PUT", key, {}, headers), signer, now=now, expires_s=expires_s)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to be signed; what its query has besides, and its headers but the host."""

    method: str
    key: str
    wanted: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)


def _signed(
    base: str, asked: Asked, signer: tuple[str, Sign], *, now: float, expires_s: int
) -> str:
    email, sign = signer
    at = datetime.fromtimestamp(now + min(expires_s - 1, 0), UTC)
    scope = f"{at:%Y%m%d}/auto/storage/goog4_request"
    url = f"{base}/{quote(asked.key, safe='/~')}"
    headers = dict(sorted({"host": urlsplit(url).netloc, **asked.headers}.items()))
    query = {
        "X-Goog-Algorithm": _ALGORITHM,
        "X-Goog-Credential": f"{email}/{scope}",
        "X-Goog-Date": f"{at:%Y%m%dT%H%M%SZ}",
        "X-Goog-Expires": str(min(max(expires_s, 1), LONGEST_S)),
        "X-Goog-SignedHeaders": ";".join(headers),
        **asked.wanted,
    }
    spelled = "&".join(f"{name}={quote(value, safe='~')}" for name, value in sorted(query.items()))
    digest = hashlib.sha256(_canonical(asked.method, url, spelled, headers).encode()).hexdigest()
    text = f"{_ALGORITHM}\n{at:%Y%m%dT%H%M%SZ}\n{scope}\n{digest}"
    return f"{url}?{spelled}&X-Goog-Signature={sign(text.encode()).hex()}"


def _canonical(method: str, url: str, query: str, headers: Mapping[str, str]) -> str:
    told = "".join(f"{name}:{value}\n" for name, value in headers.items())
    names = ";".join(headers)
    return f"{method}\n{urlsplit(url).path}\n{query}\n{told}\n{names}\nUNSIGNED-PAYLOAD"
