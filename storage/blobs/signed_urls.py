"""Sign and verify URLs of folder buckets, which the API serves.

Download: `/v1/objects/<bucket>/<key>?expires=&type=&disposition=&signature=`.
Upload: `/v1/objects/<bucket>/<key>?method=PUT&expires=&size=&signature=`.
The signature is HMAC-SHA256 over the purpose and the percent-encoded URL before it, so a download
URL is never valid for an upload, nor the reverse.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from storage.errors import Forbidden
from storage.keys import check_response_headers

_DOWNLOAD_PURPOSE = b"object url, format 1\n"
_UPLOAD_PURPOSE = b"object upload url, format 1\n"
_EXPIRES = re.compile(r"[0-9]{1,12}", re.ASCII)
_SIZE = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class DownloadGrant:
    """A valid signed URL: it allows a GET of this key with these response headers."""

    key: str
    content_type: str | None
    disposition: str | None


@dataclass(frozen=True, slots=True)
class UploadGrant:
    """A valid signed upload URL: it allows PUTs of this key, each of at most `max_bytes`."""

    key: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class UrlSigner:
    """Signs and verifies the URLs of one bucket; `bucket` is its name in the API."""

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
        """Return a path relative to the API's external URL, valid for `expires_s` seconds."""
        check_response_headers(content_type, disposition)
        expires = str(int(self.now()) + expires_s)
        text = self._download_text(key, expires, content_type or "", disposition or "")
        return f"{text}&signature={self._signature(text)}"

    def verify(self, key: str, parameters: Mapping[str, str]) -> DownloadGrant:
        """Return the grant of decoded query parameters; Forbidden if they are forged or expired."""
        names = ("expires", "type", "disposition", "signature")
        expires, content_type, disposition, signature = (parameters.get(n, "") for n in names)
        self._check_signature(
            self._download_text(key, expires, content_type, disposition),
            signature,
            _DOWNLOAD_PURPOSE,
        )
        self._check_expiry(expires)
        return DownloadGrant(key, content_type or None, disposition or None)

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> str:
        """Return a path for PUT, relative to the API's external URL."""
        text = self._upload_text(key, str(int(self.now()) + expires_s), str(max_bytes))
        return f"{text}&signature={self._signature(text, _UPLOAD_PURPOSE)}"

    def verify_upload(self, key: str, parameters: Mapping[str, str]) -> UploadGrant:
        """Return the upload grant of decoded query parameters; Forbidden if forged or expired."""
        method, expires, size, signature = (
            parameters.get(name, "") for name in ("method", "expires", "size", "signature")
        )
        self._check_signature(self._upload_text(key, expires, size), signature, _UPLOAD_PURPOSE)
        if method != "PUT" or not _SIZE.fullmatch(size):
            raise Forbidden("the URL's signature is invalid")
        self._check_expiry(expires)
        return UploadGrant(key, int(size))

    def _check_signature(self, text: str, signature: str, purpose: bytes) -> None:
        if not hmac.compare_digest(signature.encode(), self._signature(text, purpose).encode()):
            raise Forbidden("the URL's signature is invalid")

    def _check_expiry(self, expires: str) -> None:
        if not _EXPIRES.fullmatch(expires) or int(expires) <= self.now():
            raise Forbidden("the URL has expired")

    def _download_text(self, key: str, expires: str, content_type: str, disposition: str) -> str:
        query = {"expires": expires, "type": content_type, "disposition": disposition}
        return self._encode_url(key, query)

    def _upload_text(self, key: str, expires: str, size: str) -> str:
        return self._encode_url(key, {"method": "PUT", "expires": expires, "size": size})

    def _encode_url(self, key: str, query: Mapping[str, str]) -> str:
        path = f"/v1/objects/{quote(self.bucket, safe='')}/{quote(key, safe='/')}"
        pairs = (f"{name}={quote(value, safe='')}" for name, value in query.items() if value)
        return f"{path}?{'&'.join(pairs)}"

    def _signature(self, text: str, purpose: bytes = _DOWNLOAD_PURPOSE) -> str:
        return hmac.new(self.secret, purpose + text.encode(), hashlib.sha256).hexdigest()
