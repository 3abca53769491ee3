"""Signed URLs of folder buckets, which the API serves.

`/v1/objects/<bucket>/<key>?expires=&type=&disposition=&signature=`: the signature is HMAC-SHA256
over all that stands before it, spelled in exactly this percent-encoding.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from storage.errors import Forbidden, Invalid

_PURPOSE = b"object url, format 1\n"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a valid signed URL allows: a GET of this key, answered with these headers."""

    key: str
    content_type: str | None
    disposition: str | None


@dataclass(frozen=True, slots=True)
class UrlSigner:
    """Signs and verifies the URLs of one bucket, which the API knows by this name."""

    secret: bytes
    bucket: str
    now: Callable[[], float] = time.time

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """A path relative to the API's external URL, good for so many seconds."""
        if _CONTROL.search(f"{content_type or ''}{disposition or ''}"):
            raise Invalid("response headers hold no control characters")
        expires = str(int(self.now()) + expires_s)
        text = self._text(key, expires, content_type or "", disposition or "")
        return f"{text}&signature={self._signature(text)}"

    def verify(self, key: str, parameters: Mapping[str, str]) -> Grant:
        """What the decoded query parameters allow on this key; Forbidden if forged or expired."""
        names = ("expires", "type", "disposition", "signature")
        expires, content_type, disposition, signature = (parameters.get(n, "") for n in names)
        expected = self._signature(self._text(key, expires, content_type, disposition))
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            raise Forbidden("the URL's signature does not fit")
        if not _SECONDS.fullmatch(expires) or int(expires) <= self.now():
            raise Forbidden("the URL has expired")
        return Grant(key, content_type or None, disposition or None)

    def _text(self, key: str, expires: str, content_type: str, disposition: str) -> str:
        path = f"/v1/objects/{quote(self.bucket, safe='')}/{quote(key, safe='/')}"
        query = {"expires": expires, "type": content_type, "disposition": disposition}
        spelled = (f"{name}={quote(value, safe='')}" for name, value in query.items() if value)
        return f"{path}?{'&'.join(spelled)}"

    def _signature(self, text: str) -> str:
        return hmac.new(self.secret, _PURPOSE + text.encode(), hashlib.sha256).hexdigest()
