"""Headers and logs of every response: ETags, compression, CORS, content disposition.

Tokens travel in `Authorization`, never in cookies, so CORS needs no credentials.
"""

import gzip
import hashlib
import logging
import re
import time
import unicodedata
import uuid
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Protocol
from urllib.parse import quote

from flask import Flask, Request, Response, g, request

from api.http.errors import REQUEST_ID_HEADER, ErrorPage, register_errors
from config.logs import bind_log_fields
from storage.errors import Invalid
from storage.tracing import Span, Tracer, bind_traceparent

MIN_COMPRESSED_BYTES = 1024
"""Smaller responses gain nothing from compression."""
GZIP_LEVEL = 3
"""Higher levels save little of JSON and cost much processor time."""
COMPRESSED_TYPES = frozenset(
    {
        "application/json",
        "application/problem+json",
        "text/css",
        "text/html",
        "text/javascript",
        "text/plain",
    }
)


def register_compression(app: Flask) -> None:
    """Compress responses that gain from it."""

    @app.after_request
    def compress(response: Response) -> Response:
        if (
            response.direct_passthrough
            or response.is_streamed
            or response.mimetype not in COMPRESSED_TYPES
            or "Content-Encoding" in response.headers
            or response.status_code == 304
            or (response.calculate_content_length() or 0) < MIN_COMPRESSED_BYTES
        ):
            return response
        response.vary.add("Accept-Encoding")
        if request.accept_encodings.quality("gzip") > 0:
            response.set_data(gzip.compress(response.get_data(), GZIP_LEVEL, mtime=0))
            response.headers["Content-Encoding"] = "gzip"
        return response


ALLOWED_METHODS = "GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS"
ALLOWED_HEADERS = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "Last-Event-ID",
    "Prefer",
    "Range",
    "X-Request-Id",
)
EXPOSED_HEADERS = (
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
PREFLIGHT_CACHE_S = 600
"""How long a browser may cache a preflight."""


FindOrigins = Callable[[str], Collection[str]]
"""Returns the origins whose pages may read the responses of a path; `*` stands for all."""


def register_cors(app: Flask, find_origins: FindOrigins) -> None:
    """Add CORS headers, and answer preflights."""

    @app.before_request
    def preflight() -> Response | None:
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
            return None
        if not _allowed_origin(find_origins(request.path)):
            return None
        headers = {
            "Access-Control-Allow-Methods": ALLOWED_METHODS,
            "Access-Control-Allow-Headers": ", ".join(ALLOWED_HEADERS),
            "Access-Control-Max-Age": str(PREFLIGHT_CACHE_S),
        }
        return Response(status=204, headers=headers)

    @app.after_request
    def add_headers(response: Response) -> Response:
        origins = find_origins(request.path)
        if origins and "*" not in origins:
            response.vary.add("Origin")
        if allowed := _allowed_origin(origins):
            response.headers["Access-Control-Allow-Origin"] = allowed
            response.headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED_HEADERS)
        return response


def _allowed_origin(origins: Collection[str]) -> str | None:
    """Return the value of Access-Control-Allow-Origin for this request, if any."""
    if "*" in origins:
        return "*"
    origin = request.headers.get("Origin")
    return origin if origin in origins else None


log = logging.getLogger("api.requests")

STORE_REQUESTS = frozenset({("POST", "/v1/policies/evaluate"), ("GET", "/v1/policies/version")})
"""What the store asks its authorization service, whose traces go on there."""
QUIET_PATHS = frozenset({"/health", "/livez", "/metrics", "/readyz"})
"""Successful requests to these are logged at level DEBUG."""
STOPPING_KEY = "store.stopping"
"""Set to true in the WSGI environment by a server that shuts down."""


class RequestCounter(Protocol):
    """Counts requests by operation: status and seconds, and the bytes of the bodies."""

    def count(
        self, operation: str, status: int, seconds: float, *, received: int, sent: int
    ) -> None: ...

    def count_sent(self, operation: str, size: int) -> None: ...


