"""Pages of other origins: which may read our answers, and which headers they see.

Tokens travel in `Authorization`, never in cookies, so that no answer is given with credentials that
a page did not have itself.
"""

from collections.abc import Callable, Collection

from flask import Flask, Response, request

METHODS = "GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS"
ASKED = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "Last-Event-ID",
    "Prefer",
    "Range",
    "X-Request-Id",
)
EXPOSED = (
    "Content-Disposition",
    "ETag",
    "Link",
    "Location",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "Repr-Digest",
    "Retry-After",
    "WWW-Authenticate",
    "X-OpenAPI-Paginated-Content-Key",
    "X-OpenAPI-Pagination",
    "X-Request-Id",
    "X-STORE-CONTENT-TYPE",
    "X-STORE-CRC32C",
    "X-STORE-CREATOR-UID",
    "X-STORE-OWNER",
    "X-STORE-REPLICATION",
    "X-STORE-S3-ETAG",
    "X-STORE-SERVED-BY",
    "X-STORE-SHA1",
    "X-STORE-SHA256",
    "X-STORE-SIZE",
    "X-STORE-STATE",
    "X-STORE-VERSION",
)
KEPT_S = 600
"""How long a browser may remember a preflight."""


OriginsOf = Callable[[str], Collection[str]]
"""The origins whose pages may read the answers of a path."""


def register_cors(app: Flask, origins_of: OriginsOf) -> None:
    """Let pages of these origins in; `*` lets all in, none is the default."""

    @app.before_request
    def preflight() -> Response | None:
        asks = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if not (asks and _allowed(origins_of(request.path))):
            return None
        headers = {
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": ", ".join(ASKED),
            "Access-Control-Max-Age": str(KEPT_S),
        }
        return Response(status=204, headers=headers)

    @app.after_request
    def admit(response: Response) -> Response:
        origins = origins_of(request.path)
        if origins and "*" not in origins:
            response.vary.add("Origin")
        if allowed := _allowed(origins):
            response.headers["Access-Control-Allow-Origin"] = allowed
            response.headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)
        return response


def _allowed(origins: Collection[str]) -> str | None:
    """What is said to the origin that asks."""
    if "*" in origins:
        return "*"
    origin = request.headers.get("Origin")
    return origin if origin in origins else None
