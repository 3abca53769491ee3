"""ETags and conditional GET requests.

Every JSON response to a GET has an ETag, a hash of its bytes. Caches must revalidate reads of a
fixed version too, because a tombstone hides it at once. Tags are weak, because the same response
may be compressed.
"""

import hashlib

from flask import Request, Response

REVALIDATE = "no-cache"


def apply_etag(request: Request, response: Response, *, private: bool) -> Response:
    """Return the response with its ETag, or 304 without a body if the request names that tag."""
    if request.method not in ("GET", "HEAD"):
        return response
    if _is_taggable(response):
        digest = hashlib.blake2b(response.get_data(), digest_size=16).hexdigest()
        response.set_etag(digest, weak=True)
    tag, _ = response.get_etag()
    if tag is None:
        return response
    response.headers.setdefault(
        "Cache-Control", f"private, {REVALIDATE}" if private else REVALIDATE
    )
    if request.if_none_match.contains_weak(tag):
        response.status_code = 304
        response.set_data(b"")
        response.headers.pop("Location", None)
    return response


def _is_taggable(response: Response) -> bool:
    return (
        not response.is_streamed
        and response.status_code in (200, 206)
        and response.mimetype == "application/json"
        and "no-store" not in response.headers.get("Cache-Control", "")
        and "ETag" not in response.headers
    )
