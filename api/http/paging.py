"""Cursors of paged listings, signed with HMAC, and paging headers.

A page token is opaque to clients: base64url of `<format byte><16 bytes of HMAC-SHA256><JSON array
of strings>`. The HMAC also covers the scope (operation, replica, filter), which is not in the
token, so that a token of another listing is as invalid as a forged one. Its key survives restarts.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import orjson
from flask import Request, Response

from auth.secret_values import decode_base64url, encode_base64url
from storage.errors import Invalid

CURSOR_FORMAT = b"\x01"
MAC_BYTES = 16
MAX_CURSOR_CHARS = 4096


@dataclass(frozen=True)
class Cursors:
    """Makes the page tokens of this deployment, and verifies them with former keys, too."""

    key: bytes
    former: tuple[bytes, ...] = ()

    def seal(self, scope: Sequence[str], position: Sequence[str]) -> str:
        """Return the page token of a position in the listing that `scope` describes."""
        payload = orjson.dumps(list(position))
        sealed = CURSOR_FORMAT + _compute_mac(self.key, scope, payload) + payload
        return encode_base64url(sealed)

    def open(
        self, scope: Sequence[str], token: str, *, parameter: str = "search_after"
    ) -> list[str]:
        """Return the position; Invalid (`illegal_token`) for a token of another listing."""
        sealed = _decode_cursor(token, parameter)
        head, payload = sealed[: 1 + MAC_BYTES], sealed[1 + MAC_BYTES :]
        macs = (_compute_mac(key, scope, payload) for key in (self.key, *self.former))
        if not any(hmac.compare_digest(head, CURSOR_FORMAT + mac) for mac in macs):
            raise _illegal_cursor(parameter)
        position: list[str] = orjson.loads(payload)
        return position


def _compute_mac(key: bytes, scope: Sequence[str], payload: bytes) -> bytes:
    text = orjson.dumps(list(scope)) + b"\n" + payload
    return hmac.new(key, CURSOR_FORMAT + text, hashlib.sha256).digest()[:MAC_BYTES]


def _decode_cursor(token: str, parameter: str) -> bytes:
    if not 0 < len(token) <= MAX_CURSOR_CHARS or not token.isascii():
        raise _illegal_cursor(parameter)
    try:
        return decode_base64url(token)
    except ValueError as error:
        raise _illegal_cursor(parameter) from error


def _illegal_cursor(parameter: str) -> Invalid:
    message = "Not a page token of this listing: use the URL of a Link header"
    return Invalid(message, code="illegal_token", errors={parameter: [message]})


def next_page_url(request: Request, base: str, changes: Mapping[str, str]) -> str:
    """Return the request's URL with these query parameters added or replaced."""
    others = {key: value for key, value in request.args.items() if key not in changes}
    return f"{base}{request.path}?{urlencode({**others, **changes})}"


def add_paging_headers(response: Response, content_key: str, next_page: str | None) -> Response:
    """Add the paging headers: status 206 and a Link to the next page if there is one."""
    response.headers["X-OpenAPI-Pagination"] = "true" if next_page else "false"
    response.headers["X-OpenAPI-Paginated-Content-Key"] = content_key
    if next_page:
        response.status_code = 206
        response.headers["Link"] = f'<{next_page}>; rel="next"'
    return response
