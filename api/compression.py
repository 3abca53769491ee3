"""Answers in gzip, for clients that take it: whole JSON and text of some length, no streams."""

import gzip

from flask import Flask, Response, request

LEAST = 1024
"""Bytes below which nothing is gained."""
LEVEL = 3
"""Of 9: more of them save little of JSON and take much of the processor."""
TYPES = frozenset({"application/json", "application/problem+json", "text/html", "text/plain"})


def register_compression(app: Flask) -> None:
    """Compress what is worth it."""

    @app.after_request
    def compress(response: Response) -> Response:
        if not _compressible(response):
            return response
        response.vary.add("Accept-Encoding")
        if request.accept_encodings.quality("gzip") > 0:
            response.set_data(gzip.compress(response.get_data(), LEVEL, mtime=0))
            response.headers["Content-Encoding"] = "gzip"
        return response


def _compressible(response: Response) -> bool:
    """By what it is, whoever asks."""
    if response.direct_passthrough or response.is_streamed or response.mimetype not in TYPES:
        return False
    if "Content-Encoding" in response.headers or response.status_code == 304:
        return False
    return (response.calculate_content_length() or 0) >= LEAST