def register_conventions(
    app: Flask,
    *,
    find_origins: FindOrigins,
    counter: RequestCounter,
    prefix: str = "",
    page: ErrorPage | None = None,
    tracer: Tracer | None = None,
) -> None:
    """Register everything of this module; what is registered first sees a response last.

    `prefix` begins the names of operations that are counted and traced.
    """
    app.url_map.merge_slashes = False
    _observe_requests(app, counter, prefix)
    if tracer is not None and tracer.records:
        _trace_requests(app, tracer, prefix)
    register_compression(app)
    register_cors(app, find_origins)
    register_errors(app, page)


def new_request_id() -> str:
    """Return a unique request id."""
    return uuid.uuid4().hex


_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def _observe_requests(
    app: Flask,
    counter: RequestCounter,
    prefix: str,
) -> None:
    """Give every request an id, which the response repeats; log and count it.

    A client's own id is used if it is safe to put into a log line and a header.
    """

    @app.before_request
    def begin() -> None:
        client_id = request.headers.get(REQUEST_ID_HEADER, "")
        g.request_id = client_id if _REQUEST_ID.fullmatch(client_id) else new_request_id()
        g.start = time.perf_counter()
        g.log_lines = bind_log_fields(request_id=g.request_id)
        g.log_lines.__enter__()

    @app.after_request
    def finish(response: Response) -> Response:
        response.headers.update(g.get("rate", {}))
        response.headers[REQUEST_ID_HEADER] = g.get("request_id", "")
        response.headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        seconds = time.perf_counter() - g.start
        operation = prefix + g.get("operation", "none")
        sent, has_body = response.content_length, request.method != "HEAD"
        counter.count(
            operation,
            response.status_code,
            seconds,
            received=request.content_length or 0,
            sent=(sent or 0) if has_body else 0,
        )
        if sent is None and has_body:
            _count_body(response, partial(counter.count_sent, operation))
        # Without the query, which may hold a signature.
        fields = {"method": request.method, "path": request.path, "status": response.status_code}
        who = {"seconds": round(seconds, 4), "principal": g.get("principal")}
        # Probes and scrapes come every few seconds, and would fill the log.
        is_quiet = request.path in QUIET_PATHS and response.status_code == 200
        log.log(logging.DEBUG if is_quiet else logging.INFO, "request", extra=fields | who)
        return response

    @app.teardown_request
    def end(_error: BaseException | None) -> None:
        for name in ("reservation", "log_lines"):
            if name in g:
                g.pop(name).__exit__(None, None, None)


def _count_body(response: Response, count: Callable[[int], None]) -> None:
    """Count the bytes of a response of unknown length; those of a stream while they are sent."""
    if not response.is_streamed:
        count(response.calculate_content_length() or 0)
    elif not response.direct_passthrough:
        blocks = response.iter_encoded()
        # The wrapper hides how to close the stream.
        if (close := getattr(response.response, "close", None)) is not None:
            response.call_on_close(close)
        response.response = _count_blocks(blocks, count)


def _count_blocks(blocks: Iterator[bytes], count: Callable[[int], None]) -> Iterator[bytes]:
    for block in blocks:
        count(len(block))
        yield block


def _trace_requests(app: Flask, tracer: Tracer, prefix: str) -> None:
    """Record each request but probes and scrapes, and keep its trace context with its jobs."""

    @app.before_request
    def begin_span() -> None:
        if request.path not in QUIET_PATHS:
            g.span = tracer.start(
                "server",
                request.headers.get("traceparent", ""),
                is_foreign=not _is_from_store(),
            )
            g.trace_context = bind_traceparent(g.span.traceparent)
            g.trace_context.__enter__()

    @app.after_request
    def end_span(response: Response) -> Response:
        # A span that does not end is not recorded: a client that asks as the store is refused.
        if "span" in g and not (400 <= response.status_code < 500 and _is_from_store()):
            _end_span(g.span, prefix + g.get("operation", "none"), response.status_code)
        return response

    @app.teardown_request
    def unbind(_error: BaseException | None) -> None:
        if "trace_context" in g:
            g.pop("trace_context").__exit__(None, None, None)


def _is_from_store() -> bool:
    return (request.method, request.path) in STORE_REQUESTS


