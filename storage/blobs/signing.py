"""Signed URLs of folder buckets, which the API serves.

`/v1/objects/<bucket>/<key>?expires=&type=&disposition=&signature=` may be read from,
`/v1/objects/<bucket>/<key>?method=PUT&expires=&size=&signature=` be put to. The signature is
HMAC-SHA256 over which of both it is and all that stands before it, spelled in exactly this
percent-encoding: neither is ever taken for the other.
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
_UPLOAD = b"object upload url, format 1\n"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
_BYTES = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a valid signed URL allows: a GET of this key, answered with these headers."""

    key: str
    content_type: str | None
    disposition: str | None


@dataclass(frozen=True, slots=True)
class UploadGrant:
    """What a valid signed upload URL allows: PUTs of this key, each of at most so many bytes."""

    key: str
    max_bytes: int


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
        self._expect(self._text(key, expires, content_type, disposition), signature, _PURPOSE)
        self._expect_time(expires)
        return Grant(key, content_type or None, disposition or None)

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> str:
        """A path to put an object to, relative to the API's external URL."""
        text = self._upload_text(key, str(int(self.now()) + expires_s), str(max_bytes))
        return f"{text}&signature={self._signature(text, _UPLOAD)}"

    def verify_upload(self, key: str, parameters: Mapping[str, str]) -> UploadGrant:
        """What the decoded query parameters allow to be put to this key; Forbidden."""
        method, expires, size, signature = (
            parameters.get(name, "") for name in ("method", "expires", "size", "signature")
        )
        self._expect(self._upload_text(key, expires, size), signature, _UPLOAD)
        if method != "PUT" or not _BYTES.fullmatch(size):
            raise Forbidden("the URL's signature does not fit")
        self._expect_time(expires)
        return UploadGrant(key, int(size))

    def _expect(self, text: str, signature: str, purpose: bytes) -> None:
        if not hmac.compare_digest(signature.encode(), self._signature(text, purpose).encode()):
            raise Forbidden("the URL's signature does not fit")

    def _expect_time(self, expires: str) -> None:
        if not _SECONDS.fullmatch(expires) or int(expires) <= self.now():
            raise Forbidden("the URL has expired")

    def _text(self, key: str, expires: str, content_type: str, disposition: str) -> str:
        query = {"expires": expires, "type": content_type, "disposition": disposition}
        return self._spelled(key, query)

    def _upload_text(self, key: str, expires: str, size: str) -> str:
        return self._spelled(key, {"method": "PUT", "expires": expires, "size": size})

    def _spelled(self, key: str, query: Mapping[str, str]) -> str:
        path = f"/v1/objects/{quote(self.bucket, safe='')}/{quote(key, safe='/')}"
        spelled = (f"{name}={quote(value, safe='')}" for name, value in query.items() if value)
        return f"{path}?{'&'.join(spelled)}"

    def _signature(self, text: str, purpose: bytes = _PURPOSE) -> str:
        return hmac.new(self.secret, purpose + text.encode(), hashlib.sha256).hexdigest()
