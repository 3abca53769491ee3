"""Scripts, styles and images of the pages, and the logo that the settings name."""

import hashlib
from functools import cache, lru_cache, partial
from pathlib import Path

from flask import Flask, Response, g, request

from storage.errors import NotFoundError

STATIC = Path(__file__).parent / "static"
STATIC_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def register_static_files(app: Flask, logo: str) -> None:
    """Serve the static files, and the logo if there is one."""
    app.add_url_rule("/static/<path:name>", "static file", _send_static)
    if logo:
        app.add_url_rule("/logo", "logo", partial(_send_logo, Path(logo)))


def static_url(name: str) -> str:
    """Return the URL of a static file, which changes with its content."""
    return f"/static/{name}?v={static_digest(name)}"


@lru_cache(maxsize=64)
def static_digest(name: str) -> str:
    """Return a short hash of a static file."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


@cache
def _list_static() -> frozenset[str]:
    return frozenset(str(one.relative_to(STATIC)) for one in STATIC.rglob("*.*"))


def _send_static(name: str) -> Response:
    """Send a file of `web/static`; with its digest in the URL it may be cached for ever."""
    g.operation = "web_static"
    path = STATIC / name
    if name not in _list_static() or path.suffix not in STATIC_TYPES:
        raise NotFoundError(f"There is no file {name}.")
    response = Response(path.read_bytes(), mimetype=STATIC_TYPES[path.suffix])
    current = request.args.get("v") == static_digest(name)
    lifetime = "public, max-age=31536000, immutable" if current else "no-cache"
    return _protect_file(response, lifetime)


def _send_logo(path: Path) -> Response:
    """Send the logo that the settings name."""
    g.operation = "web_static"
    kind = STATIC_TYPES.get(path.suffix.lower())
    if kind is None or not path.is_file():
        raise NotFoundError("STORE_WEB_LOGO must name a PNG or SVG file.")
    return _protect_file(Response(path.read_bytes(), mimetype=kind), "public, max-age=3600")


def _protect_file(response: Response, lifetime: str) -> Response:
    response.headers["Cache-Control"] = lifetime
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
