"""Signed URLs of GCS (V4 in the query): for anybody, for a while, for one object.

The client's own signer takes the time from the clock and calls what has expired an error.
"""

import hashlib
import re
from collections.abc import Mapping
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
    email, sign = signer
    at = datetime.fromtimestamp(now + min(expires_s - 1, 0), UTC)
    scope = f"{at:%Y%m%d}/auto/storage/goog4_request"
    query = {
        "X-Goog-Algorithm": _ALGORITHM,
        "X-Goog-Credential": f"{email}/{scope}",
        "X-Goog-Date": f"{at:%Y%m%dT%H%M%SZ}",
        "X-Goog-Expires": str(min(max(expires_s, 1), LONGEST_S)),
        "X-Goog-SignedHeaders": "host",
        **{f"response-{name}": value for name, value in answered.items() if value},
    }
    url = f"{base}/{quote(key, safe='/~')}"
    spelled = "&".join(f"{name}={quote(value, safe='~')}" for name, value in sorted(query.items()))
    parts = urlsplit(url)
    asked = f"GET\n{parts.path}\n{spelled}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{at:%Y%m%dT%H%M%SZ}\n{scope}\n{digest}"
    return f"{url}?{spelled}&X-Goog-Signature={sign(text.encode()).hex()}"
