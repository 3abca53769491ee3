"""Where browsers bring answers: which addresses a client may have, and whether one is its own.

Addresses are compared as texts: two readers of one URL need not agree on what it says.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

from storage.errors import Invalid

MAX_URI = 1024

_PRINTABLE = re.compile(r"[!-~]+")
_LOOPBACK = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)")
_MAX_PORT = 65535
_PRIVATE_SCHEME = re.compile(r"[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+:/?[^/].*")


def check_redirect_uri(uri: str, *, native: bool) -> None:
    """Invalid unless a client may register it: https, plain http on a loopback address, and, of
    native clients, a private scheme that is a domain read backwards (RFC 8252)."""
    if len(uri) > MAX_URI or not _PRINTABLE.fullmatch(uri) or "#" in uri or "\\" in uri:
        raise Invalid("A redirect URI is printable ASCII without a fragment.")
    if _is_https(uri) or _portless(uri) or (native and _PRIVATE_SCHEME.fullmatch(uri)):
        return
    raise Invalid(
        "A redirect URI begins with https://, http://127.0.0.1 or http://[::1]; that of a public"
        " client may begin with com.example.app:"
    )


def _is_https(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        has_host = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        return parts.scheme == "https" and has_host
    except ValueError:
        return False


def is_native(uri: str) -> bool:
    """Whether any program on the person's computer may receive what is sent to this address: a
    loopback port, or a private scheme (RFC 8252, 8.6)."""
    return _portless(uri) is not None or not uri.startswith(("http://", "https://"))


def is_registered(uri: str, registered: Iterable[str], *, native: bool) -> bool:
    """Whether a client registered this very address, or the same on another loopback port."""
    known = set(registered)
    if uri in known:
        return True
    return native and _portless(uri) is not None and _portless(uri) in map(_portless, known)


def is_origin_of(origin: str, registered: Iterable[str]) -> bool:
    """Whether a page of this origin may receive what is sent to one of these addresses."""
    found = {_origin(uri) for uri in registered} - {""}
    return is_registered(origin, found, native=True)


def _origin(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else ""


def _portless(uri: str) -> str | None:
    """A loopback address without its port; None for any other, and for a port that there is not."""
    found = _LOOPBACK.fullmatch(uri)
    return found[1] + found[3] if found and int(found[2] or 0) <= _MAX_PORT else None


def with_parameters(uri: str, parameters: dict[str, str]) -> str:
    """The address with these added to its query, which stays as it is."""
    return uri + ("&" if "?" in uri else "?") + urlencode(parameters)
