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
from collections.abc import Callable, Mapping, Sequence
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
    former: tuple[bytes, ...] = ()
    """Other secrets whose signatures are valid."""

    def sign(
        self,
        key: str,
        *,
        expires_s: int,
        content_type: str | None = None,
        disposition: str | None = None,
    ) -> str:
        """Return a path for GET, relative to the API's external URL, valid for `expires_s`."""
        check_response_headers(content_type, disposition)
        query = {"type": content_type or "", "disposition": disposition or ""}
        return self._sign_url(key, {"expires": self._expiry(expires_s), **query}, _DOWNLOAD_PURPOSE)

    def verify(self, key: str, parameters: Mapping[str, str]) -> DownloadGrant:
        """Return the grant of decoded query parameters; Forbidden if they are forged or expired."""
        names = ("expires", "type", "disposition")
        query = self._verify_query(key, parameters, names, _DOWNLOAD_PURPOSE)
        return DownloadGrant(key, query["type"] or None, query["disposition"] or None)

    def sign_upload(self, key: str, *, expires_s: int, max_bytes: int) -> str:
        """Return a path for PUT, relative to the API's external URL."""
        query = {"method": "PUT", "expires": self._expiry(expires_s), "size": str(max_bytes)}
        return self._sign_url(key, query, _UPLOAD_PURPOSE)

    def verify_upload(self, key: str, parameters: Mapping[str, str]) -> UploadGrant:
        """Return the upload grant of decoded query parameters; Forbidden if forged or expired."""
        names = ("method", "expires", "size")
        query = self._verify_query(key, parameters, names, _UPLOAD_PURPOSE)
        if query["method"] != "PUT" or not _SIZE.fullmatch(query["size"]):
            raise Forbidden("the URL's signature is invalid")
        return UploadGrant(key, int(query["size"]))

    def _expiry(self, expires_s: int) -> str:
        return str(int(self.now()) + expires_s)

    def _sign_url(self, key: str, query: Mapping[str, str], purpose: bytes) -> str:
        text = self._encode_url(key, query)
        return f"{text}&signature={_compute_signature(self.secret, text, purpose)}"

    def _verify_query(
        self, key: str, parameters: Mapping[str, str], names: Sequence[str], purpose: bytes
    ) -> Mapping[str, str]:
        """Return the named parameters, with empty texts for absent ones."""
        query = {name: parameters.get(name, "") for name in names}
        text, given = self._encode_url(key, query), parameters.get("signature", "").encode()
        signatures = (
            _compute_signature(secret, text, purpose) for secret in (self.secret, *self.former)
        )
        if not any(hmac.compare_digest(given, each.encode()) for each in signatures):
            raise Forbidden("the URL's signature is invalid")
        if not _EXPIRES.fullmatch(query["expires"]) or int(query["expires"]) <= self.now():
            raise Forbidden("the URL has expired")
        return query

    def _encode_url(self, key: str, query: Mapping[str, str]) -> str:
        path = f"/v1/objects/{quote(self.bucket, safe='')}/{quote(key, safe='/')}"
        pairs = (f"{name}={quote(value, safe='')}" for name, value in query.items() if value)
        return f"{path}?{'&'.join(pairs)}"


def _compute_signature(secret: bytes, text: str, purpose: bytes) -> str:
    return hmac.new(secret, purpose + text.encode(), hashlib.sha256).hexdigest()