def _end_span(span: Span, name: str, status: int) -> None:
    """Record a request by its route: a path may name files."""
    span.end(
        name,
        {
            "http.request.method": request.method,
            "http.route": request.url_rule.rule if request.url_rule else "",
            "http.response.status_code": status,
            "store.operation": name,
            "store.request_id": g.get("request_id", ""),
        },
        failed=status >= 500,
    )


REVALIDATE = "no-cache"
"""Also for a fixed version, because a tombstone hides it at once."""


def apply_etag(request: Request, response: Response, *, private: bool) -> Response:
    """Return the response with its ETag, or 304 without a body if the request names that tag.

    The ETag of a JSON response is a hash of its bytes, and weak, because the same response may be
    compressed.
    """
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


DISPOSITION_PARAMETER = "content_disposition"
MAX_DISPOSITION = 1024
MAX_ENCODED_DISPOSITION = 3000
"""A URL's query carries it, and a request line has at most 8,190 bytes."""

_DISPOSITION_TYPES = ("attachment", "inline")
# Possessive quantifiers: backtracking would take exponential time.
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]++"
_PART = re.compile(rf';\s*+({_TOKEN})\s*+=\s*+("(?:[^"\\]|\\.)*+"|[^;"]*+)\s*+')
_DISPOSITION = re.compile(rf"\s*+({_TOKEN})\s*+(?:{_PART.pattern})*+;?\s*+")
_DISPOSITION_EXAMPLE = 'attachment; filename="name.txt"'


def encode_disposition(value: str) -> str:
    """Encode a Content-Disposition header, with a non-ASCII file name as `filename*` too.

    Raises ValueError for control characters, and for other non-ASCII text.
    """
    if len(value) > MAX_DISPOSITION:
        raise ValueError(f"Must have at most {MAX_DISPOSITION} characters.")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in value):
        raise ValueError("Must not contain control characters.")
    encoded = value if value.isascii() else _encode_parameters(value)
    if len(encoded) > MAX_ENCODED_DISPOSITION:
        raise ValueError(
            f"Must have at most {MAX_ENCODED_DISPOSITION} characters when encoded (RFC 8187)."
        )
    return encoded


def _encode_parameters(header: str) -> str:
    match = _DISPOSITION.fullmatch(header)
    if match is None:
        raise ValueError(f"Must have a form like: {_DISPOSITION_EXAMPLE}")
    parameters = [(name, _unquote(value)) for name, value in _PART.findall(header)]
    extended = any(name.lower() == "filename*" for name, _ in parameters)
    parts = [match[1]]
    for name, value in parameters:
        if value.isascii():
            parts.append(f"{name}={value if name.endswith('*') else _quote(value)}")
        elif name.lower() == "filename":
            parts.append(f"{name}={_quote(_ascii_fallback(value))}")
            parts += [] if extended else [f"filename*=UTF-8''{quote(value, safe='')}"]
        else:
            raise ValueError(
                f"Only filename may have non-ASCII characters, as in: {_DISPOSITION_EXAMPLE}"
            )
    return "; ".join(parts)


def _unquote(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value.strip()


def _quote(value: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def _ascii_fallback(name: str) -> str:
    """Return the file name for clients without `filename*`: accents and other letters are lost."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return "".join(c if c.isascii() and c != "%" else "_" for c in plain)


def check_inline(disposition: str | None, *, from_folder: bool) -> None:
    """Refuse `inline` for files of folder buckets: HTML would run on the store's own origin.

    Raises Invalid.
    """
    if from_folder and _disposition_type(disposition) == "inline":
        message = (
            "inline is supported only if the replica is a cloud bucket: the store serves files of"
            " this replica from its own origin, and so only as attachments."
        )
        raise Invalid(
            f"Bad query parameter '{DISPOSITION_PARAMETER}': {message}",
            errors={DISPOSITION_PARAMETER: [message]},
        )


def force_attachment(disposition: str | None) -> str:
    """Return the disposition as an attachment with the same parameters."""
    _, semicolon, parameters = (disposition or "").partition(";")
    # Browsers may display unknown types, so their parameters are dropped.
    if _disposition_type(disposition) not in _DISPOSITION_TYPES:
        return "attachment"
    return f"attachment{semicolon}{parameters}"


def _disposition_type(disposition: str | None) -> str:
    return (disposition or "").partition(";")[0].strip().lower()
