"""Pages: where a walk goes on, and the headers that say so.

A pointer is opaque to clients: base64url of `<format byte><16 bytes of HMAC-SHA256><JSON array of
strings>`. The HMAC covers the scope too (operation, replica, filter), which is not in the pointer,
so that a pointer of another listing is as illegal as a forged one. Its key survives restarts.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import orjson
from flask import Request, Response

from storage.errors import Invalid

FORMAT = b"\x01"
MAC_BYTES = 16
MAX_POINTER = 4096


@dataclass(frozen=True)
class Cursors:
    """Makes and reads the pointers of this deployment."""

    key: bytes

    def seal(self, scope: Sequence[str], position: Sequence[str]) -> str:
        """The pointer to a position in the listing that `scope` describes."""
        payload = orjson.dumps(list(position))
        sealed = FORMAT + self._mac(scope, payload) + payload
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(
        self, scope: Sequence[str], pointer: str, *, parameter: str = "search_after"
    ) -> list[str]:
        """The position, or Invalid (`illegal_token`) when it is not a pointer into this listing."""
        sealed = _decoded(pointer, parameter)
        head, payload = sealed[: 1 + MAC_BYTES], sealed[1 + MAC_BYTES :]
        if not hmac.compare_digest(head, FORMAT + self._mac(scope, payload)):
            raise _illegal(parameter)
        position: list[str] = orjson.loads(payload)
        return position

    def _mac(self, scope: Sequence[str], payload: bytes) -> bytes:
        text = orjson.dumps(list(scope)) + b"\n" + payload
        return hmac.new(self.key, FORMAT + text, hashlib.sha256).digest()[:MAC_BYTES]


def _decoded(pointer: str, parameter: str) -> bytes:
    if not 0 < len(pointer) <= MAX_POINTER or not pointer.isascii():
        raise _illegal(parameter)
    try:
        padded = pointer + "=" * (-len(pointer) % 4)
        sealed = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _illegal(parameter) from error
    # Of all spellings of the same bytes only ours is a pointer.
    if base64.urlsafe_b64encode(sealed).decode().rstrip("=") != pointer:
        raise _illegal(parameter)
    return sealed


def _illegal(parameter: str) -> Invalid:
    said = "This is no pointer into this listing"
    return Invalid(said, code="illegal_token", errors={parameter: [said]})


def next_url(request: Request, base: str, changes: Mapping[str, str]) -> str:
    """The request's URL with every query parameter it had, and these put in or replaced."""
    kept = {key: value for key, value in request.args.items() if key not in changes}
    return f"{base}{request.path}?{urlencode({**kept, **changes})}"


def paged(response: Response, content_key: str, next_page: str | None) -> Response:
    """Say whether more pages follow: 206 and where the next one is, or 200."""
    response.headers["X-OpenAPI-Pagination"] = "true" if next_page else "false"
    response.headers["X-OpenAPI-Paginated-Content-Key"] = content_key
    if next_page:
        response.status_code = 206
        response.headers["Link"] = f'<{next_page}>; rel="next"'
    return response
