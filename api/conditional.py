"""Entity tags: whoever has an answer already is told so in a few bytes.

Every JSON answer to a GET has one, made of its bytes, so that reads of a version, which never
change, and those of the latest, which do, are asked again alike: a tombstone hides at once, and no
cache may go on showing what it hid. Tags are weak, because the same answer may be compressed.
"""

import hashlib

from flask import Request, Response

REVALIDATE = "no-cache"


def conditional(request: Request, response: Response, *, private: bool) -> Response:
    """The answer with its tag, or 304 without a body when the request names that tag."""
    if request.method not in ("GET", "HEAD"):
        return response
    if _may_be_tagged(response):
        response.set_etag(_digest(response.get_data()), weak=True)
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


def _may_be_tagged(response: Response) -> bool:
    whole = not response.is_streamed and response.status_code in (200, 206)
    kept = "no-store" in response.headers.get("Cache-Control", "")
    return whole and not kept and response.mimetype == "application/json" and not _tagged(response)


def _tagged(response: Response) -> bool:
    return "ETag" in response.headers


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
